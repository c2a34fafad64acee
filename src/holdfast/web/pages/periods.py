"""Periods that plots show, and the numbers of several queues in their buckets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from holdfast.client.statistics import Resolution
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.memo import shared
from holdfast.web.pages.charts import Times
from holdfast.web.resources.statistics import SeriesQuery, list_series

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FOR_SECONDS = 4.0  # series are told to others: those of a minute change little
MAX_SERIES = 50  # queues whose series are read one by one

PeriodName = Literal["15m", "3h", "24h", "30d"]


class Period(NamedTuple):
    """A period up to now, in buckets."""

    name: PeriodName
    title: str
    length: timedelta
    step: timedelta
    resolution: Resolution
    words: str  # after "last"

    def times(self, now: datetime) -> Times:
        """Return the buckets. The last one is that of now, so it is still open."""
        end = EPOCH + ((now - EPOCH) // self.step + 1) * self.step
        count = self.length // self.step
        return Times(start=end - count * self.step, step=self.step, count=count)


PERIODS = (
    Period("15m", "15 min", 15 * MINUTE, MINUTE, "minute", "15 minutes"),
    Period("3h", "3 hours", timedelta(hours=3), 3 * MINUTE, "minute", "3 hours"),
    Period("24h", "24 hours", DAY, HOUR, "hour", "24 hours"),
    Period("30d", "30 days", 30 * DAY, 12 * HOUR, "hour", "30 days"),
)
BY_NAME = {each.name: each for each in PERIODS}

COUNTS = ("arrivals", "ended", "failures", "retries", "waits", "runs")


class Buckets:
    """Numbers of points added up in buckets: counts, and sums of the times whose means the points have."""

    def __init__(self, times: Times) -> None:
        self.times = times
        self.counts = {name: [0] * times.count for name in COUNTS}
        self._waited, self._ran = [0.0] * times.count, [0.0] * times.count

    def add(self, points: Iterable[Record]) -> Buckets:
        for point in points:
            place = (point["time"] - self.times.start) // self.times.step
            if 0 <= place < self.times.count:
                for name in COUNTS:
                    self.counts[name][place] += point[name] or 0
                self._waited[place] += (point["wait"] or 0) * point["waits"]
                self._ran[place] += (point["run"] or 0) * point["runs"]
        return self

    def __getitem__(self, name: str) -> list[int]:
        return self.counts[name]

    @property
    def wait(self) -> list[float | None]:
        """The mean wait of each bucket."""
        return _means(self._waited, self["waits"])

    @property
    def run(self) -> list[float | None]:
        return _means(self._ran, self["runs"])

    @property
    def succeeded(self) -> list[int]:
        """Attempts that ended well; each other one was followed by a retry, or was the end of its job."""
        return [
            max(0, ended - failures - retries)
            for ended, failures, retries in zip(self["ended"], self["failures"], self["retries"], strict=True)
        ]

    def per_minute(self, name: str) -> list[float]:
        minutes = self.times.step / MINUTE
        return [value / minutes for value in self[name]]


def _means(sums: Sequence[float], counts: Sequence[int]) -> list[float | None]:
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


class SeriesOfQueues(NamedTuple):
    """The points of queues, and of all of them together."""

    total: list[Record]
    by_queue: dict[str, list[Record]]

    def bucketed(self, times: Times) -> Buckets:
        return Buckets(times).add(self.total)


async def read_series(
    call: Call, queues: Sequence[str], resolution: Resolution, since: timedelta, *, task: str | None = None
) -> SeriesOfQueues:
    """Return the series of queues: of each of the first ones, and of all together.

    It takes a call of the store for each queue, shared by all who ask in the next seconds.
    """
    key = ("series", tuple(queues), resolution, since, task)
    return await shared(call, key, FOR_SECONDS, lambda: _read(call, queues, resolution, since, task))


async def _read(
    call: Call, queues: Sequence[str], resolution: Resolution, since: timedelta, task: str | None
) -> SeriesOfQueues:
    text = f"{round(since.total_seconds())}s"

    async def of(queue: str | None) -> list[Record]:
        query = SeriesQuery(queue=queue, task=task, resolution=resolution, since=text)
        found: list[Record] = (await list_series(call, query=query)).items
        return found

    shown = queues[:MAX_SERIES]
    found = await asyncio.gather(*map(of, shown))
    if len(queues) > len(shown) and call.user.has_all_queues:
        total = await of(None)
    else:
        total = [point for points in found for point in points]
    return SeriesOfQueues(total, dict(zip(shown, found, strict=True)))


def sum_of(points: Iterable[Record], name: str, start: datetime, end: datetime) -> int:
    """Return the sum of a number over the points of a period."""
    return sum(point[name] or 0 for point in points if start <= point["time"] < end)


def trends_of(series: SeriesOfQueues, now: datetime) -> dict[str, list[float]]:
    """Return the attempts that ended per minute, of each queue, without the bucket that is not over."""
    times = BY_NAME["3h"].times(now)
    return {name: Buckets(times).add(points).per_minute("ended")[:-1] for name, points in series.by_queue.items()}
