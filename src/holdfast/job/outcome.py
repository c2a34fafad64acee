"""How an attempt ended: the exceptions that a task raises for that, and the values that they become.

    return ─▶ Succeed       any exception, Retry, Fail ─▶ Error       Snooze ─▶ Snoozed       Advance ─▶ Advanced

Only `Error` counts as a retry, and only `Crash` as a crash. The others count as neither.
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

# Whether an error is final, regardless of retries: the task declared it (true), or its outcome was refused.
Final = bool | Literal["refused"]

# Groups of jobs that did their work but could not record it: a retry would repeat it. `retry.lua` has them too.
NOT_STORED, TOO_BIG, STEP_NOT_KEPT = "result-not-stored", "result-too-big", "step-not-kept"
WORK_DONE = frozenset({NOT_STORED, TOO_BIG, STEP_NOT_KEPT})


class Retry(Exception):
    """Raise it in a task to fail this attempt and retry, after `delay` or the backoff."""

    def __init__(self, delay: Duration | None = None, message: str = "") -> None:
        super().__init__(message)
        self.delay = None if delay is None else milliseconds(delay, what="the delay of Retry", most=MAX_DURATION)


class Fail(Exception):
    """Raise it in a task to fail the job for good, regardless of retries."""

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
    def chosen(self) -> Any: ...


class Advance(Exception):
    """Raise it in a task to continue its job as another call, with its options: the next stage of a pipeline.

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
    """Raise it in a task to run it again after `delay`. Neither a retry nor an error is counted."""

    def __init__(self, delay: Duration) -> None:
        super().__init__()
        self.delay = milliseconds(delay, what="the delay of Snooze", most=MAX_DURATION)


@dataclass(frozen=True, slots=True)
class Succeed:
    """The task returned. The `note`, if any, goes into the job's history: the result does not fit its annotation."""

    result: bytes
    note: str = ""


@dataclass(frozen=True, slots=True)
class Error:
    """The task raised. `delay` replaces the backoff, in milliseconds; a `final` error is not retried."""

    error: bytes
    group: str
    final: Final = False
    delay: int | None = None

    @property
    def is_of_work_done(self) -> bool:
        """Whether the task has done its work and only the record of that failed."""
        return bool(self.final) and self.group in WORK_DONE


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
    """The job continues as another task; `batch` has its options."""

    task: str
    batch: dict[str, Any]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Waits:
    """The job is blocked until other jobs have ended, and holds no slot meanwhile."""

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


Outcome = Advanced | Waits | Succeed | Error | Crash | Release | Unknown | Snoozed | Cancelled


def outcome_of(exception: BaseException) -> Outcome:
    """Return the outcome of a task that raised an exception.

    `raise Retry() from error` and `raise Fail() from error` belong to the group of that error.
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
    """Return an error that has no exception of the task."""
    described = Failure(type=kind, message=message, traceback=traceback, group=group, fingerprint=group)
    return Error(failure.encode(described), group, final=final)
