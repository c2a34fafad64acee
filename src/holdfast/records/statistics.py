"""Statistics: how long jobs wait and run, with histograms and quantiles; failures and retries; series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from holdfast import Holdfast
from holdfast.client.statistics import Statistics, Times, stats, stats_by_queue
from holdfast.records.table import Field, Output, Record, Table, Time, column, dict_of, field, list_of, optional
from holdfast.store import Steps, client_method
from holdfast.units import humanize

QUANTILES = (0.5, 0.95, 0.99)
_TIMES_HELP = (
    "count, mean, stdev (seconds), quantiles (0.5, 0.95, 0.99: value, and the bounds between which the exact one lies),"
    " histogram (an array; of each bucket: lower, upper, count)"
)

BUCKETS = Table(
    "bucket",
    field("lower", float, "the shortest time of the bucket, in seconds"),
    field("upper", float | None, "where the next bucket begins; null: no limit"),
    field("count", int, "number of times"),
)
QUANTILE = Table(
    "quantile",
    field("value", float, "the time in seconds that this fraction of all times does not exceed, as an estimate"),
    field("lower", float, "the exact value is at least this"),
    field("upper", float | None, "the exact value is less than this; null: no limit"),
)
TIMES = Table(
    "times",
    field("count", int, "number of times"),
    field("mean", float | None, "their mean in seconds"),
    field("stdev", float | None, "their standard deviation in seconds; null for fewer than two"),
    field(
        "quantiles", dict_of(optional(QUANTILE)), "by the fraction, 0.5, 0.95 and 0.99: value, lower, upper",
        lambda times: {str(fraction): _quantile_record(times, fraction) for fraction in QUANTILES},
    ),
    field(
        "histogram", list_of(BUCKETS), "the buckets that are not empty; of each: lower, upper, count",
        lambda times: BUCKETS.records(times.histogram),
    ),
)  # fmt: skip
STATISTICS = Table(
    "statistics",
    column("queue", str | None, "name of the queue; null: all", whole=True),
    column("task", str | None, "name of the task; null: all", whole=True),
    column("since", Time, "start of the first day"),
    column("until", Time, "end of the last day"),
    field(
        "wait", TIMES, f"times from when a job could be claimed until its claim: {_TIMES_HELP}",
        lambda found: TIMES.record(found.wait),
    ),
    field(
        "run", TIMES, "times from claim to end of attempts that succeeded or advanced: the same",
        lambda found: TIMES.record(found.run),
    ),
    column("ended", int, "number of attempts that ended", right=True),
    column("failures", int, "how often a job failed for good", right=True),
    column(
        "failed", int | None, "number of jobs that failed in this time and still are; null of one task", right=True
    ),
    column("retries", int, "number of attempts that were followed by a retry", right=True),
)  # fmt: skip


def _quantile_record(times: Times, fraction: float) -> Record | None:
    found = times.quantile(fraction)
    return None if found is None else QUANTILE.record(found)


def _seconds(name: str, help: str, read: Callable[[Any], Any] | None = None, title: str | None = None) -> Field:
    def show(record: Record, output: Output) -> str:
        value = record[name]
        return "" if value is None else spell(value) if output.on_terminal else f"{value:.3f}"

    return column(name, float | None, help, read, title=title, show=show, right=True)


def _quantile(times: Times, fraction: float) -> float | None:
    found = times.quantile(fraction)
    return None if found is None else found.value


def _rows_of(kind: str, help: str) -> Table:
    """Declare the table of a list by queue or task."""
    return Table(
        kind,
        column(kind, str, help, whole=True),
        column("waits", int, "number of claims", lambda each: each.wait.count, right=True),
        _seconds("wait_mean", "mean waiting time in seconds", lambda each: each.wait.mean, "WAIT"),
        _seconds("wait_p95", "95 % waited no longer", lambda each: _quantile(each.wait, 0.95), "P95"),
        column("runs", int, "number of attempts that succeeded or advanced", lambda each: each.run.count, right=True),
        _seconds("run_mean", "mean run time in seconds", lambda each: each.run.mean, "RUN"),
        _seconds("run_p95", "95 % ran no longer", lambda each: _quantile(each.run, 0.95), "P95"),
        column("ended", int, "number of attempts that ended", right=True),
        column("failures", int, "how often a job failed for good", right=True),
        column(
            "failed", int | None, "number of jobs that still are failed; null for a task", attrgetter("failed"),
            right=True,
        ),
        column("retries", int, "number of attempts that were followed by a retry", right=True),
        name=f"StatisticsBy{kind.title()}",
    )  # fmt: skip


BY = {"queue": _rows_of("queue", "name of the queue"), "task": _rows_of("task", "name of the task")}
SERIES = Table(
    "point",
    column("time", Time, "when the minute or hour began", show=lambda record, _: _clock(record["time"]), whole=True),
    column("arrivals", int | None, "number of jobs that became claimable; null of one task", right=True),
    column("ended", int, "number of attempts that ended", right=True),
    column("failures", int, "how often a job failed for good", right=True),
    column("retries", int, "number of attempts that were followed by a retry", right=True),
    column("waits", int, "number of claims", right=True),
    _seconds("wait", "mean waiting time in seconds"),
    column("runs", int, "number of attempts that succeeded or advanced", right=True),
    _seconds("run", "mean run time in seconds"),
    name="StatisticsPoint",
)


QUEUE_SERIES = Table(
    "series",
    field("queue", str, "name of the queue"),
    field("points", list_of(SERIES), f"its numbers per minute or hour; of each: {', '.join(SERIES.help)}"),
    name="StatisticsOfQueue",
)
TRENDS = Table(
    "trend",
    field("queue", str, "name of the queue"),
    field("since", Time, "when the first of its minutes or hours began"),
    field("step_seconds", float, "length of the time that each number stands for"),
    field("ended", list[int], "number of attempts that ended in each; the last one is not over"),
)


def _rows_by_queue(_: Holdfast, queues: Sequence[str], task: str | None, period: Record) -> Steps[list[Record]]:
    """Return the statistics of each of some queues."""
    found: list[Statistics] = yield from stats_by_queue(queues, task=task, **period)
    return BY["queue"].records(found)


def _rows_by_task(app: Holdfast, queue: str, tasks: Sequence[str], period: Record) -> Steps[list[Record]]:
    """Return the statistics of each of some tasks of a queue."""
    rows = []
    for name in tasks:
        found: Statistics = yield from stats(app, queue, task=name, **period)
        rows.append(BY["task"].record(found))
    return rows


rows_by_queue, arows_by_queue = client_method(_rows_by_queue)
rows_by_task, arows_by_task = client_method(_rows_by_task)


def spell(seconds: float) -> str:
    """Return a duration for people: 0.4ms, 12ms, 1.5s, 1m23s."""
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms" if seconds else "0ms"
    return f"{seconds:.3g}s" if seconds < 60 else humanize(round(seconds) * 1000)


def _clock(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%MZ")
