"""Limits: how many jobs run at once or start in a period, who uses them, and the shares of a queue."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

from holdfast import Holdfast
from holdfast.client.limits import limit_holders, limit_keys, limit_parked
from holdfast.client.paging import read_first
from holdfast.records.formatting import capacity, duration_text
from holdfast.records.table import Field, Record, Table, Time, changed_column, column, done_column, field, list_of
from holdfast.store import Pages, Steps, client_method
from holdfast.store.commands import LimitKey, LimitStatus

_NAME = column("limit", str, "name of the limit", attrgetter("name"), whole=True)
_SLOTS_HELP = "number of jobs that run at once, or start in a period"
_PERIOD_HELP = "length of the period; null if the limit counts running jobs"


def _source(limit: LimitStatus) -> str | None:
    if not limit.is_defined:
        return None
    return "overridden" if limit.is_overridden else "set" if limit.is_set else "declared"


def _per_seconds(limit: LimitStatus) -> float | None:
    return limit.per / 1000 if limit.per else None


def capacity_text(record: Record) -> str:
    """Return the capacity of a limit: 2 at once, 5 per 1s."""
    return capacity(record["slots"], round((record["per_seconds"] or 0) * 1000))


def declared_text(record: Record) -> str:
    """Return the capacity that an app declares."""
    return capacity(record["declared_slots"], round((record["declared_per_seconds"] or 0) * 1000))


LIMITS = Table(
    "limit",
    _NAME,
    column(
        "slots", int | None, f"{_SLOTS_HELP}; null if the limit is not defined",
        lambda limit: limit.slots if limit.is_defined else None,
        show=lambda record, _: record["slots"] or "not defined", right=True, whole=True,
    ),
    column(
        "per_seconds", float | None, _PERIOD_HELP, _per_seconds, title="PERIOD",
        show=lambda record, _: duration_text(record["per_seconds"]), right=True,
    ),
    column(
        "source", str | None, "declared (by an app), overridden (declared, but set to something else), set, or null if "
        "the limit is not defined", _source, coloured=True,
    ),
    column(
        "declared_slots", int | None, "slots that an app declares; null if none does",
        lambda limit: limit.declared.slots if limit.declared else None, title="DECLARED",
        show=lambda record, _: declared_text(record) if record["source"] == "overridden" else "",
    ),
    field(
        "declared_per_seconds", float | None, "period that an app declares",
        lambda limit: limit.declared.per / 1000 if limit.declared and limit.declared.per else None,
    ),
    column(
        "expires_at", Time | None, "when what is set no longer applies; null if it stays", title="EXPIRES",
        right=True,
    ),
    column("held", int, "number of jobs that hold a slot, of all keys", right=True),
    column("parked", int, "number of jobs that wait for a slot, of all keys", right=True),
    column("keys", int, "number of keys with waiting jobs; jobs without a key count as one key", right=True),
)  # fmt: skip


def _readable(name: str, type: Any, help: str) -> Field:
    """Declare a field of a job that is null if its record cannot be read."""
    return field(name, type | None, help, lambda job: None if job.unreadable else getattr(job, name))


_JOB = (
    field("id", str, "id of the job"),
    _readable("task", str, "name of the task"),
    _readable("queue", str, "name of the queue"),
)
_SINCE = _readable("since", Time, "when it entered its state")
KEYS = Table(
    "key",
    field("key", str | None, "the key; null: jobs without a key"),
    field("held", int, "number of jobs that hold a slot"),
    field("parked", int, "number of jobs that wait for a slot"),
    name="LimitKey",
)
HOLDERS = Table("holder", *_JOB, _readable("executor", str, "executor that runs it"), _SINCE, name="LimitHolder")
PARKED = Table("waiting job", *_JOB, _SINCE, name="ParkedJob")
LIMIT_DETAILS = LIMITS.extended(
    field("revision", int | None, "release that declared it; an older one does not change it"),
    field("usage", list_of(KEYS), "use of each key; of each: key (null: jobs without a key), held and parked"),
    field(
        "holders", list_of(HOLDERS), "jobs that hold a slot of the limit as it is given, with or without a key; of "
        "each: id, task, queue, executor, since",
    ),
    field(
        "waiting", list_of(PARKED),
        "jobs that wait for such a slot, by queue, then as they will start; of each: id, task, queue, since",
    ),
    name="LimitDetails",
)  # fmt: skip
LIMIT_SET = Table(
    "limit",
    _NAME,
    column("slots", int, _SLOTS_HELP, title="", show=lambda record, _: capacity_text(record)),
    field("per_seconds", float | None, _PERIOD_HELP, _per_seconds),
    field("expires_at", Time | None, "when it no longer applies; null if it stays"),
    field("overrides", bool, "whether it overrides what an app declares", attrgetter("is_overridden")),
    changed_column(),
    name="ChangedLimit",
)
SLOT_RELEASED = Table(
    "slot",
    column("limit", str, "the limit, with its key", whole=True),
    column("id", str, "id of the job", whole=True),
    done_column("released"),
    name="ReleasedSlot",
)
LIMIT_REMOVED = Table("limit", _NAME, done_column("removed"), name="RemovedLimit")
SHARE_SET = Table(
    "share",
    column("queue", str, "name of the queue", whole=True),
    column("share", str, "key of the share", whole=True),
    column("weight", int, "turns of the share for each turn of another", right=True),
    changed_column(),
)


class LimitDetails(NamedTuple):
    record: Record
    has_more: bool  # keys, holders or waiting jobs


def _limit_details(app: Holdfast, status: LimitStatus, name: str, limit: int) -> Steps[LimitDetails]:
    """Return who uses a limit; `name` may have a key. `limit` is the maximum of keys, holders and waiting jobs."""
    used_keys: Pages[LimitKey] = limit_keys(app, status.name, limit=limit + 1)
    keys = (yield from read_first(used_keys, limit + 1)) if name == status.name else []
    holders = yield from read_first(limit_holders(app, name), limit + 1)
    waiting = yield from read_first(limit_parked(app, name), limit + 1)
    record = LIMIT_DETAILS.record(
        status,
        revision=status.revision if status.declared else None,
        usage=KEYS.records(keys[:limit]),
        holders=HOLDERS.records(holders[:limit]),
        waiting=PARKED.records(waiting[:limit]),
    )
    return LimitDetails(record, any(len(each) > limit for each in (keys, holders, waiting)))


limit_details, alimit_details = client_method(_limit_details)
