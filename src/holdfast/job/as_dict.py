"""A job as a dictionary: the fields that `Job.to_dict()` has and `holdfast show --json` prints, declared once.

Below are those that are not simply an attribute of the job, or of one of its parts.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.job.failure import Failure
from holdfast.job.history import schedule_of
from holdfast.job.parts import Attempt, EnqueuedAs, Note
from holdfast.job.retries import Retries

Record = dict[str, Any]
Read = Callable[[Any], Any]  # of a job


def record_of(job: Any) -> Record:
    """Return the fields of a job, with times as datetimes."""
    return {name: read(job) for name, read in FIELDS.items()}


def to_dict(job: Any) -> Record:
    """Return the fields of a job as JSON has them: texts, numbers, lists and dictionaries."""
    found: Record = msgspec.json.decode(msgspec.json.encode(record_of(job)))
    return found


def decoded(data: bytes | None, codec: str = "json") -> Any:
    """Return the value of stored bytes; bytes that are not JSON as text or in base64."""
    if data is None:
        return None
    try:
        if codec == "json":
            return msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


# Values that have fields of their own


def failure_record(failure: Failure | None) -> Record | None:
    return None if failure is None else msgspec.structs.asdict(failure)


def _progress(job: Any) -> Record | None:
    """Return the progress that a job reported, with rates and the estimated end."""
    progress = job.progress
    if progress is None:
        return None
    return {
        "fraction": progress.fraction,
        "message": progress.message,
        "done": progress.done,
        "total": progress.total,
        "counts": progress.counts,
        "per_second": {name: round(rate, 3) for name, rate in progress.rates.items()},
        "estimated_end": job.estimated_end,
    }


def _retry_policy(retries: Retries | None) -> Record | None:
    if retries is None:
        return None
    return {
        "waits_seconds": [wait.total_seconds() for wait in retries.waits],
        "cap_seconds": retries.cap.total_seconds() if retries.cap else None,
        **{name: getattr(retries, name) for name in ("jitter", "on", "not_on")},
    }


_RUN = ("reason", "task", "queue", "executor", "node", "pid", "queued_at", "claimed_at", "started_at", "ended_at")


def _attempts(attempts: Sequence[Attempt], notes: Sequence[Note]) -> Iterator[Record]:
    retries = [note.at for note in notes if note.what == "retried"]
    before: Attempt | None = None
    for attempt in attempts:
        yield {
            **{name: getattr(attempt, name) for name in ("number", "outcome")},
            "because": _because(attempt, before, retries),
            **{name: getattr(attempt, name) for name in _RUN},
            "failure": failure_record(attempt.failure),
        }
        before = attempt


def _because(attempt: Attempt, before: Attempt | None, retries: Sequence[datetime]) -> str | None:
    """Return why an attempt was made: the outcome of the previous one, or a user's retry; None if no longer stored."""
    if attempt.number == 1:
        return "first"
    if before is None or before.number != attempt.number - 1 or before.ended_at is None:
        return None
    if any(before.ended_at <= at <= attempt.queued_at for at in retries):
        return "retry"
    return before.outcome


def _enqueued_as(job: Any) -> Record:
    origin = job.enqueued_as or EnqueuedAs(job.queue, job.priority, job.task)
    return {"queue": origin.queue, "priority": origin.priority, "task": origin.task}


def _keep_seconds(job: Any) -> float | None:
    return None if isinstance(job.keep, bool) else job.keep.total_seconds()


def _unless_unreadable(name: str) -> Read:
    return lambda job: None if job.unreadable else getattr(job, name)


def _each(name: str) -> Read:
    return lambda job: [msgspec.structs.asdict(each) for each in getattr(job, name)]


def _policy(name: str) -> Read:
    return lambda job: _retry_policy(getattr(job, name))


def _same(*names: str) -> dict[str, Read]:
    return {name: attrgetter(name) for name in names}


# What `list` reads of a job, too.
BRIEF: dict[str, Read] = {
    **_same("id", "task", "queue", "state", "cancelling", "priority", "attempt"),
    **{name: _unless_unreadable(name) for name in ("created_at", "since", "updated_at")},
    **_same("due_at", "claimed_at", "lease_ends_at", "heartbeat_at", "stalled"),
    "progress": _progress,
    **_same("executor", "worker", "node", "pid", "group", "fingerprint", "final_reason"),
    **_same("waits_for", "limits", "throttled_by", "batch", "share", "tags", "scope", "tracked", "deadline"),
    "schedule": lambda job: schedule_of(job.id),
    "unique": attrgetter("unique"),
    "keep": lambda job: bool(job.keep),
    "keep_seconds": _keep_seconds,
    **_same("expires_at", "at_most_once", "unreadable"),
}

FIELDS: dict[str, Read] = {
    **BRIEF,
    "forked_from": lambda job: job.forked_from or None,
    "enqueued_as": _enqueued_as,
    "codec": attrgetter("codec"),
    "arguments": lambda job: decoded(job.payload, job.codec),
    "after": _each("after"),
    "waits": _each("waits"),
    "result": lambda job: decoded(job.result_bytes),
    "checkpoint": lambda job: decoded(job.checkpoint_bytes),
    "why": attrgetter("why"),
    "failure": lambda job: failure_record(job.failure),
    **_same("retries", "retries_used"),
    "retry_policy": _policy("retry_policy"),
    **_same("crashes", "crashes_used", "lost", "lost_used"),
    **{
        name: read
        for budget in ("timeouts", "stalls", "out_of_memory")
        for name, read in (*_same(budget, f"{budget}_used").items(), (f"{budget}_policy", _policy(f"{budget}_policy")))
    },
    "attempts": lambda job: list(_attempts(job.attempts, job.notes)),
    "notes": _each("notes"),
    "history": _each("history"),
    "fields": attrgetter("fields"),
}
