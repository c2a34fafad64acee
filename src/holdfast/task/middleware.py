"""Middleware: what is done around the call of a task, whichever runner makes it.

    @jobs.middleware
    def timed(job: RunningJob) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield                       # the task runs here; `result = yield` has what it returned
        finally:
            print(job.task, time.monotonic() - began)

A generator has no colour: the same one is put around a `def` and an `async def`. The first that is declared is the
outermost. An error of a middleware is the job's; one that it catches goes on all the same, so that none is lost.
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

Known = Mapping[str, Task[..., Any]]
Called = Callable[[], Awaitable[Any]]


class Layer(NamedTuple):
    """A middleware, and the tasks that it is for; None: all."""

    function: Middleware
    tasks: frozenset[str] | None

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def is_for(self, task: Task[..., Any]) -> bool:
        return self.tasks is None or task.name in self.tasks

    def check(self, task: Task[..., Any]) -> None:
        """Refuse what cannot be awaited: an `async def` around a `def`."""
        if self.is_for(task) and inspect.isasyncgenfunction(self.function) and not task.is_async:
            raise Invalid(
                f"middleware {self.name} is an async def, but task {task.name} is a plain function, which cannot wait "
                "for it: make the middleware a def, which goes around both, or name its tasks: middleware(tasks=[...])"
            )


class Layers:
    """The middleware of an app, the outermost first."""

    def __init__(self) -> None:
        self._layers: list[Layer] = []

    def add(self, function: Any, tasks: Iterable[Task[..., Any] | str] | None, known: Known) -> None:
        """Declare a middleware.

        Raises:
            TypeError: it is no function that yields.
            Invalid: it cannot be put around one of its tasks.
        """
        if not inspect.isgeneratorfunction(function) and not inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function!r} cannot be a middleware: it is a function, def or async def, that yields once"
            )
        _check_parameters(function)
        layer = Layer(function, None if tasks is None else frozenset(map(_name_of, _several(tasks))))
        for task in known.values():
            layer.check(task)
        self._layers.append(layer)

    def check(self, task: Task[..., Any]) -> None:
        """Refuse a task that one of them cannot be put around."""
        for layer in self._layers:
            layer.check(task)

    def around(self, task: Task[..., Any]) -> list[Layer]:
        return [layer for layer in self._layers if layer.is_for(task)]


def _check_parameters(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise TypeError(
            f"{function!r} cannot be a middleware: it is called with one argument, the running job; {error}"
        ) from None


def _several(tasks: Any) -> Iterable[Any]:
    if isinstance(tasks, str | Task) or not isinstance(tasks, Iterable):
        raise Invalid(f"tasks is {tasks!r}; it must be a list of tasks, or of their names")
    return tasks


def _name_of(task: Task[..., Any] | str) -> str:
    return task.name if isinstance(task, Task) else check_task(task)


def call_within(layers: list[Layer], job: RunningJob, task: Task[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the function of a task with middleware around it. Returns its value, or of an `async def` its coroutine.

    Around a plain function nothing is awaited, so that no event loop is needed: one step goes all the way.
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
    raise RuntimeError("a middleware waited for something, around a plain function")


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    import asyncio  # slow to load, for a program that only enqueues

    return asyncio.run(coroutine)


async def _within(layers: list[Layer], job: RunningJob, call: Called) -> Any:
    """Make a call within the first of some layers, which is around the others."""
    if not layers:
        return await call()
    running = _Running(layers[0], job)
    await running.begin()
    try:
        value = await _within(layers[1:], job, call)
    except BaseException as error:
        await running.end_by(error)
        raise
    await running.end(value)
    return value


class _Running:
    """A middleware around one call: what is before its `yield`, and what is after."""

    def __init__(self, layer: Layer, job: RunningJob) -> None:
        self._layer = layer
        self._steps: Any = layer.function(job)

    async def begin(self) -> None:
        if not await self._goes_on(None):
            raise self._blamed(RuntimeError("it ended without a yield, so the task was not called"))

    async def end(self, value: Any) -> None:
        """The call returned a value."""
        if await self._goes_on(value):
            await self._refuse_second()

    async def end_by(self, error: BaseException) -> None:
        """The call raised: so does this, if the middleware raises something else."""
        trace = error.__traceback__
        try:
            goes_on = await self._throws(error)
        except BaseException as other:
            if other is not error and not _stands_for(other, error):
                raise self._blamed(other)  # noqa: B904, it says itself what it came from
            goes_on = False
        error.__traceback__ = trace  # without the way through the middleware
        if goes_on:
            await self._refuse_second()

    async def _goes_on(self, value: Any) -> bool:
        """Go on to the next yield. Returns whether there is one."""
        steps: Generator[None, Any, None] | AsyncGenerator[None, Any] = self._steps
        try:
            if isinstance(steps, Generator):
                steps.send(value)
            else:
                await steps.asend(value)
        except (StopIteration, StopAsyncIteration):
            return False
        except BaseException as error:
            raise self._blamed(error)  # noqa: B904, the same
        return True

    async def _throws(self, error: BaseException) -> bool:
        steps: Generator[None, Any, None] | AsyncGenerator[None, Any] = self._steps
        try:
            if isinstance(steps, Generator):
                steps.throw(error)
            else:
                await steps.athrow(error)
        except (StopIteration, StopAsyncIteration):
            return False
        return True

    async def _refuse_second(self) -> None:
        steps: Generator[None, Any, None] | AsyncGenerator[None, Any] = self._steps
        if isinstance(steps, Generator):
            steps.close()
        else:
            await steps.aclose()
        raise self._blamed(RuntimeError("it yielded twice; a task is called once"))

    def _blamed(self, error: BaseException) -> BaseException:
        error.add_note(f"raised by the middleware {self._layer.name}")
        return error


def _stands_for(other: BaseException, error: BaseException) -> bool:
    """Whether Python made one error of another, as of a StopIteration that leaves a generator."""
    return isinstance(error, StopIteration | StopAsyncIteration) and other.__cause__ is error
