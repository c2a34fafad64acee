"""Statistics: waits and runs of a queue by day, and numbers per minute or hour. Times are in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.store.commands.command import Command, omit_none, read_texts

MAX_STATS_QUEUES = 20  # of a call


class TimesReply(NamedTuple):
    """A set of times."""

    number: int  # of times
    total: int
    deviations: float  # the sum of squared deviations from the mean
    buckets: list[tuple[int, int | None, int]]  # lower bound, upper bound, count


class StatsReply(NamedTuple):
    """Statistics of a queue, or of one of its tasks, over some days."""

    since: int
    until: int
    failed: int | None  # jobs that are still failed; None if a task was given
    ended: int  # attempts
    failures: int
    retries: int
    wait: TimesReply
    run: TimesReply


class SeriesRow(NamedTuple):
    """Numbers of one minute or hour."""

    number: int  # of the minute or hour, since 1970
    arrivals: int | None  # None if a task was given
    ended: int
    failures: int
    retries: int
    waits: int
    waited: int
    runs: int
    ran: int


class SeriesReply(NamedTuple):
    unit: int  # its length
    first: int
    last: int
    next: int | None  # from when to continue
    rows: list[SeriesRow]  # those that are not empty


class Period(NamedTuple):
    """A period: from a time, or from some time ago, until a time; by default the last day or hours."""

    since: int | None = None
    until: int | None = None
    ago: int | None = None


class TasksReply(NamedTuple):
    until: int | None  # until when to continue
    tasks: list[str]


def stats(queue: str, period: Period, task: str | None = None) -> Command[StatsReply]:
    return Command("stats", omit_none(queue=queue, task=task, **period._asdict()), _read_stats)


def stats_of_queues(queues: Sequence[str], period: Period, task: str | None = None) -> Command[list[StatsReply]]:
    """Return the statistics of up to `MAX_STATS_QUEUES` queues."""
    args = omit_none(queues=list(queues), task=task, **period._asdict())
    return Command("stats", args, lambda reply: [_read_stats(each) for each in reply])


def stats_tasks(queue: str, period: Period) -> Command[TasksReply]:
    return Command(
        "stats_tasks",
        omit_none(queue=queue, **period._asdict()),
        lambda reply: TasksReply(reply[0] or None, read_texts(reply[1])),
    )


def stats_series(queue: str, unit: str, period: Period, task: str | None = None) -> Command[SeriesReply]:
    return Command("stats_series", omit_none(queue=queue, unit=unit, task=task, **period._asdict()), _read_series)


def series_of_queues(
    queues: Sequence[str], unit: str, period: Period, task: str | None = None
) -> Command[list[SeriesReply]]:
    """Return the series of up to `MAX_STATS_QUEUES` queues."""
    args = omit_none(queues=list(queues), unit=unit, task=task, **period._asdict())
    return Command("stats_series", args, lambda reply: [_read_series(each) for each in reply])


def _read_stats(reply: list[Any]) -> StatsReply:
    since, until, failed, ended, failures, retries, *times = reply
    wait, run = _read_times(*times[:4]), _read_times(*times[4:])
    return StatsReply(since, until, _known(failed), ended, failures, retries, wait, run)


def _read_times(count: int, total: int, deviations: bytes, numbers: list[int]) -> TimesReply:
    rows = zip(numbers[::3], map(_known, numbers[1::3]), numbers[2::3], strict=True)
    return TimesReply(count, total, float(deviations), list(rows))


def _read_series(reply: list[Any]) -> SeriesReply:
    unit, first, last, more, *rows = reply
    return SeriesReply(unit, first, last, more or None, [SeriesRow(row[0], _known(row[1]), *row[2:]) for row in rows])


def _known(number: int) -> int | None:
    return None if number < 0 else number
