"""Periods that plots show, and the numbers of several queues in their buckets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from holdfast.client.statistics import Resolution
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.charts import Times
from holdfast.web.resources.statistics import (
    SeriesOfQueuesQuery,
    SeriesQuery,
    TrendsQuery,
    list_series,
    list_series_of_queues,
    list_trends_of_queues,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MAX_SERIES = 100  # queues with series of their own

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


async def read_series(call: Call, queues: Sequence[str], resolution: Resolution, since: timedelta) -> list[Record]:
    """Return the points of queues together: of all, or of those that the user may see."""
    text = f"{round(since.total_seconds())}s"
    if call.user.has_all_queues and len(queues) != 1:
        found: list[Record] = (await list_series(call, query=SeriesQuery(resolution=resolution, since=text))).items
        return found
    if not queues:
        return []
    query = SeriesOfQueuesQuery(queue=list(queues[:MAX_SERIES]), resolution=resolution, since=text)
    rows = (await list_series_of_queues(call, query=query)).items
    return [point for each in rows for point in each["points"]]


async def read_trends(call: Call, queues: Sequence[str]) -> dict[str, list[float]]:
    """Return the attempts that ended per minute, of each of the first queues, without the times that are not over."""
    if not queues:
        return {}
    period = BY_NAME["3h"]
    minutes = period.step // MINUTE
    query = TrendsQuery(queue=list(queues[:MAX_SERIES]), since=f"{round(period.length.total_seconds())}s", step=minutes)
    rows = (await list_trends_of_queues(call, query=query)).items
    return {each["queue"]: [count / minutes for count in each["ended"][:-1]] for each in rows}


def sum_of(points: Iterable[Record], name: str, start: datetime, end: datetime) -> int:
    """Return the sum of a number over the points of a period."""
    return sum(point[name] or 0 for point in points if start <= point["time"] < end)
