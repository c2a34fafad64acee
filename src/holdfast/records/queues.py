"""Queues: their jobs in each state, and the concurrency they need."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from typing import Any

from holdfast import Holdfast
from holdfast.client.queues import overdue
from holdfast.records.formatting import short_duration
from holdfast.records.table import Field, Output, Record, Table, changed_column, column, done_column, field, list_of
from holdfast.store import Steps, client_method

_NAME = column("queue", str, "name of the queue", attrgetter("name"), whole=True)


def _paused_or_active(record: Record, _: Output) -> str:
    return "paused" if record["paused"] else "active"


def _count(state: str, help: str) -> Field:
    return column(state, int, help, lambda queue: queue.counts[state], right=True)


QUEUES = Table(
    "queue",
    _NAME,
    column("paused", bool, "whether its jobs are held back", title="", show=_paused_or_active, coloured=True),
    column("workers", int, "number of live workers that serve it", right=True, whole=True),
    field("pending", int, "number of jobs that have not ended"),
    _count("scheduled", "number of jobs due later"),
    _count("waiting", "number of jobs waiting for a worker"),
    _count("blocked", "number of jobs waiting for other jobs"),
    _count("throttled", "number of jobs waiting for a limit"),
    _count("running", "number of running jobs"),
    _count("succeeded", "number of retained jobs that succeeded"),
    _count("failed", "number of retained jobs that failed"),
    _count("cancelled", "number of retained jobs that were cancelled"),
)
PAUSED = Table(
    "queue",
    _NAME,
    column("paused", bool, "whether the queue is paused now", title="", show=_paused_or_active, coloured=True),
    changed_column(),
    name="PausedQueue",
)
FORGOTTEN = Table("queue", _NAME, done_column("forgotten"), name="ForgottenQueue")


# The load of queues


def _number(name: str, type: Any, help: str, spell: Callable[[float], str]) -> Field:
    """Declare a number that is rounded for people."""

    def show(record: Record, output: Output) -> Any:
        value = record[name]
        return "" if value is None else spell(value) if output.on_terminal else f"{value:.3f}"

    return column(name, type, help, show=show, right=True)


_per_second = "{:.3g}/s".format

QUEUE_LOADS = Table(
    "queue",
    column("queue", str, "name of the queue", whole=True),
    column("needed", int, "number of jobs that have to run at once", right=True, whole=True),
    column("workers", int, "number of live workers that serve it", right=True, whole=True),
    column("waiting", int, "number of jobs waiting for a worker", right=True),
    column("running", int, "number of running jobs", right=True),
    column("scheduled", int, "number of jobs due later", right=True),
    column("blocked", int, "number of jobs waiting for other jobs", right=True),
    column("throttled", int, "number of jobs waiting for a limit", right=True),
    column(
        "overdue", int, "number of jobs, schedules, limits and deadlines that are due and not processed", right=True
    ),
    _number("oldest", float | None, "seconds that the oldest job has been waiting", short_duration),
    _number("arriving", float, "jobs that arrive per second", _per_second),
    _number("ending", float, "attempts that end per second", _per_second),
    _number("run_time", float | None, "seconds that an attempt takes on average", short_duration),
    column(
        "paused", bool, "whether the queue is paused", title="", coloured=True,
        show=lambda record, _: "paused" if record["paused"] else "",
    ),
    name="QueueLoad",
)  # fmt: skip
LOAD = Table(
    "load",
    field("needed", int, "number of jobs that have to run at once, in all queues together"),
    field("target_seconds", float, "time within which a job should start"),
    field(
        "overdue", int,
        "jobs, leases, schedules, limits and deadlines of the namespace that are due and not processed",
    ),
    field("queues", list_of(QUEUE_LOADS), f"an array; of each queue: {', '.join(QUEUE_LOADS.help)}"),
)  # fmt: skip


def _load_record(app: Holdfast, loads: list[Record], target: timedelta) -> Steps[Record]:
    """Return the load of some queues together."""
    needed, timers = sum(each["needed"] for each in loads), (yield from overdue(app))
    return {"needed": needed, "target_seconds": target.total_seconds(), "overdue": timers, "queues": loads}


load_record, aload_record = client_method(_load_record)
