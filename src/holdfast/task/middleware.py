"""Middleware: code around the call of a task, in any runner.

    @jobs.middleware
    def timed(job: RunningJob) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield                       # the task runs here; `result = yield` gets its return value
        finally:
            print(job.task, time.monotonic() - began)

The same generator works around a `def` and an `async def`. The middleware that is declared first is the outermost. An
error in a middleware is an error of the job. A middleware cannot suppress an error of the task: it is raised again
afterwards.
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, NamedTuple, TypeVar

from holdfast.errors import Invalid
from holdfast.names import check_task
from holdfast.running.running_job import RunningJob
from holdfast.task.task import Task

Middleware = Callable[[RunningJob], Iterator[None] | AsyncIterator[None]]
M = TypeVar("M", bound=Middleware)

Tasks = Mapping[str, Task[..., Any]]
CallTask = Callable[[], Awaitable[Any]]


class Layer(NamedTuple):
    """A middleware, and the names of its tasks; None: all tasks."""

    function: Middleware
    tasks: frozenset[str] | None

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def is_for(self, task: Task[..., Any]) -> bool:
        return self.tasks is None or task.name in self.tasks

    def check(self, task: Task[..., Any]) -> None:
        """Raise Invalid if the middleware is an `async def` and the task is a plain function."""
        if self.is_for(task) and inspect.isasyncgenfunction(self.function) and not task.is_async:
            raise Invalid(
                f"middleware {self.name} is an async def, but task {task.name} is a plain function, which cannot await "
                "it; write the middleware as a def, which works for both, or restrict it with middleware(tasks=[...])"
            )


class MiddlewareStack:
    """The middleware of an app, the outermost first."""

    def __init__(self) -> None:
        self._layers: list[Layer] = []

    def add(self, function: Any, tasks: Iterable[Task[..., Any] | str] | None, known: Tasks) -> None:
        """Declare a middleware.

        Raises:
            TypeError: the object is not a function that yields.
            Invalid: one of its tasks cannot have this middleware.
        """
        if not inspect.isgeneratorfunction(function) and not inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function!r} cannot be a middleware; expected a function, def or async def, that yields once"
            )
        _check_parameters(function)
        layer = Layer(function, None if tasks is None else frozenset(map(_name_of, _check_tasks(tasks))))
        for task in known.values():
            layer.check(task)
        self._layers.append(layer)

    def check(self, task: Task[..., Any]) -> None:
        """Raise Invalid if a task cannot have one of its middlewares."""
        for layer in self._layers:
            layer.check(task)

    def around(self, task: Task[..., Any]) -> list[Layer]:
        return [layer for layer in self._layers if layer.is_for(task)]


def _check_parameters(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise TypeError(
            f"{function!r} cannot be a middleware; it is called with one argument, the running job: {error}"
        ) from None


def _check_tasks(tasks: Any) -> Iterable[Any]:
    if isinstance(tasks, str | Task) or not isinstance(tasks, Iterable):
        raise Invalid(f"tasks is {tasks!r}; it must be a list of tasks, or of their names")
    return tasks


def _name_of(task: Task[..., Any] | str) -> str:
    return task.name if isinstance(task, Task) else check_task(task)


def call_within(layers: list[Layer], job: RunningJob, task: Task[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the function of a task inside its middleware, and return its value, or the coroutine of an `async def`.

    Around a plain function nothing is awaited, so a single `send` runs everything, without an event loop.
    """

    async def call() -> Any:
        value = task.function(*args, **kwargs)
        if task.is_async:
            return await value
        return _run(value) if inspect.iscoroutine(value) else value

    work = _within(layers, job, call)
    if task.is_async:
        return work
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError(f"a middleware of task {task.name}, a plain function, awaited something")


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    import asyncio  # slow to import, and not needed to enqueue

    return asyncio.run(coroutine)


async def _within(layers: list[Layer], job: RunningJob, call: CallTask) -> Any:
    """Run a call inside the first layer, which contains the others."""
    if not layers:
        return await call()
    layer = _RunningLayer(layers[0], job)
    await layer.enter()
    try:
        value = await _within(layers[1:], job, call)
    except BaseException as error:
        await layer.exit_with_error(error)
        raise
    await layer.exit(value)
    return value


class _RunningLayer:
    """A middleware around one call: runs the code before its `yield`, and the code after it."""

    def __init__(self, layer: Layer, job: RunningJob) -> None:
        self._layer = layer
        self._steps: Any = layer.function(job)

    async def enter(self) -> None:
        if not await self._advance(None):
            raise self._with_note(RuntimeError("it returned without a yield, so the task was not called"))

    async def exit(self, value: Any) -> None:
        """Continue after a call that returned a value."""
        if await self._advance(value):
            await self._raise_second_yield()

    async def exit_with_error(self, error: BaseException) -> None:
        """Continue after a call that raised. Raise only if the middleware raises another exception."""
        trace = error.__traceback__
        try:
            has_yielded = await self._throw(error)
        except BaseException as other:
            if other is not error and not _is_converted_stop(other, error):
                raise self._with_note(other)  # noqa: B904, its context is set already
            has_yielded = False
        error.__traceback__ = trace  # without the frames of the middleware
        if has_yielded:
            await self._raise_second_yield()

    async def _advance(self, value: Any) -> bool:
        """Run to the next `yield`. Return whether there is one."""
        steps: Generator[None, Any, None] | AsyncGenerator[None, Any] = self._steps
        try:
            if isinstance(steps, Generator):
                steps.send(value)
            else:
                await steps.asend(value)
        except (StopIteration, StopAsyncIteration):
            return False
        except BaseException as error:
            raise self._with_note(error)  # noqa: B904, the same
        return True

    async def _throw(self, error: BaseException) -> bool:
        steps: Generator[None, Any, None] | AsyncGenerator[None, Any] = self._steps
        try:
            if isinstance(steps, Generator):
                steps.throw(error)
            else:
                await steps.athrow(error)
        except (StopIteration, StopAsyncIteration):
            return False
        return True

    async def _raise_second_yield(self) -> None:
        steps: Generator[None, Any, None] | AsyncGenerator[None, Any] = self._steps
        if isinstance(steps, Generator):
            steps.close()
        else:
            await steps.aclose()
        raise self._with_note(RuntimeError("it yielded twice; a task is called once"))

    def _with_note(self, error: BaseException) -> BaseException:
        error.add_note(f"raised by the middleware {self._layer.name}")
        return error


def _is_converted_stop(other: BaseException, error: BaseException) -> bool:
    """Return whether Python made `other` of `error`: a StopIteration that leaves a generator becomes a RuntimeError."""
    return isinstance(error, StopIteration | StopAsyncIteration) and other.__cause__ is error
