"""Statistics of queues and tasks: how long jobs wait and run, failures and retries; by day, hour and minute.

    today = jobs.stats("mail")
    print(today.run.mean, today.run.quantile(0.95))
    points = jobs.stats_series("mail", resolution="hour", since="7d")

The store adds up what every call does. Days, hours and minutes are those of UTC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from functools import reduce
from typing import Literal, NamedTuple

import msgspec

from holdfast.client.queues import queue_names
from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid
from holdfast.job.options import DEFAULT_QUEUE
from holdfast.names import check_queue, check_task
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import MAX_STATS_QUEUES, Period, SeriesReply, SeriesRow, StatsReply, TasksReply, TimesReply
from holdfast.units import Duration, milliseconds, moment, utc

Resolution = Literal["minute", "hour"]
Since = date | Duration
DAY = 86_400_000  # milliseconds


class Bucket(msgspec.Struct, frozen=True):
    """A bucket of a histogram: how many times were at least `lower` and less than `upper` seconds."""

    lower: float
    upper: float | None  # None: no limit
    count: int


class Quantile(NamedTuple):
    """A quantile, read off a histogram: an estimate, and the bounds between which the exact value lies."""

    value: float
    lower: float
    upper: float | None  # exclusive; None: no limit


class Times(msgspec.Struct, frozen=True):
    """A set of waits or runs. Times are in seconds.

    The histogram is kept for a shorter time than the rest (setting `histogram_age`), so over many days it may contain
    fewer times than were counted.
    """

    count: int = 0
    total: float = 0.0
    deviations: float = 0.0  # the sum of squared deviations from the mean
    histogram: tuple[Bucket, ...] = ()

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def variance(self) -> float | None:
        """The variance of a sample; None for fewer than two times."""
        return self.deviations / (self.count - 1) if self.count > 1 else None

    @property
    def stdev(self) -> float | None:
        """The standard deviation of a sample; None for fewer than two times."""
        return None if self.variance is None else math.sqrt(self.variance)

    def quantile(self, fraction: float) -> Quantile | None:
        """Return the time that this fraction of all times does not exceed; None without a histogram.

        The exact value lies in the same bucket: it is at least `lower` and less than `upper`. Buckets are powers of two
        milliseconds wide below a second, then a second, from a minute on a minute, from an hour on an hour, and from a
        day on a day.

        >>> jobs.stats("mail").run.quantile(0.95)
        Quantile(value=0.81, lower=0.512, upper=1.0)

        Raises:
            Invalid: the fraction is not from 0 to 1.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise Invalid(f"fraction is {fraction!r}; it must be a number from 0 to 1, such as 0.95")
        counted = sum(bucket.count for bucket in self.histogram)
        rank, before = max(1, math.ceil(fraction * counted)), 0
        for bucket in self.histogram:
            if before + bucket.count >= rank:
                return _estimate(bucket, (rank - before - 0.5) / bucket.count)
            before += bucket.count
        return None

    def merge(self, other: Times) -> Times:
        """Return both sets together."""
        deviations = self.deviations + other.deviations
        if self.mean is not None and other.mean is not None:
            weight = self.count * other.count / (self.count + other.count)
            deviations += (other.mean - self.mean) ** 2 * weight
        histogram = _merge_histograms(self.histogram, other.histogram)
        return Times(self.count + other.count, self.total + other.total, deviations, histogram)


def _merge_histograms(one: Iterable[Bucket], other: Iterable[Bucket]) -> tuple[Bucket, ...]:
    merged: dict[float, Bucket] = {}
    for bucket in (*one, *other):
        known = merged.get(bucket.lower)
        merged[bucket.lower] = Bucket(bucket.lower, bucket.upper, bucket.count + (known.count if known else 0))
    return tuple(merged[lower] for lower in sorted(merged))


def _estimate(bucket: Bucket, within: float) -> Quantile:
    """Return a quantile, as if the times of its bucket were spread evenly."""
    width = 0.0 if bucket.upper is None else bucket.upper - bucket.lower
    return Quantile(bucket.lower + within * width, bucket.lower, bucket.upper)


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of a queue, or of all; of a task, or of all; over whole days of UTC.

    A wait counts on the day of the claim, a run on the day of its end. A run is an attempt that succeeded or advanced;
    all others only count as `ended`.
    """

    queue: str | None  # None: all queues
    task: str | None  # None: all tasks
    since: datetime
    until: datetime  # exclusive
    wait: Times  # from when a job could be claimed until its claim
    run: Times  # from its claim to its end
    ended: int  # attempts that ended, with any outcome
    failures: int  # how often a job failed for good
    failed: int | None  # jobs that failed in this time and still are; None if a task was given
    retries: int  # attempts that ended with an error, a crash or a lost lease, and were followed by another


class Point(msgspec.Struct, frozen=True):
    """Numbers of a minute or an hour. Times are in seconds."""

    time: datetime  # when it began
    arrivals: int | None  # jobs that became claimable, including retries; None if a task was given
    ended: int  # attempts
    failures: int
    retries: int
    waits: int  # claims
    wait: float | None  # the mean
    runs: int  # attempts that succeeded or advanced
    run: float | None  # the mean


def stats(
    _: Stores,
    queue: str | None = None,
    *,
    task: str | None = None,
    day: date | str | None = None,
    since: Since | None = None,
    until: date | None = None,
) -> Steps[Statistics]:
    """Return how long jobs waited and ran, failures and retries, over one or more days.

    Without a queue, all queues count together; without a task, all tasks. The default is today. `day` is another one,
    as a date or "2024-07-01"; `since` is a date, a time, or how long ago, such as "7d", and `until` the last date or
    the end. Days are those of UTC, and each counts as a whole.

        today = jobs.stats("mail")
        print(today.wait.mean, today.run.quantile(0.95), today.failures)
        week = jobs.stats(task="app.send", since="7d")
    """
    task, period = _check_task(task), _period(day, since, until)
    names, found = (yield from _queues(queue)), list[Statistics]()
    for some in _chunks(names):
        replies: list[StatsReply] = yield commands.stats_of_queues(some, period, task)
        found += [_statistics(reply, queue, task) for reply in replies]
    return reduce(_add, found)


def stats_by_queue(
    queues: Sequence[str], *, task: str | None = None, day: date | str | None = None, since: Since | None = None,
    until: date | None = None,
) -> Steps[list[Statistics]]:  # fmt: skip
    """Return the statistics of each of some queues, as `stats` does."""
    task, period, found = _check_task(task), _period(day, since, until), list[Statistics]()
    for some in _chunks([check_queue(each) for each in queues]):
        replies: list[StatsReply] = yield commands.stats_of_queues(some, period, task)
        found += [_statistics(reply, name, task) for name, reply in zip(some, replies, strict=True)]
    return found


def stats_tasks(
    _: Stores,
    queue: str,
    *,
    day: date | str | None = None,
    since: Since | None = None,
    until: date | None = None,
) -> Steps[list[str]]:
    """Return the names of the tasks that a queue has statistics of, over one or more days.

    A queue has up to 200 tasks per day; further ones count together as `other`.
    """
    period, found = _period(day, since, until), set[str]()
    while True:
        reply: TasksReply = yield commands.stats_tasks(check_queue(queue), period)
        found.update(reply.tasks)
        if reply.until is None:
            return sorted(found)
        period = period._replace(until=reply.until)


def stats_series(
    _: Stores,
    queue: str | None = None,
    *,
    task: str | None = None,
    resolution: Resolution = "minute",
    since: Since | None = None,
    until: date | None = None,
) -> Steps[list[Point]]:
    """Return numbers per minute or hour, oldest first, for plots.

    Minutes are kept for 3 hours, hours for the setting `stats_age`. The default is all minutes, or the hours of the
    last day. There is a point for each minute or hour, even if nothing happened; the last one is not over.

        for point in jobs.stats_series("mail", resolution="hour", since="7d"):
            print(point.time, point.ended, point.wait)
    """
    names = yield from _queues(queue)
    found = yield from series_of_queues(names, task=task, resolution=resolution, since=since, until=until)
    return found.total()


class SeriesOfQueues(NamedTuple):
    """Numbers of queues per minute or hour: those in which something happened, and which these cover."""

    rows: dict[str, dict[int, SeriesRow]]  # by queue, then by number since 1970
    numbers: range
    unit: int  # milliseconds
    task: str | None  # None: all tasks together

    def total(self) -> list[Point]:
        """Return the points of all queues together."""
        rows: dict[int, SeriesRow] = {}
        for each in self.rows.values():
            for row in each.values():
                rows[row.number] = _add_rows(rows.get(row.number), row)
        return self._points(rows)

    def of_queue(self, queue: str) -> list[Point]:
        return self._points(self.rows[queue])

    def ended(self, queue: str, step: int) -> list[int]:
        """Return how many attempts ended in each `step` minutes or hours, counted from 1970."""
        first = self.numbers.start // step
        counts = [0] * (len(self.numbers) and (self.numbers.stop - 1) // step - first + 1)
        for row in self.rows[queue].values():
            counts[row.number // step - first] += row.ended
        return counts

    def _points(self, rows: Mapping[int, SeriesRow]) -> list[Point]:
        return [_point(rows.get(number) or _empty_row(number, self.task), self.unit) for number in self.numbers]


def series_of_queues(
    queues: Sequence[str], *, task: str | None = None, resolution: Resolution = "minute", since: Since | None = None,
    until: date | None = None,
) -> Steps[SeriesOfQueues]:  # fmt: skip
    """Return the series of some queues, as `stats_series` does: all have the same minutes or hours."""
    names = [check_queue(each) for each in queues]
    return (yield from _series(names, resolution, _period(None, since, until), _check_task(task)))


def _series(queues: Sequence[str], resolution: Resolution, period: Period, task: str | None) -> Steps[SeriesOfQueues]:
    """Read units until there are no more. What is read twice, because queues have different ages, counts once."""
    if resolution not in ("minute", "hour"):
        raise Invalid(f"resolution is {resolution!r}; it must be 'minute' or 'hour'")
    rows: dict[str, dict[int, SeriesRow]] = {name: {} for name in queues}
    unit, numbers = 0, range(0)
    for some in _chunks(queues):
        names, rest = some, period
        while names:
            replies: list[SeriesReply] = yield commands.series_of_queues(names, resolution, rest, task)
            for name, reply in zip(names, replies, strict=True):
                rows[name].update({row.number: row for row in reply.rows})
                unit, numbers = reply.unit, _cover(numbers, reply)
            following = {name: reply.next for name, reply in zip(names, replies, strict=True) if reply.next is not None}
            names = list(following)
            rest = Period(min(following.values(), default=None), period.until)
    return SeriesOfQueues(rows, numbers, unit, task)


def _chunks(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[first : first + MAX_STATS_QUEUES] for first in range(0, len(names), MAX_STATS_QUEUES)]


def _queues(queue: str | None) -> Steps[list[str]]:
    """Return the names of the queues to read: one, or all; at least one, whose reply has the period."""
    if queue is not None:
        return [check_queue(queue)]
    names = yield from queue_names()
    return names or [DEFAULT_QUEUE]


def _check_task(task: str | None) -> str | None:
    return None if task is None else check_task(task)


def _period(day: date | str | None, since: Since | None, until: date | None) -> Period:
    if day is not None:
        if since is not None or until is not None:
            raise Invalid("day excludes since and until: give one day, or a period")
        return Period(_midnight(_date(day)), _midnight(_date(day)) + DAY)
    end = None if until is None else _end(until)
    if since is None or isinstance(since, date):
        start = None if since is None else moment(since, "since") if isinstance(since, datetime) else _midnight(since)
        if end is not None and start is not None and end <= start:
            raise Invalid("until is not after since")
        return Period(start, end)
    return Period(None, end, milliseconds(since, what="since", maximum=MAX_DURATION))


def _date(day: date | str) -> date:
    """Return a day; a time has none of its own, because that depends on the time zone."""
    if isinstance(day, str):
        try:
            return date.fromisoformat(day)
        except ValueError:
            raise Invalid(f'day is {day!r}; it must be a date such as "2024-07-01"') from None
    if not isinstance(day, date) or isinstance(day, datetime):
        raise Invalid(f'day is {day!r}; it must be a date, or text such as "2024-07-01"')
    return day


def _end(until: date) -> int:
    """Return the end of a period: a time, or the end of a date."""
    return moment(until, "until") if isinstance(until, datetime) else _midnight(_date(until)) + DAY


def _midnight(day: date) -> int:
    return moment(datetime.combine(day, time(), UTC), "day")


def _statistics(reply: StatsReply, queue: str | None, task: str | None) -> Statistics:
    since, until, failed, ended, failures, retries, wait, run = reply
    return Statistics(queue, task, utc(since), utc(until), _times(wait), _times(run), ended, failures, failed, retries)


def _times(reply: TimesReply) -> Times:
    histogram = tuple(
        Bucket(lower / 1000, None if upper is None else upper / 1000, count) for lower, upper, count in reply.buckets
    )
    return Times(reply.number, reply.total / 1000, reply.deviations / 1e6, histogram)


def _add(one: Statistics, other: Statistics) -> Statistics:
    return Statistics(
        queue=one.queue,
        task=one.task,
        since=min(one.since, other.since),
        until=max(one.until, other.until),
        wait=one.wait.merge(other.wait),
        run=one.run.merge(other.run),
        ended=one.ended + other.ended,
        failures=one.failures + other.failures,
        failed=None if one.failed is None or other.failed is None else one.failed + other.failed,
        retries=one.retries + other.retries,
    )


def _cover(numbers: range, reply: SeriesReply) -> range:
    """Return the units that all replies so far cover; queues differ if they keep statistics for different times."""
    if not numbers:
        return range(reply.first, reply.last + 1)
    return range(min(numbers.start, reply.first), max(numbers.stop, reply.last + 1))


def _add_rows(one: SeriesRow | None, other: SeriesRow) -> SeriesRow:
    if one is None:
        return other
    sums: Sequence[int] = [a + b for a, b in zip(one[2:], other[2:], strict=True)]
    arrivals = None if one.arrivals is None or other.arrivals is None else one.arrivals + other.arrivals
    return SeriesRow(one.number, arrivals, *sums)


def _empty_row(number: int, task: str | None) -> SeriesRow:
    return SeriesRow(number, None if task else 0, 0, 0, 0, 0, 0, 0, 0)


def _point(row: SeriesRow, unit: int) -> Point:
    return Point(
        time=utc(row.number * unit),
        arrivals=row.arrivals,
        ended=row.ended,
        failures=row.failures,
        retries=row.retries,
        waits=row.waits,
        wait=row.waited / row.waits / 1000 if row.waits else None,
        runs=row.runs,
        run=row.ran / row.runs / 1000 if row.runs else None,
    )
