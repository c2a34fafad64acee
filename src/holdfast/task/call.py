"""The call of a task: what a job does in a process of its own, in its executor, in a test and where it was enqueued.

claimed job ──▶ Call ──▶ the task's function ──▶ outcome
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from holdfast.constants import MAX_PAYLOAD
from holdfast.errors import HoldfastError
from holdfast.job import failure
from holdfast.job.failure import Failure
from holdfast.job.outcome import (
    Advance,
    Advanced,
    Cancelled,
    Crash,
    Outcome,
    Release,
    Retry,
    Snooze,
    Unknown,
    Waits,
    failed,
    outcome_of,
)
from holdfast.job.result import outcome_of_value
from holdfast.running import current, running_job
from holdfast.running.channel import Link
from holdfast.task import context, middleware
from holdfast.task.task import Task


class Call(NamedTuple):
    """What a job's process is job."""

    id: str
    attempt: int
    queue: str
    task: str
    payload: bytes
    checkpoint: bytes
    directory: str
    log: str = ""  # the file that has what it prints; '': none
    run: bytes = b""  # what only workers are told: see `run`

    def make_current(self, link: Link, app: running_job.App | None = None) -> None:
        """Make `current_job()` return this job."""
        make_current(self, link, directory=self.directory, app=app)


class JobToRun(Protocol):
    """What is known of a job that is to run: a `Call`, or what a claim brought."""

    @property
    def id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def checkpoint(self) -> bytes: ...
    @property
    def run(self) -> bytes: ...


def make_current(job: JobToRun, link: Link, *, directory: str, app: running_job.App | None) -> running_job.RunningJob:
    """Make `current_job()` return this job, in this context."""
    running = running_job.RunningJob(
        link,
        id=job.id,
        attempt=job.attempt,
        task=job.task,
        queue=job.queue,
        checkpoint=job.checkpoint,
        directory=directory,
        app=app,
    )
    current.set_current_job(running)
    context.restore(app, job.run)
    return running


class Interrupted(BaseException):
    """Leaves a task that is to be cancelled, where a worker would stop it."""


_WISHES = (
    Retry,
    Snooze,
    Advance,
    running_job.HandOver,
    running_job.WaitFor,
    Interrupted,
)  # a task goes on later, or is stopped: no error to look at
_RECORDED = (*_WISHES, Exception, SystemExit, asyncio.CancelledError)  # the rest is meant for the process, as Ctrl-C is


class CallEnd(NamedTuple):
    """How a call ended, and what it raised."""

    outcome: Outcome
    error: BaseException | None = None

    @classmethod
    def of_exception(cls, error: BaseException) -> CallEnd:
        return cls(Cancelled() if isinstance(error, Interrupted) else outcome_of_exception(error), error)

    def reraise(self, errors: bool) -> None:
        """Raise what the call raised, if it is an error and `errors` are asked for, or if it is no job's to handle."""
        if self.error is not None and not isinstance(self.error, _WISHES if errors else _RECORDED):
            raise self.error


class LocalCall(NamedTuple):
    """A call that is made in this process, and what it needs for that."""

    job: Call
    task: Task[..., Any] | None
    link: Link

    def call(self) -> CallEnd:
        """Make the call in this thread."""
        if self.task is None:
            return CallEnd(Unknown())
        try:
            return CallEnd(outcome_of_return(self.task, _awaited(self._begin(self.task))))
        except BaseException as error:
            return CallEnd.of_exception(error)

    async def acall(self) -> CallEnd:
        """Make the call from an event loop. A plain function gets a thread, where it may run a loop of its own."""
        if self.task is None or not self.task.is_async:
            return await asyncio.to_thread(self.call)
        work = asyncio.create_task(self._await(self.task))
        try:
            await asyncio.wait({work})
        finally:
            work.cancel()  # it has ended, unless we are cancelled ourselves
        return work.result()

    async def _await(self, task: Task[..., Any]) -> CallEnd:
        try:
            return CallEnd(outcome_of_return(task, await self._begin(task)))
        except BaseException as error:
            return CallEnd.of_exception(error)

    def _begin(self, task: Task[..., Any]) -> Any:
        self.job.make_current(self.link, app_of(task))
        return start_call(task, self.job.payload)


def app_of(task: Task[..., Any]) -> running_job.App | None:
    """Where a job of this task looks up others."""
    app: Any = task.app
    return app if hasattr(app, "get_many") else None


def call_task(task: Task[..., Any], payload: bytes) -> Any:
    """Call the function of a task, also if it is an `async def`, in this thread. Returns its value."""
    return _awaited(start_call(task, payload))


def _awaited(value: Any) -> Any:
    """Run a coroutine. A generator is none, though asyncio of Python 3.11 takes it for one: it is a value."""
    return asyncio.run(value) if isinstance(value, Coroutine) else value


def start_call(task: Task[..., Any], payload: bytes) -> Any:
    """Call the function of a task, with its middleware around it. Returns its value, or its coroutine."""
    args, kwargs = task.signature.decode(payload)
    layers = getattr(task.app, "layers", None)
    around = layers.around(task) if isinstance(layers, middleware.Layers) else []
    if not around:
        return task.function(*args, **kwargs)
    job = current.current_job()
    job.arguments = task.signature.python.bind(*args, **kwargs).arguments
    return middleware.call_within(around, job, task, args, kwargs)


def outcome_of_return(task: Task[..., Any], value: Any) -> Outcome:
    """What it means that a task returned a value. This raises nothing: what is raised would be taken for its error."""
    current.end_current_job()
    return outcome_of_value(task.name, task.signature.result, value)


def outcome_of_exception(error: BaseException) -> Outcome:
    """What it means that an exception left a task."""
    current.end_current_job()
    if isinstance(error, running_job.HandOver):
        soft = current.current_job().stop_reason == "soft_timeout"
        return Release("handed over, at its soft time-out" if soft else "handed over")
    if isinstance(error, running_job.WaitFor):
        return Waits(error.args)
    if isinstance(error, SystemExit):
        # Leaving the process is a crash, whatever the code says: nothing was returned.
        return crash_outcome("the job left its process by sys.exit", exit_code=exit_code(error))
    outcome = outcome_of(error)
    if isinstance(error, Advance) and isinstance(outcome, Advanced):
        try:
            outcome = _carrying(outcome, error)
        except HoldfastError as refused:
            return outcome_of(refused)
    if isinstance(outcome, Advanced) and len(outcome.payload) > MAX_PAYLOAD:  # it may be too long for any message
        words = f"the arguments of {outcome.task} are {len(outcome.payload):,} bytes; {MAX_PAYLOAD:,} are allowed"
        return failed("Refused", words, group="refused", final="refused")
    return outcome


def _carrying(outcome: Advanced, advance: Advance) -> Advanced:
    """The call that a job goes on as carries what is set here and now."""
    call: Any = advance.call
    carried = context.carried_by(call.variant.app)
    return replace(outcome, batch=context.with_carried(outcome.batch, call.chosen.run, carried))


def crash_outcome(
    words: str, *, exit_code: int | None = None, signal: int | None = None, memory: int | None = None
) -> Outcome:
    return Crash(failure.encode(Failure.of_crash(words, exit_code=exit_code, signal=signal, memory=memory)))


def exit_code(error: SystemExit) -> int:
    """The code that a process would end with."""
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1
