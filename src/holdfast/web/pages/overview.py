"""The overview: what needs attention, and how the queues are doing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from markupsafe import Markup

from holdfast.constants import MAX_BATCH
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.lists import WholeListQuery
from holdfast.web.memo import shared
from holdfast.web.pages.charts import Panel, Series, bar_total, plot
from holdfast.web.pages.deploys import find_deploys, marks_of
from holdfast.web.pages.formats import duration, number
from holdfast.web.pages.page import Page, Pages
from holdfast.web.pages.periods import (
    BY_NAME,
    DAY,
    HOUR,
    MINUTE,
    PERIODS,
    Buckets,
    Period,
    PeriodName,
    read_series,
    read_trends,
    sum_of,
)
from holdfast.web.pages.plain_words import when_in_words
from holdfast.web.pages.queues import late_queues
from holdfast.web.pages.sentences import parts_of
from holdfast.web.resources.attention import list_attention
from holdfast.web.resources.failures import FailuresQuery, list_failures
from holdfast.web.resources.jobs import JobQuery, list_jobs
from holdfast.web.resources.queues import LoadQuery, list_queues, show_load
from holdfast.web.resources.schedules import SchedulesQuery, list_schedules
from holdfast.web.resources.statistics import StatisticsQuery, show_statistics
from holdfast.web.resources.workers import summarize_workers

pages = Pages()

SHOWN = 3  # of each short list
MAX_QUEUES = 20  # of the table, those with the most jobs; there is a page of all
RATE = 5 * MINUTE  # over which rates are measured
QUANTILES_FOR = 20.0  # seconds
BUSY_QUEUES = 20  # whose running jobs are compared


class OverviewQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which period the plots show."""

    period: PeriodName = "3h"


@pages.get("/")
async def overview_page(call: Call, query: OverviewQuery) -> Page:
    """What needs attention, key figures, plots, queues, and the first rows of other pages."""
    now, period = datetime.now(UTC), BY_NAME[query.period]
    queues, load, workers, matters = await asyncio.gather(
        list_queues(call, query=WholeListQuery()), show_load(call, query=LoadQuery()),
        summarize_workers(call), list_attention(call),
    )  # fmt: skip
    rows = sorted(queues.items, key=lambda each: -bar_total(each))
    names = [each["queue"] for each in rows]
    (minutes, hours, trends), quantiles, lists = await asyncio.gather(
        _numbers(call, names, period), _wait_quantiles(call),
        asyncio.gather(_latest_failures(call), _next_schedules(call), _longest_running(call, rows)),
    )  # fmt: skip
    failures, schedules, longest = lists
    loads = {each["queue"]: each for each in load["queues"]}
    numbers = Numbers(queues.items, loads, workers, minutes, hours, quantiles, now)
    series = minutes if period.resolution == "minute" else hours
    return Page(
        "overview.html", title="Overview", section="Overview", period=period, periods=PERIODS, matters=matters.items,
        numbers=numbers, plots=draw_plots(Buckets(period.times(now)).add(series), period, workers),
        queues=sorted(rows[:MAX_QUEUES], key=lambda each: each["queue"]), count=len(names), loads=loads,
        largest=max(map(bar_total, queues.items), default=0), trends=trends, failures=failures,
        schedules=schedules, when_in_words=when_in_words, longest=longest, parts_of=parts_of,
        late=late_queues(matters.items), live_events="type=failed,paused,resumed,lost,crashed", live_every=5,
    )  # fmt: skip


async def _numbers(
    call: Call, queues: Sequence[str], period: Period
) -> tuple[list[Record], list[Record], dict[str, list[float]]]:
    """Return the points per minute and per hour, and the trends of queues."""
    return await asyncio.gather(
        read_series(call, queues, "minute", timedelta(hours=3)),
        read_series(call, queues, "hour", max(2 * DAY, period.length)), read_trends(call, queues[:MAX_QUEUES]),
    )  # fmt: skip


class Numbers(NamedTuple):
    """The key figures, and those of yesterday."""

    queues: Sequence[Record]
    loads: dict[str, Record]
    workers: Record  # their summary
    minutes: Sequence[Record]
    hours: Sequence[Record]
    quantiles: tuple[float | None, float | None]
    now: datetime

    def count(self, state: str) -> int:
        return sum(each[state] for each in self.queues)

    @property
    def oldest(self) -> float | None:
        return max((each["oldest"] for each in self.loads.values() if each["oldest"] is not None), default=None)

    @property
    def ended(self) -> float:
        """Attempts that ended per minute, in the last minutes and the one that is not over."""
        start = self.now.replace(second=0, microsecond=0) - RATE
        return sum_of(self.minutes, "ended", start, self.now) / ((self.now - start) / MINUTE)

    @property
    def ended_yesterday(self) -> float:
        return self._of_hour("ended", self.now - DAY) / 60

    @property
    def failed(self) -> int:
        return sum_of(self.minutes, "failures", self.now - HOUR, self.now)

    @property
    def failed_yesterday(self) -> int:
        return self._of_hour("failures", self.now - DAY)

    def _of_hour(self, name: str, time: datetime) -> int:
        start = time.replace(minute=0, second=0, microsecond=0)
        return sum_of(self.hours, name, start, start + HOUR)

    @property
    def about_workers(self) -> str:
        counts = (self.workers["draining"], "draining"), (self.workers["workers"] - self.workers["live"], "silent")
        return ", ".join(f"{number(count)} {what}" for count, what in counts if count) or "none silent"

    def sparks(self, name: str) -> list[float]:
        """Return numbers of the last three hours, without the minute that is not over."""
        return Buckets(BY_NAME["3h"].times(self.now)).add(self.minutes).per_minute(name)[:-1]


async def _wait_quantiles(call: Call) -> tuple[float | None, float | None]:
    """Return the 95th percentile of waits of today and of yesterday."""
    if not call.user.has_all_queues:
        return None, None

    async def read() -> tuple[float | None, float | None]:
        yesterday = (datetime.now(UTC) - DAY).date()
        found = await asyncio.gather(
            show_statistics(call, query=StatisticsQuery()), show_statistics(call, query=StatisticsQuery(day=yesterday))
        )
        today, before = (each["wait"]["quantiles"]["0.95"] for each in found)
        return today and today["value"], before and before["value"]

    return await shared(call, "wait quantiles", QUANTILES_FOR, read, lasts=True)


async def _latest_failures(call: Call) -> list[Record]:
    if not call.user.has_all_queues:
        return []
    found = await list_failures(call, query=FailuresQuery(by="fingerprint", limit=SHOWN))
    return list(found.items)


async def _next_schedules(call: Call) -> list[Record]:
    async def read() -> list[Record]:
        found = (await list_schedules(call, query=SchedulesQuery(limit=MAX_BATCH))).items
        return sorted((each for each in found if each["next_at"]), key=lambda each: each["next_at"])[:SHOWN]

    return await shared(call, "next schedules", 1.0, read)


async def _longest_running(call: Call, queues: Sequence[Record]) -> list[Record]:
    """Return the jobs that have run for longest: of the queues with the most running jobs."""
    busy = sorted((each for each in queues if each["running"]), key=lambda each: -each["running"])[:BUSY_QUEUES]
    pages = await asyncio.gather(*(_oldest_running(call, each["queue"]) for each in busy))
    return sorted((job for page in pages for job in page), key=lambda job: job["since"])[:SHOWN]


async def _oldest_running(call: Call, queue: str) -> list[Record]:
    query = {"queue": [queue], "state": ["running"], "newest": False, "limit": SHOWN}
    return list((await list_jobs(call, query=msgspec.convert(query, JobQuery))).items)


def draw_plots(buckets: Buckets, period: Period, workers: Record) -> dict[str, Markup]:
    """Draw the two plots. Few failures are seen under many successes, because they have an axis of their own."""
    marks, times = marks_of(find_deploys(workers)), buckets.times
    minutes = times.step / MINUTE
    succeeded = Series("succeeded", [value / minutes for value in buckets.succeeded], "succeeded")
    failed = Series("failed", buckets.per_minute("failures"), "failed")
    return {
        "ended": plot(
            f"Jobs ended per minute, last {period.words}", times,
            [Panel([succeeded], weight=3), Panel([failed])], marks=marks,
        ),
        "wait": plot(
            f"Mean wait before start, last {period.words}, log axis", times,
            [Panel([Series("mean wait", buckets.wait)], kind="lines", log=True, seconds=True, spell=duration)],
            marks=marks,
        ),
    }  # fmt: skip
