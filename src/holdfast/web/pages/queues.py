"""The page of all queues, and the page of one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup

from holdfast.constants import MAX_BATCH
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.lists import ListQuery, WholeListQuery
from holdfast.web.memo import shared
from holdfast.web.pages.buckets import log_buckets
from holdfast.web.pages.charts import Panel, Series, bar_total, histogram, plot
from holdfast.web.pages.deploys import find_deploys, marks_of
from holdfast.web.pages.formats import duration, short_duration
from holdfast.web.pages.page import Page, Pages
from holdfast.web.pages.periods import BY_NAME, DAY, HOUR, MINUTE, Buckets, read_series, read_trends, sum_of
from holdfast.web.pages.sentences import parts_of
from holdfast.web.pages.settings import in_words
from holdfast.web.resource import Listed
from holdfast.web.resources.attention import USUAL_DAYS, list_attention
from holdfast.web.resources.config import list_queue_settings
from holdfast.web.resources.jobs import JobQuery, list_jobs
from holdfast.web.resources.limits import list_limits
from holdfast.web.resources.queues import (
    LoadQuery,
    PeekQuery,
    QueueLoadQuery,
    list_queues,
    peek,
    show_load,
    show_queue,
    show_queue_load,
)
from holdfast.web.resources.statistics import (
    RowsQuery,
    StatisticsQuery,
    list_statistics_of_tasks,
    show_statistics,
)
from holdfast.web.resources.workers import WorkersFilter, summarize_workers

pages = Pages()

ROWS = 100  # of a page
PEEKED, NEXT, SHARES, LIMITS, SAMPLE, TASKS = 100, 8, 12, 12, 50, 20
STATISTICS_FOR = 10.0  # seconds for which statistics of days are shared
SETTINGS = (
    "lease", "concurrency", "retries", "timeout", "keep_succeeded", "keep_succeeded_count", "keep_failed",
    "keep_failed_count",
)  # fmt: skip


class QueuesQuery(msgspec.Struct, frozen=True):
    cursor: str | None = None


@pages.get("/queues")
async def queues_page(call: Call, query: QueuesQuery) -> Page:
    """Queues with their number of jobs in each state."""
    found = await list_queues(call, query=WholeListQuery(limit=ROWS, cursor=query.cursor))
    queues: list[Record] = found.items
    names = [each["queue"] for each in sorted(queues, key=lambda each: -bar_total(each))]
    load, trends, matters = await asyncio.gather(
        show_load(call, query=LoadQuery(queue=names)), read_trends(call, names), list_attention(call),
    )  # fmt: skip
    return Page(
        "queues.html", title="Queues", section="Queues", queues=queues, load=load if names else None,
        loads={each["queue"]: each for each in load["queues"]} if names else {},
        trends=trends, largest=max(map(bar_total, queues), default=0),
        next=call.url(f"/queues?{urlencode({'cursor': found.next})}") if found.next else None,
        first=call.url("/queues") if query.cursor else None, late=late_queues(matters.items), live_every=5,
    )  # fmt: skip


def late_queues(matters: Sequence[Record]) -> set[str]:
    """Return the queues whose oldest job waits for longer than is usual, or for a worker."""
    return {each["queue"] for each in matters if each["code"] in ("behind", "unserved")}


@pages.get("/queues/{queue}")
async def queue_page(call: Call, queue: str) -> Page:
    """A queue: its jobs by state, its speed, who is next, its tasks, shares, limits and settings."""
    now, found = datetime.now(UTC), await show_queue(call, queue=queue)
    load, minutes, hours, days, tasks, following, workers, settings, matters = await asyncio.gather(
        show_queue_load(call, queue=queue, query=QueueLoadQuery()),
        read_series(call, [queue], "minute", timedelta(hours=3)), read_series(call, [queue], "hour", 2 * DAY),
        _statistics(call, queue), _tasks(call, queue), peek(call, queue=queue, query=PeekQuery(limit=PEEKED)),
        summarize_workers(call, query=WorkersFilter(queue=queue)), list_queue_settings(call, queue=queue),
        list_attention(call),
    )  # fmt: skip
    today, before, usual = days
    waiting: list[Record] = following.items
    buckets = Buckets(BY_NAME["3h"].times(now)).add(minutes)
    return Page(
        "queue.html", title=f"Queue {queue}", section="Queues", queue=queue, counts=found, load=load, tasks=tasks,
        speed=Speed(load, workers, minutes, hours, today, before, usual, now), buckets=buckets,
        flow=_draw_flow(queue, buckets, workers), histograms=_draw_histograms(today), following=waiting[:NEXT],
        shares=_shares(waiting), peeked=len(waiting), limits=await _limits(call, queue, found, waiting),
        settings=[in_words(each) for each in settings.items if each["name"] in SETTINGS or each["source"] == "queue"],
        matters=[each for each in matters.items if each["queue"] == queue and each["code"] != "paused"],
        parts_of=parts_of, live_events=urlencode({"queue": queue}), live_every=5,
    )  # fmt: skip


class Speed(NamedTuple):
    """How fast jobs arrive, start and end, beside what was before."""

    load: Record
    workers: Record  # the summary of those that serve it, perhaps other queues, too
    minutes: Sequence[Record]
    hours: Sequence[Record]
    today: Record  # statistics
    yesterday: Record
    usual: Record
    now: datetime

    @property
    def usual_wait(self) -> float | None:
        return quantile_of(self.usual["wait"], "0.95")

    def before(self, name: str) -> float:
        """Return a number per minute in the same hour of yesterday."""
        start = (self.now - DAY).replace(minute=0, second=0, microsecond=0)
        return sum_of(self.hours, name, start, start + HOUR) / 60


def quantile_of(times: Record, fraction: str) -> float | None:
    found = times["quantiles"][fraction]
    return None if found is None else found["value"]


async def _statistics(call: Call, queue: str) -> list[Record]:
    """Return the statistics of today, of yesterday, and of the days before today."""

    today = datetime.now(UTC).date()
    queries = (
        StatisticsQuery(queue=queue), StatisticsQuery(queue=queue, day=today - DAY),
        StatisticsQuery(queue=queue, since=str(today - USUAL_DAYS * DAY), until=today - DAY),
    )  # fmt: skip

    async def read() -> list[Record]:
        return list(await asyncio.gather(*(show_statistics(call, query=each) for each in queries)))

    return await shared(call, ("statistics", queue), STATISTICS_FOR, read, lasts=True)


async def _tasks(call: Call, queue: str) -> Listed:
    async def read() -> Listed:
        found: Listed = await list_statistics_of_tasks(call, queue=queue, query=RowsQuery(limit=TASKS, since="1d"))
        return found

    return await shared(call, ("tasks", queue), STATISTICS_FOR, read, lasts=True)


def _draw_flow(queue: str, buckets: Buckets, workers: Record) -> dict[str, Markup]:
    """Draw what arrives against what ends, and how attempts ended."""
    arriving = Series("arriving", buckets.per_minute("arrivals"))
    ending = Series("ending", buckets.per_minute("ended"), "succeeded")
    marks, minutes = marks_of(find_deploys(workers)), buckets.times.step / MINUTE
    succeeded = Series("succeeded", [value / minutes for value in buckets.succeeded], "succeeded")
    failed = Series("failed", buckets.per_minute("failures"), "failed")
    return {
        "against": plot(
            f"Jobs of {queue} that arrive and end, per minute, last 3 hours", buckets.times,
            [Panel([arriving, ending], kind="lines")], marks=marks,
        ),
        "ended": plot(
            f"Jobs of {queue} that ended, per minute, last 3 hours", buckets.times,
            [Panel([succeeded], weight=3), Panel([failed])], marks=marks,
        ),
    }  # fmt: skip


def _draw_histograms(statistics: Record) -> dict[str, Markup]:
    return {
        name: histogram(
            label, log_buckets(statistics[name]["histogram"]),
            state=state, noun=noun, marks=[
                (value, f"p{round(float(fraction) * 100)} {_spell(value)}")
                for fraction in ("0.5", "0.95") if (value := quantile_of(statistics[name], fraction)) is not None
            ],
        )
        for name, label, state, noun in (
            ("wait", "Wait before start", "waiting", "claims"), ("run", "Running time", "running", "attempts"),
        )
    }  # fmt: skip


def _spell(seconds: float) -> str:
    return duration(seconds) if seconds < 60 else short_duration(seconds)


def _shares(waiting: Sequence[Record]) -> list[tuple[str, int]]:
    """Return how many of the next jobs each share has."""
    return Counter(each["share"] for each in waiting if each["share"]).most_common(SHARES)


async def _limits(call: Call, queue: str, counts: Record, waiting: Sequence[Record]) -> list[tuple[str, Record | None]]:
    """Return the limits of the next jobs and of throttled ones; of each its use, if the user may see that."""
    jobs = list(waiting)
    if counts["throttled"]:
        filters = {"queue": [queue], "state": ["throttled"], "limit": SAMPLE}
        jobs += (await list_jobs(call, query=msgspec.convert(filters, JobQuery))).items
    names = [name for name, _ in Counter(limit for each in jobs for limit in each["limits"]).most_common(LIMITS)]
    if not names or not call.user.has_all_queues:
        return [(name, None) for name in names]
    known = {each["limit"]: each for each in (await list_limits(call, query=ListQuery(limit=MAX_BATCH))).items}
    return [(name, known.get(name.partition(":")[0])) for name in names]
