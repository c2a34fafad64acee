"""How an attempt ended: what a task raises to say so, and the values that it becomes.

    return ─▶ Succeed       any exception, Retry, Fail ─▶ Error       Snooze ─▶ Snoozed       Advance ─▶ Advanced

Only `Error` charges the job's retries, and only `Crash` its crashes. The rest charge nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid
from holdfast.job import failure
from holdfast.job.failure import Failure
from holdfast.names import check_name
from holdfast.units import Duration, milliseconds

# Whether an error is final, however many retries are left: the task declared so (true), or its outcome was refused.
Final = bool | Literal["refused"]

# The groups of jobs whose work is done, and cannot be recorded: a retry would do it again. `retry.lua` has them too.
NOT_STORED, TOO_BIG, STEP_NOT_KEPT = "result-not-stored", "result-too-big", "step-not-kept"
WORK_DONE = frozenset({NOT_STORED, TOO_BIG, STEP_NOT_KEPT})


class Retry(Exception):
    """Raise it in a task to fail this attempt and have another, after `delay` or the usual wait."""

    def __init__(self, delay: Duration | None = None, message: str = "") -> None:
        super().__init__(message)
        self.delay = None if delay is None else milliseconds(delay, what="the delay of Retry", most=MAX_DURATION)


class Fail(Exception):
    """Raise it in a task to fail the job for good, however many retries are left."""

    def __init__(self, message: str = "", group: str | None = None) -> None:
        super().__init__(message)
        self.group = None if group is None else check_name(group, "the group of Fail")


class Bound(Protocol):
    """A call that is to be made: a `BoundCall`."""

    @property
    def name(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def chosen(self) -> Any: ...


class Advance(Exception):
    """Raise it in a task to have its job go on as another call, with the options of that: the next stage of a pipeline.

    raise Advance(upload.bind(path))
    raise Advance(upload.bind(path).options(delay="1m", after=[thumbnails]))

    The job keeps its id and history; id, unique and keep of the call do not count.
    """

    def __init__(self, call: Bound) -> None:
        if not hasattr(call, "payload"):
            raise Invalid(f"{call!r} is no call that a job can go on as; bind a task to its arguments: task.bind(...)")
        super().__init__(f"go on as {call.name}")
        self.call = call


class Snooze(Exception):
    """Raise it in a task to run again after `delay`, as if this attempt had not been."""

    def __init__(self, delay: Duration) -> None:
        super().__init__()
        self.delay = milliseconds(delay, what="the delay of Snooze", most=MAX_DURATION)


@dataclass(frozen=True, slots=True)
class Succeed:
    """It returned. A `note` goes into the job's history: the result does not fit its annotation."""

    result: bytes
    note: str = ""


@dataclass(frozen=True, slots=True)
class Error:
    """It raised. `delay` stands in for the usual wait, in milliseconds; what is `final` allows no retry."""

    error: bytes
    group: str
    final: Final = False
    delay: int | None = None

    @property
    def is_of_work_done(self) -> bool:
        """Whether the task has done its work: only that cannot be recorded."""
        return bool(self.final) and self.group in WORK_DONE


@dataclass(frozen=True, slots=True)
class Crash:
    """Its process died."""

    error: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """It was handed back, for another worker to run, in `delay` milliseconds."""

    reason: str = ""
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Advanced:
    """It goes on as another task, with other arguments, in another queue; `batch` has its options."""

    task: str
    batch: dict[str, Any]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Waits:
    """It goes on when other jobs have ended; until then it is blocked, and holds no slot."""

    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """No task of its name is known here; another worker may know it."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """It asked to run again in `delay` milliseconds."""

    delay: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It was cancelled, and stopped."""


Outcome = Advanced | Waits | Succeed | Error | Crash | Release | Unknown | Snoozed | Cancelled


def outcome_of(exception: BaseException) -> Outcome:
    """Return what an exception that left a task means for its job.

    `raise Retry() from error` and `raise Fail() from error` count in the group of that error.
    """
    if isinstance(exception, Snooze):
        return Snoozed(exception.delay)
    if isinstance(exception, Advance):
        call = exception.call
        return Advanced(call.name, call.chosen.stage(), call.payload)
    group = exception.group if isinstance(exception, Fail) else None
    if group is None and isinstance(exception, Retry | Fail):
        group = failure.group_of(exception.__cause__ or exception)
    described = failure.describe(exception, group=group)
    return Error(
        error=failure.encode(described),
        group=described.group,
        final="refused" if group == STEP_NOT_KEPT else isinstance(exception, Fail),
        delay=exception.delay if isinstance(exception, Retry) else None,
    )


def failed(kind: str, message: str, *, group: str, final: Final = False, traceback: str = "") -> Outcome:
    """An error that no exception of the task describes."""
    described = Failure(type=kind, message=message, traceback=traceback, group=group, fingerprint=group)
    return Error(failure.encode(described), group, final=final)
