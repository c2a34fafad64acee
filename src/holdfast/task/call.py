"""Calls a task: in a job process, in an executor, in a test, or inline in the program that enqueued it.

claimed job ──▶ Call ──▶ function of the task ──▶ outcome
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
from holdfast.job.marks import Marks
from holdfast.job.options import RunOptions
from holdfast.job.outcome import (
    Advance,
    Advanced,
    Blocked,
    Cancelled,
    Crash,
    Outcome,
    Release,
    Retry,
    Snooze,
    Unknown,
    failed,
    outcome_of,
)
from holdfast.job.result import outcome_of_value
from holdfast.job.retries import RetryPolicy
from holdfast.running import current, running_job
from holdfast.running.link import Link
from holdfast.task import context, middleware
from holdfast.task.scope import restore_scope
from holdfast.task.task import Task


class Call(NamedTuple):
    """A claimed job, as it is sent to the process that runs it."""

    id: str
    attempt: int
    queue: str
    task: str
    payload: bytes
    checkpoint: bytes
    directory: str
    log: str = ""  # the file that its output is written to; "": none
    run: bytes = b""  # options that only workers read: see `RunOptions`
    in_directory: bool = False  # whether its process runs in that directory
    marks: str = ""  # its tags, scope and batch, as its record has them

    @property
    def retry_policy(self) -> RetryPolicy | None:
        return self.policy_for("")

    def policy_for(self, group: str) -> RetryPolicy | None:
        """Return the policy that decides about the wait after an error of this group."""
        return RunOptions.decode(self.run).policy_for(group)

    def make_current(self, link: Link, app: running_job.App | None = None) -> None:
        """Make `current_job()` return this job."""
        make_current(self, link, directory=self.directory, app=app)


class JobToRun(Protocol):
    """A job that is about to run: a `Call`, or a claimed job."""

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
    @property
    def marks(self) -> str: ...


def make_current(job: JobToRun, link: Link, *, directory: str, app: running_job.App | None) -> running_job.RunningJob:
    """Make `current_job()` return this job, in this context."""
    marks = Marks.read(job.marks)
    running = running_job.RunningJob(
        link,
        id=job.id,
        attempt=job.attempt,
        task=job.task,
        queue=job.queue,
        checkpoint=job.checkpoint,
        directory=directory,
        app=app,
        scope=marks.scope,
        batch=marks.batch,
    )
    current.set_current_job(running)
    context.restore(app, job.run)
    restore_scope(app, marks.scope)
    return running


class Interrupted(BaseException):
    """Raised in a task to cancel it, in places where no worker can stop its process."""


_REQUESTS = (
    Retry,
    Snooze,
    Advance,
    running_job.YieldNow,
    running_job.WaitFor,
    Interrupted,
)  # raised to continue later or to stop: not errors
_RECORDED = (*_REQUESTS, Exception, SystemExit, asyncio.CancelledError)  # others are for the process, such as Ctrl-C


class CallEnd(NamedTuple):
    """The outcome of a call, and the exception that it raised."""

    outcome: Outcome
    error: BaseException | None = None

    @classmethod
    def of_exception(cls, error: BaseException, policy: RetryPolicy | None) -> CallEnd:
        return cls(Cancelled() if isinstance(error, Interrupted) else outcome_of_exception(error, policy), error)

    def reraise(self, errors: bool) -> None:
        """Re-raise an exception that is for the process, such as KeyboardInterrupt; with `errors`, any error."""
        if self.error is not None and not isinstance(self.error, _REQUESTS if errors else _RECORDED):
            raise self.error


class LocalCall(NamedTuple):
    """A call that runs in this process."""

    job: Call
    task: Task[..., Any] | None
    link: Link

    def call(self) -> CallEnd:
        """Run the call in this thread."""
        if self.task is None:
            return CallEnd(Unknown())
        try:
            return CallEnd(outcome_of_return(self.task, _run_if_coroutine(self._begin(self.task))))
        except BaseException as error:
            return CallEnd.of_exception(error, self.job.retry_policy)

    async def acall(self) -> CallEnd:
        """Run the call from an event loop. A plain function runs in a thread, where it may start a loop of its own."""
        if self.task is None or not self.task.is_async:
            return await asyncio.to_thread(self.call)
        work = asyncio.create_task(self._await(self.task))
        try:
            await asyncio.wait({work})
        finally:
            work.cancel()  # no effect unless this coroutine was cancelled
        return work.result()

    async def _await(self, task: Task[..., Any]) -> CallEnd:
        try:
            return CallEnd(outcome_of_return(task, await self._begin(task)))
        except BaseException as error:
            return CallEnd.of_exception(error, self.job.retry_policy)

    def _begin(self, task: Task[..., Any]) -> Any:
        self.job.make_current(self.link, app_of(task))
        return start_call(task, self.job.payload)


def app_of(task: Task[..., Any]) -> running_job.App | None:
    """Return the app in which a job of this task looks up other jobs."""
    app: Any = task.app
    return app if hasattr(app, "get_many") else None


def call_task(task: Task[..., Any], payload: bytes) -> Any:
    """Call the function of a task, also an `async def`, in this thread, and return its value."""
    return _run_if_coroutine(start_call(task, payload))


def _run_if_coroutine(value: Any) -> Any:
    """Run a coroutine; return any other value. A generator is a value, although asyncio of Python 3.11 would run it."""
    return asyncio.run(value) if isinstance(value, Coroutine) else value


def start_call(task: Task[..., Any], payload: bytes) -> Any:
    """Call the function of a task inside its middleware, and return its value, or its coroutine."""
    args, kwargs = task.signature.decode(payload)
    stack = getattr(task.app, "middleware_stack", None)
    layers = stack.around(task) if isinstance(stack, middleware.MiddlewareStack) else []
    if not layers:
        return task.function(*args, **kwargs)
    job = current.current_job()
    job.arguments = task.signature.python.bind(*args, **kwargs).arguments
    return middleware.call_within(layers, job, task, args, kwargs)


def outcome_of_return(task: Task[..., Any], value: Any) -> Outcome:
    """Return the outcome of a task that returned a value. Never raise: that would count as an error of the task."""
    current.end_current_job()
    return outcome_of_value(task.name, task.signature.result, value)


def outcome_of_exception(error: BaseException, policy: RetryPolicy | None) -> Outcome:
    """Return the outcome of a task that raised an exception, by the retry policy of its job."""
    current.end_current_job()
    if isinstance(error, running_job.YieldNow):
        soft = current.current_job().stop_reason == "soft_timeout"
        return Release("yielded at its soft timeout" if soft else "yielded")
    if isinstance(error, running_job.WaitFor):
        return Blocked(error.args)
    if isinstance(error, SystemExit):
        # sys.exit is a crash, whatever the exit code: nothing was returned.
        return crash_outcome("the task called sys.exit", exit_code=exit_code(error))
    outcome = outcome_of(error, policy)
    if isinstance(error, Advance) and isinstance(outcome, Advanced):
        try:
            outcome = _with_carried_context(outcome, error)
        except HoldfastError as refused:
            return outcome_of(refused)
    if isinstance(outcome, Advanced) and len(outcome.payload) > MAX_PAYLOAD:  # too big for a message to the executor
        message = f"the arguments of {outcome.task} are {len(outcome.payload)} bytes (limit {MAX_PAYLOAD})"
        return failed("Refused", message, group="refused", final="refused")
    return outcome


def _with_carried_context(outcome: Advanced, advance: Advance) -> Advanced:
    """Add the context that is set now to the call that a job continues with; keep its tags unless the call has some."""
    call: Any = advance.call
    carried = context.carried_values(call.variant.app)
    batch = context.with_carried(outcome.batch, call.effective_options.run, carried)
    if "tags" in batch and "tags" not in call.variant.given:  # those of the app and the task
        batch = {**batch, "keep_tags": True}
    return replace(outcome, batch=batch)


def crash_outcome(
    message: str, *, exit_code: int | None = None, signal: int | None = None, memory: int | None = None
) -> Outcome:
    return Crash(failure.encode(Failure.of_crash(message, exit_code=exit_code, signal=signal, memory=memory)))


def exit_code(error: SystemExit) -> int:
    """Return the exit code of a process that ends with this exception."""
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1
