"""Jobs, queues and workers as plain values: what `--json` prints, and what tables are made from."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.cli import fields
from holdfast.cli.progress import progress_record
from holdfast.cli.usage import usage_record
from holdfast.client.schedules import Schedule
from holdfast.client.timing import Cron, Every
from holdfast.client.workers import Node
from holdfast.job.failure import Failure
from holdfast.job.job import Attempt, Job, Note
from holdfast.job.usage import JobUsage
from holdfast.store.commands import Event, Limit, Queue, Worker
from holdfast.units import utc

Record = dict[str, Any]

_FIRING = re.compile(r"([\w.:-]+)@\d{13}(-now)?", re.ASCII)


def brief_record(job: Job[Any]) -> Record:
    """A job as a list shows it."""
    made = {"schedule": _schedule(job.id), "progress": progress_record(job)}
    if job.unreadable:
        made |= {"created_at": None, "since": None}
    return {name: made[name] if name in made else getattr(job, name) for name in fields.JOB}


def _schedule(id: str) -> str | None:
    """Return the schedule that gave a job its id: that has the time in it."""
    firing = _FIRING.fullmatch(id)
    return firing[1] if firing else None


def full_record(job: Job[Any], usage: JobUsage | None = None) -> Record:
    """All that is known of a job, and what it uses."""
    return {
        **brief_record(job),
        "codec": job.codec,
        "arguments": decoded(job.payload, job.codec),
        "after": [msgspec.structs.asdict(each) for each in job.after],
        "waits": [msgspec.structs.asdict(each) for each in job.waits],
        "result": decoded(job.result_bytes),
        "checkpoint": decoded(job.checkpoint_bytes),
        "usage": usage_record(usage),
        "why": job.why,
        "failure": failure_record(job.failure),
        **{
            name: getattr(job, name)
            for name in ("retries", "retries_used", "crashes", "crashes_used", "lost", "lost_used")
        },
        "attempts": list(_attempts(job.attempts, job.notes)),
        "notes": [{"at": note.at, "what": note.what, "text": note.text} for note in job.notes],
        "fields": job.fields,
    }


def failure_record(failure: Failure | None) -> Record | None:
    return None if failure is None else msgspec.structs.asdict(failure)


def _attempts(attempts: Sequence[Attempt], notes: Sequence[Note]) -> Iterator[Record]:
    retries = [note.at for note in notes if note.what == "retried"]
    before: Attempt | None = None
    for attempt in attempts:
        yield {
            **{name: getattr(attempt, name) for name in ("number", "outcome")},
            "because": _because(attempt, before, retries),
            **{name: getattr(attempt, name) for name in ("reason", "executor", "node", "pid")},
            **{name: getattr(attempt, name) for name in ("queued_at", "claimed_at", "started_at", "ended_at")},
            "failure": failure_record(attempt.failure),
        }
        before = attempt


def _because(attempt: Attempt, before: Attempt | None, retries: Sequence[datetime]) -> str | None:
    """Why an attempt was made: how the one before ended, or a user's wish; None if that is not kept any more."""
    if attempt.number == 1:
        return "first"
    if before is None or before.number != attempt.number - 1 or before.ended_at is None:
        return None
    if any(before.ended_at <= at <= attempt.queued_at for at in retries):
        return "retry"
    return before.outcome


def decoded(data: bytes | None, codec: str = "json") -> Any:
    """Return stored bytes as the value that they stand for; what cannot be read, as text or in base64."""
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


def queue_record(queue: Queue) -> Record:
    return {
        "queue": queue.name,
        "paused": queue.paused,
        "listeners": queue.listeners,
        "pending": queue.pending,
        **queue.counts,
    }


def limit_record(limit: Limit) -> Record:
    period = limit.per / 1000 if limit.per else None
    return {
        "limit": limit.name,
        "slots": limit.slots if limit.is_defined else None,
        "per_seconds": period,
        "held": limit.held,
        "parked": limit.parked,
        "keys": limit.keys,
    }


def schedule_record(schedule: Schedule, now: datetime) -> Record:
    """A schedule, and when it fires next after a time."""
    when = schedule.when
    return {
        "schedule": schedule.name,
        "cron": when.expression if isinstance(when, Cron) else None,
        "tz": when.zone if isinstance(when, Cron) else None,
        "every_seconds": when.interval / 1000 if isinstance(when, Every) else None,
        "offset_seconds": when.offset / 1000 if isinstance(when, Every) else None,
        "task": schedule.task,
        "queue": schedule.queue,
        "paused": schedule.paused,
        "next_at": next(iter(schedule.next(1, after=now)), None),
        "last_at": schedule.last_at,
        "last_job": schedule.last_job or None,
        "fired": schedule.fired,
        "skipped": schedule.skipped,
        "missed": schedule.missed,
        "overlap": schedule.overlap,
    }


def worker_record(worker: Worker) -> Record:
    """A worker, and what it says of itself."""
    return {
        "worker": worker.name,
        "node": worker.node,
        "live": worker.is_live,
        "draining": worker.is_draining,
        "idle": worker.is_idle,
        "allow_exec": worker.allows_exec,
        "seen_at": worker.seen_at,
        "started_at": worker.started_at,
        "pid": worker.about.get("pid"),
        "app": worker.about.get("app"),
        "queues": worker.queues,
        "told": worker.queue_patterns,
        "memory_bytes": worker.memory,
        "cpu_seconds": worker.cpu_seconds,
        "jobs": [msgspec.structs.asdict(held) for held in worker.held],
        "about": worker.about,
    }


def node_record(node: Node) -> Record:
    """A machine, and the sum of its workers."""
    return {
        "node": node.name,
        "live": node.is_live,
        "seen_at": node.seen_at,
        "workers": [worker.name for worker in node.workers],
        "queues": node.queues,
        "memory_bytes": node.memory,
        "cpu_seconds": node.cpu_seconds,
        "jobs": [held.id for held in node.held],
    }


def event_record(event: Event) -> Record:
    at = utc(int(event.id.partition("-")[0]))
    return {"event": event.id, "at": at, "type": event.type, "who": event.who, "jobs": event.jobs}
