"""A task: a function with a name and options. A bound call: a task with arguments, ready to enqueue.

    function ──make_task──▶ Task ──bind──▶ BoundCall ──enqueue──▶ Job

Mistakes raise as early as possible: in annotations and options when the task is declared, in arguments when they are
bound.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

import msgspec

from holdfast.errors import Invalid
from holdfast.hints import with_hints
from holdfast.job.job import Job, read_keep
from holdfast.job.limit import Limit, check_declared
from holdfast.job.option_kinds import limits_in
from holdfast.job.option_table import NEED_A_PROCESS
from holdfast.job.options import DEFAULT_QUEUE, DEFAULTS, CheckedOptions, JobOptions
from holdfast.job.retries import Retries
from holdfast.names import check_task, importable_module, new_id
from holdfast.running.current import detached_unless_running
from holdfast.task.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")


class App(Protocol):
    """The app that enqueues the calls of a task."""

    def enqueue(self, call: BoundCall[R], /) -> Job[R]: ...

    async def aenqueue(self, call: BoundCall[R], /) -> Job[R]: ...

    @property
    def declared_limits(self) -> Mapping[str, Limit]: ...


@with_hints
@dataclass(frozen=True, eq=False)
class Task(Generic[P, R]):
    """A function that workers run. Calling the task calls the function."""

    name: str
    function: Callable[P, Any]
    app: App
    signature: Signature
    effective_options: CheckedOptions
    codec: str = "json"  # of its arguments
    origin: Task[P, R] | None = field(default=None, repr=False)  # the declared task, if `options` made this one
    given: frozenset[str] = field(default=frozenset(), repr=False)  # the names of the options that `options` got
    batch: dict[str, Any] = field(init=False, repr=False)  # the arguments of the store's `enqueue` that all calls share
    job_template: Job[R] = field(init=False, repr=False)  # the job of a call, with the fields that all calls share

    def __post_init__(self) -> None:
        """Compute in advance what all calls share: most tasks are declared once and called often."""
        for attribute in ("__doc__", "__module__", "__name__", "__qualname__"):
            vars(self)[attribute] = getattr(self.function, attribute, None)
        vars(self).update(__wrapped__=self.function, batch=_batch(self), job_template=_job_template(self))

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in this process. Outside of a job, `current_job()` returns a detached job meanwhile."""
        with detached_unless_running(self.name):
            result: R = self.function(*args, **kwargs)
        return result

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @property
    def declared(self) -> Task[P, R]:
        """The task as it was declared, without later options."""
        return self.origin or self

    def options(self, **given: Unpack[JobOptions]) -> Self:
        """Return a copy of this task with some options changed.

        transcode.options(priority=-5, delay="30s").enqueue("in.mov")
        """
        options = _checked_options(self.function, self.effective_options.replace(**given))
        if "limits" in given:
            check_declared(limits_in(given["limits"]), self.app.declared_limits)
        return replace(self, effective_options=options, origin=self.declared, given=self.given.union(given))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundCall[R]:
        """Return a call of this task with these arguments. It has an id, but is not stored yet.

        Raises:
            Invalid: the arguments do not fit the signature, or cannot be stored.
        """
        payload = self.signature.encode(args, kwargs)
        return BoundCall(self.effective_options.id or new_id(), self, payload)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue a call of this task for a worker to run."""
        return self.app.enqueue(self.bind(*args, **kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue a call of this task for a worker to run."""
        return await self.app.aenqueue(self.bind(*args, **kwargs))


class AsyncTask(Task[P, R]):
    """A task that is an `async def`: calling it returns a coroutine."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        """Call the function in this process."""
        with detached_unless_running(self.name):
            result: R = await self.function(*args, **kwargs)
        return result


@with_hints
class BoundCall(msgspec.Struct, Generic[R], frozen=True, eq=False):
    """A task with its encoded arguments, and the id that its job will have."""

    id: str
    variant: Task[..., R]  # the task with the options of this call
    payload: bytes

    def __repr__(self) -> str:
        return f"<BoundCall {self.id} {self.name}>"

    @property
    def task(self) -> Task[..., R]:
        """The task as it was declared, without later options."""
        return self.variant.declared

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def effective_options(self) -> CheckedOptions:
        return self.variant.effective_options

    @property
    def batch(self) -> dict[str, Any]:
        """The arguments of the store's `enqueue`, besides the id and the payload."""
        return self.variant.batch

    @property
    def job_template(self) -> Job[R]:
        """The job of this call before it is stored, without its id, arguments and times."""
        return self.variant.job_template

    def options(self, **given: Unpack[JobOptions]) -> BoundCall[R]:
        """Return a copy of this call with some options changed. It has the same id, unless `id` is given."""
        variant = self.variant.options(**given)
        return BoundCall((given.get("id") and variant.effective_options.id) or self.id, variant, self.payload)


class Declare(Protocol):
    """The decorator that `@app.task(...)` returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def make_task(
    function: Callable[P, Coroutine[Any, Any, R]], app: App, options: CheckedOptions = ..., name: str | None = None
) -> AsyncTask[P, R]: ...
@overload
def make_task(
    function: Callable[P, R], app: App, options: CheckedOptions = ..., name: str | None = None
) -> Task[P, R]: ...
def make_task(
    function: Callable[..., Any], app: App, options: CheckedOptions = DEFAULTS, name: str | None = None
) -> Task[..., Any]:
    """Make a task of a function.

    Raises:
        Invalid: the name or an option is invalid.
        TypeError: the object is not a function, or its parameters cannot be stored.
    """
    if not inspect.isroutine(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function!r} cannot be a task; expected a function, def or async def, without yield")
    task_name = check_task(name) if name is not None else _default_name(function)
    kind = AsyncTask if inspect.iscoroutinefunction(function) else Task
    signature = Signature.of(function, task_name)
    return kind(task_name, function, app, signature, _checked_options(function, options))


def _checked_options(function: Callable[..., Any], options: CheckedOptions) -> CheckedOptions:
    """Return the options, or raise Invalid if they do not fit the function. It may have a check of its own."""
    if check := getattr(function, "check_options", None):
        check(options)
    if options.runner == "async" and not inspect.iscoroutinefunction(function):
        raise Invalid(f"runner is 'async', but {function.__qualname__} is a plain function; declare it with async def")
    runner = options.runner or ("async" if inspect.iscoroutinefunction(function) else None)
    if runner in ("thread", "async") and (found := [name for name in NEED_A_PROCESS if getattr(options, name)]):
        raise Invalid(
            f"{found[0]} cannot be enforced for {function.__qualname__}, which runs in the executor's own process "
            f"(runner {runner!r}); choose the runner fork, spawn or process"
        )
    return options


def _unique_key(task: Task[..., Any]) -> str | None:
    return task.effective_options.unique or (task.name if task.effective_options.debounce is not None else None)


def _batch(task: Task[..., Any]) -> dict[str, Any]:
    """Return the arguments of the store's `enqueue` that all calls share."""
    batch = {"task": task.name, **task.effective_options.arguments()}
    if task.codec != "json":
        batch["codec"] = task.codec
    if (unique := _unique_key(task)) is not None:
        batch["unique"] = unique
    return batch


def _job_template(task: Task[..., R]) -> Job[R]:
    """Return the job as it will be stored, without its app, id, arguments and times."""
    options, unknown = task.effective_options, datetime.fromtimestamp(0, UTC)
    no_app: Any = None
    return Job(
        id="",
        state="waiting",
        queue=options.queue or DEFAULT_QUEUE,
        task=task.name,
        created=True,
        created_at=unknown,
        since=unknown,
        updated_at=unknown,
        priority=options.priority or 0,
        retries=options.retries,
        retry_policy=Retries.of(options.retries, options.retry_policy),
        timeouts=options.timeouts,
        timeouts_policy=Retries.of(options.timeouts, options.timeouts_policy),
        stalls=options.stalls,
        stalls_policy=Retries.of(options.stalls, options.stalls_policy),
        out_of_memory=options.out_of_memory,
        out_of_memory_policy=Retries.of(options.out_of_memory, options.out_of_memory_policy),
        codec=task.codec,
        unique=_unique_key(task) or "",
        keep=read_keep(1 if options.keep is None else options.keep),
        at_most_once=options.at_most_once is True,
        limits=tuple(options.limits or ()),
        batch=options.batch or "",
        share=options.share or "",
        tags=options.tags or (),
        scope=options.scope or "",
        app=no_app,
        returns=task.signature.result,
    )


def _default_name(function: Callable[..., Any]) -> str:
    """Return the module and name of a function, as another process would import it."""
    name = f"{importable_module(function.__module__)}.{function.__qualname__}"
    if "<" in name:
        raise Invalid(f"{name} cannot be imported by another process; move the function to a module, or pass name=")
    return check_task(name)
