"""Outcomes: how an attempt ended, and the exceptions with which a task decides that.

    return ─▶ Succeed       Retry, Fail, any other exception ─▶ Error       Snooze ─▶ Snoozed       Advance ─▶ Advanced

Only an `Error` uses up a retry, and only a `Crash` uses up an allowed crash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid
from holdfast.job import failure
from holdfast.job.failure import Failure
from holdfast.job.retries import NO_POLICY, RetryPolicy, RetryWait
from holdfast.names import check_name
from holdfast.units import Duration, milliseconds

# Whether an error is final, whatever retries are left: the task raised Fail (True), its outcome was refused, or its
# retry policy excludes the exception.
IsFinal = bool | Literal["refused", "not_retryable"]

# Failure groups of jobs that did their work but could not store its result: a retry would repeat it. `retry.lua` has
# them as well.
NOT_STORED, TOO_BIG, STEP_NOT_KEPT = "result-not-stored", "result-too-big", "step-not-kept"
WORK_DONE = frozenset({NOT_STORED, TOO_BIG, STEP_NOT_KEPT})


class Retry(Exception):
    """Raise this in a task to fail the attempt and retry the job, after `delay` or the backoff."""

    def __init__(self, delay: Duration | None = None, message: str = "") -> None:
        super().__init__(message)
        self.delay = None if delay is None else milliseconds(delay, what="the delay of Retry", maximum=MAX_DURATION)


class Fail(Exception):
    """Raise this in a task to fail the job for good, whatever retries are left."""

    def __init__(self, message: str = "", group: str | None = None) -> None:
        super().__init__(message)
        self.group = None if group is None else check_name(group, "the group of Fail")


class Bound(Protocol):
    """A `BoundCall`."""

    @property
    def name(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def effective_options(self) -> Any: ...


class Advance(Exception):
    """Raise this in a task to continue its job with another call and its options: the next stage of a pipeline.

    raise Advance(upload.bind(path))
    raise Advance(upload.bind(path).options(delay="1m", after=[thumbnails]))

    The job keeps its id and history; the options id, unique and keep of the call are ignored.
    """

    def __init__(self, call: Bound) -> None:
        if not hasattr(call, "payload"):
            raise Invalid(f"expected a bound call, as task.bind(...), got {call!r}")
        super().__init__(f"continue as {call.name}")
        self.call = call


class Snooze(Exception):
    """Raise this in a task to run it again after `delay`. It counts neither as a retry nor as an error."""

    def __init__(self, delay: Duration) -> None:
        super().__init__()
        self.delay = milliseconds(delay, what="the delay of Snooze", maximum=MAX_DURATION)


@dataclass(frozen=True, slots=True)
class Succeed:
    """The task returned. If the result does not fit its annotation, the job's history gets a `note`."""

    result: bytes
    note: str = ""


@dataclass(frozen=True, slots=True)
class Error:
    """The task raised. A `final` error is not retried, perhaps for a `reason`.

    `delay`, in milliseconds, is the time until the retry; without it, that follows from `wait` and the backoff.
    """

    error: bytes
    group: str
    final: IsFinal = False
    delay: int | None = None
    reason: str = ""
    wait: RetryWait | None = None

    @property
    def work_is_done(self) -> bool:
        """Whether the task did its work, and only storing its result failed."""
        return bool(self.final) and self.group in WORK_DONE

    def with_wait(self, policy: RetryPolicy | None, draw: float) -> Error:
        """Return the error with the wait of a retry policy; `draw` is a random number from 0 to 1."""
        if self.final or self.delay is not None:
            return self
        return replace(self, wait=(policy or NO_POLICY).wait(draw))


@dataclass(frozen=True, slots=True)
class Crash:
    """The process of the task crashed."""

    error: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """The job is requeued for another worker, in `delay` milliseconds."""

    reason: str = ""
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Advanced:
    """The job continues with another task; `batch` has its options."""

    task: str
    batch: dict[str, Any]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Blocked:
    """The job waits until other jobs have ended, and holds no slot meanwhile."""

    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """This worker does not know the task; another one may."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The task asked to run again in `delay` milliseconds."""

    delay: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task was stopped because its job was cancelled."""


Outcome = Advanced | Blocked | Succeed | Error | Crash | Release | Unknown | Snoozed | Cancelled


def outcome_of(exception: BaseException, policy: RetryPolicy | None = None) -> Outcome:
    """Return the outcome of a task that raised an exception. The retry policy may make it final, unless it is a Retry.

    The failure group of `raise Retry() from error` and of `raise Fail() from error` is that of the error.
    """
    if isinstance(exception, Snooze):
        return Snoozed(exception.delay)
    if isinstance(exception, Advance):
        call = exception.call
        return Advanced(call.name, call.effective_options.stage_arguments(), call.payload)
    group = exception.group if isinstance(exception, Fail) else None
    if group is None and isinstance(exception, Retry | Fail):
        group = failure.group_of(exception.__cause__ or exception)
    described = failure.describe(exception, group=group)
    error = Error(failure.encode(described), described.group)
    if isinstance(exception, Fail):
        return replace(error, final="refused" if group == STEP_NOT_KEPT else True)
    if isinstance(exception, Retry):
        return replace(error, delay=exception.delay)
    if policy and (reason := policy.why_final(exception)):
        return replace(error, final="not_retryable", reason=reason)
    return error


def failed(kind: str, message: str, *, group: str, final: IsFinal = False, traceback: str = "") -> Outcome:
    """Return the outcome of an error that is not an exception of the task."""
    described = Failure(type=kind, message=message, traceback=traceback, group=group)
    return Error(failure.encode(described), group, final=final)
