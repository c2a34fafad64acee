"""Schedules: when each fires, and what it enqueues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from holdfast import Holdfast
from holdfast.client.jobs import get_many
from holdfast.client.schedules import Schedule
from holdfast.client.timing import Cron, Every, When, past_firings
from holdfast.constants import MAX_BATCH
from holdfast.errors import ScheduleNotFound
from holdfast.job.as_dict import decoded
from holdfast.job.job import Job
from holdfast.records.formatting import duration_text
from holdfast.records.table import Output, Record, Table, Time, column, done_column, field, list_of
from holdfast.store import Steps, client_method, commands, in_thread


def when_text(record: Record, _: Output | None = None) -> str:
    """Return when a schedule fires: 0 2 * * * Europe/Berlin, every 30s."""
    if record["cron"]:
        return f"{record['cron']} {record['tz']}"
    if record["every_seconds"] is None:
        return "a calendar that this release does not know"
    offset = f", offset {duration_text(record['offset_seconds'])}" if record["offset_seconds"] else ""
    return f"every {duration_text(record['every_seconds'])}{offset}"


def _timing_text(when: When | None) -> str:
    read = {
        "cron": getattr(when, "expression", None), "tz": getattr(when, "zone", None),
        "every_seconds": when.interval / 1000 if isinstance(when, Every) else None,
        "offset_seconds": when.offset / 1000 if isinstance(when, Every) else None,
    }  # fmt: skip
    return when_text(read)


def _timing(kind: type, name: str, scale: int = 0) -> Any:
    """Return a reader of a part of the timing, which is null for timings of another kind."""

    def read(schedule: Schedule) -> Any:
        value = getattr(schedule.when, name) if isinstance(schedule.when, kind) else None
        return value / scale if scale and value is not None else value

    return read


_NAME = column("schedule", str, "name of the schedule", attrgetter("name"), whole=True)

SCHEDULES = Table(
    "schedule",
    _NAME,
    column(
        "cron", str | None, "cron expression; null for an interval", _timing(Cron, "expression"), title="WHEN",
        show=when_text,
    ),
    field("tz", str | None, "time zone of the cron expression", _timing(Cron, "zone")),
    field("every_seconds", float | None, "interval; null for a cron expression", _timing(Every, "interval", 1000)),
    field(
        "offset_seconds", float | None, "offset of the intervals, counted from 1970-01-01 in UTC",
        _timing(Every, "offset", 1000),
    ),
    column("task", str, "name of the task"),
    column("queue", str, "name of the queue"),
    column(
        "next_at", Time | None, "when it fires next, without jitter; null while it is paused", title="NEXT",
        right=True,
    ),
    column("last_at", Time | None, "when it fired last", title="LAST", right=True),
    column(
        "paused", bool, "whether it is paused", title="STATE", coloured=True, whole=True,
        show=lambda record, _: "paused" if record["paused"] else "active",
    ),
    column(
        "source", str, "declared (by a task), overridden (declared, but changed), or set",
        lambda schedule: "overridden" if schedule.is_overridden else "declared" if schedule.is_declared else "set",
        coloured=True, whole=True,
    ),
    field("last_job", str | None, "id of the last job", lambda schedule: schedule.last_job or None),
    field("fired", int, "number of jobs it has enqueued"),
    field("skipped", int, "number of times it did not fire: missed, or the last job had not ended"),
    field("missed", str, "which missed times are made up for: one, all or skip"),
    field("overlap", str, "if the last job has not ended: allow or skip"),
)  # fmt: skip
FIRINGS = Table(
    "firing",
    field("at", Time, "when it fires"),
    field("local", Time, "the same in the time zone of the schedule"),
)
PAST_FIRINGS = Table(
    "past firing",
    field("at", Time, "when it was due"),
    field("local", Time, "the same in the time zone of the schedule"),
    field("id", str, "id of its job"),
    field(
        "state", str | None, "state of that job; null: there is none, because the schedule was paused, skipped this "
        "time or did not exist yet, or because the record of the job was removed",
    ),
)  # fmt: skip
SCHEDULE_DETAILS = SCHEDULES.extended(
    field("backlog", int, "with `missed` all: maximum number of missed times that are made up for"),
    field("late_seconds", float, "with `missed` skip: how late it may still fire"),
    field("jitter_seconds", float, "maximum random delay of each job"),
    field(
        "revision", int | None, "release that declared it; an older one does not change it; null if it is not declared"
    ),
    field("declared_when", str | None, "when it fires as it is declared, if it is overridden; else null"),
    field("arguments", Any, "arguments of the job, by name"),
    field("options", dict[str, Any], "options of the job: priority, retries, limits ..."),
    field("firings", list_of(FIRINGS), "next times; of each: at, and local (in its time zone)"),
    field(
        "history",
        list_of(PAST_FIRINGS),
        "past times, the latest first; of each: at, local, id (of its job), state (of that job; null: there is none)",
    ),
    name="ScheduleDetails",
)
LISTED_SCHEDULES = SCHEDULES.extended(
    field(
        "history",
        list_of(PAST_FIRINGS),
        "past times, the latest first, as many as were asked for; of each: at, local, id (of its job), state (of that "
        "job; null: there is none)",
    ),
    name="ListedSchedule",
)
TRIGGERED = Table("schedule", _NAME, field("id", str, "id of the job"), name="TriggeredSchedule")
REMOVED = Table("schedule", _NAME, done_column("removed"), name="RemovedSchedule")


def schedule_record(schedule: Schedule, now: datetime) -> Record:
    return SCHEDULES.record(schedule, next_at=next(iter(schedule.next(1, after=now)), None))


def _schedule_details(app: Holdfast, schedule: Schedule, now: datetime, limit: int) -> Steps[Record]:
    """Return everything about a schedule, with up to `limit` next and as many past times.

    Raises:
        ScheduleNotFound: it was removed meanwhile.
    """
    found = yield commands.schedules([schedule.name])
    if not found:
        raise ScheduleNotFound(f"schedule {schedule.name} does not exist")
    declared = _timing_text(schedule.declared_when) if schedule.is_overridden else None
    firings, past = yield in_thread(partial(_firings, schedule, now, limit))
    jobs = (yield from get_many(app, [each["id"] for each in past])) if past else []
    history = [each | {"state": _state(job)} for each, job in zip(past, jobs, strict=True)]
    return {
        **schedule_record(schedule, now), **_details(found[0], declared), "firings": firings, "history": history,
    }  # fmt: skip


schedule_details, aschedule_details = client_method(_schedule_details)


def _schedules_with_history(_: Holdfast, found: Sequence[Schedule], limit: int) -> Steps[list[Record]]:
    """Return schedules with their next time, and up to `limit` past times."""
    records, past = yield in_thread(partial(_records_and_past, found, limit))
    ids = [each["id"] for firings in past for each in firings]
    states: dict[str, str] = {}
    for start in range(0, len(ids), MAX_BATCH):
        part = ids[start : start + MAX_BATCH]
        rows = yield commands.get(part, brief=True)
        states |= {id: row["state"] for id, row in zip(part, rows, strict=True) if row}
    return [
        record | {"history": [each | {"state": states.get(each["id"])} for each in firings]}
        for record, firings in zip(records, past, strict=True)
    ]


schedules_with_history, aschedules_with_history = client_method(_schedules_with_history)


def _records_and_past(found: Sequence[Schedule], limit: int) -> tuple[list[Record], list[list[Record]]]:
    return (
        [schedule_record(each, each.looked_at) for each in found],
        [_past(each, each.looked_at, limit) if limit else [] for each in found],
    )


def _details(fields: dict[str, Any], declared_when: str | None) -> Record:
    """Return the fields that a list does not show."""
    batch = msgspec.json.decode(fields["batch"])
    codec = batch.pop("codec", "json")
    revision = fields.get("default:revision") or fields.get("revision")
    batch |= msgspec.json.decode(batch.pop("run", "{}"))  # the options that only workers read, which are stored as text
    return {
        "backlog": int(fields["backlog"]),
        "late_seconds": int(fields["late"]) / 1000,
        "jitter_seconds": int(fields["jitter"]) / 1000,
        "revision": int(revision) if revision else None,
        "declared_when": declared_when,
        "arguments": decoded(fields["payload"], codec),
        "options": {name: value for name, value in batch.items() if name not in ("task", "queue")},
    }


def _state(job: Job[Any] | None) -> str | None:
    return None if job is None else "unreadable" if job.unreadable else job.state


def _firings(schedule: Schedule, now: datetime, limit: int) -> tuple[list[Record], list[Record]]:
    """Return the next times, and the past ones with the ids of their jobs."""
    zone = _zone(schedule)
    following = [{"at": at, "local": at.astimezone(zone)} for at in schedule.next(limit, after=now)]
    return following, _past(schedule, now, limit)


def _zone(schedule: Schedule) -> ZoneInfo:
    return ZoneInfo(getattr(schedule.when, "zone", "UTC"))


def _past(schedule: Schedule, now: datetime, limit: int) -> list[Record]:
    zone = _zone(schedule)
    return [
        {"at": at, "local": at.astimezone(zone), "id": f"{schedule.name}@{at.timestamp() * 1000:.0f}"}
        for at in (past_firings(schedule.when, now, limit) if schedule.when else ())
    ]
