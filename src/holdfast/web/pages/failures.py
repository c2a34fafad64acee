"""Failures: errors by fingerprint, and the page of one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup

from holdfast.errors import NotFound
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.lists import WholeListQuery
from holdfast.web.memo import shared
from holdfast.web.pages.charts import Panel, Series, Times, plot, sparkline
from holdfast.web.pages.deploys import Deploy, find_deploys, marks_of
from holdfast.web.pages.formats import number
from holdfast.web.pages.page import Page, Pages
from holdfast.web.pages.periods import DAY, HOUR, MINUTE
from holdfast.web.resources.failures import (
    FailureQuery,
    FailuresQuery,
    TrendsQuery,
    list_failures,
    list_trends,
    show_failure,
)
from holdfast.web.resources.jobs import JobQuery, list_jobs
from holdfast.web.resources.queues import list_queues
from holdfast.web.resources.statistics import StatisticsQuery, show_statistics
from holdfast.web.resources.workers import summarize_workers

pages = Pages()

ROWS = 25
LOOKED_AT = 100  # failed jobs that are read to find out who is affected
EXAMPLES = 8
MAX_NAMES = 8  # of tasks, queues, nodes
TRENDS_FOR = 4.0  # seconds for which trends are shared
FIELDS = ("id", "task", "queue", "since", "final_reason", "node", "worker", "attempt", "tags")

PeriodName = Literal["1h", "2d", "30d"]


class Trend(NamedTuple):
    """The buckets of a trend, up to now."""

    name: PeriodName
    title: str
    words: str  # after "last"
    step: timedelta
    buckets: int

    @property
    def length(self) -> timedelta:
        return self.step * self.buckets


TRENDS = (
    Trend("1h", "1 hour", "hour", MINUTE, 60),
    Trend("2d", "2 days", "two days", HOUR, 48),
    Trend("30d", "30 days", "30 days", 12 * HOUR, 60),
)
BY_NAME = {each.name: each for each in TRENDS}
SINCE_TODAY = Trend("1h", "6 hours", "6 hours", 5 * MINUTE, 72)


class FailuresPageQuery(msgspec.Struct, frozen=True):
    """Which failures, and the period of their trends."""

    queue: str | None = None
    period: PeriodName = "2d"
    cursor: str | None = None


@pages.get("/failures")
async def failures_page(call: Call, query: FailuresPageQuery) -> Page:
    """Errors by fingerprint, those that were seen last first."""
    queues = [each for each in (await list_queues(call, query=WholeListQuery())).items if each["failed"]]
    names = [each["queue"] for each in sorted(queues, key=lambda each: -each["failed"])]
    queue = query.queue or (None if call.user.has_all_queues else next(iter(names), None))
    period = BY_NAME[query.period]
    items: list[Record] = []
    following, looked_at = None, None
    if queue is not None or call.user.has_all_queues:
        wanted = FailuresQuery(by="fingerprint", queue=queue, limit=ROWS, cursor=query.cursor)
        found = await list_failures(call, query=wanted)
        items, following, looked_at = found.items, found.next, found.looked_at

    def address(**changes: str | None) -> str:
        named = {"queue": query.queue, "period": None if query.period == "2d" else query.period} | changes
        chosen = {name: value for name, value in named.items() if value}
        return call.url("/failures") + (f"?{urlencode(chosen)}" if chosen else "")

    return Page(
        "failures.html", title="Failures", section="Failures", failures=items, queues=names[:MAX_NAMES], queue=queue,
        failed=sum(each["failed"] for each in queues), is_new=is_new, period=period, periods=TRENDS, address=address,
        looked_at=looked_at, trends=await _trends(call, items, period),
        next=address(cursor=following) if following else None, first=address() if query.cursor else None,
        live_events="type=failed,retried,deleted", live_every=10,
    )  # fmt: skip


async def _trends(call: Call, failures: Sequence[Record], period: Trend) -> dict[str, Markup]:
    """Return the trends of fingerprints, for those who may see all queues."""
    names = [each["name"] for each in failures]
    if not names or not call.user.has_all_queues:
        return {}
    types = {each["name"]: each["type"] or each["name"] for each in failures}
    found = await _read_trends(call, names, period)
    return {
        name: sparkline(
            counts, state="failed", bars=True, width=160, height=26,
            label=f"{types[name]}: {number(sum(counts))} failed in the last {period.words}",
        )
        for name, counts in found.items()
    }  # fmt: skip


async def _read_trends(call: Call, names: Sequence[str], period: Trend) -> dict[str, list[int]]:
    query = TrendsQuery(name=list(names), step=f"{round(period.step.total_seconds())}s", count=period.buckets)

    async def read() -> dict[str, list[int]]:
        return {each["name"]: each["counts"] for each in (await list_trends(call, query=query)).items}

    return await shared(call, ("trends", tuple(names), period), TRENDS_FOR, read)


def is_new(failure: Record) -> bool:
    """Return whether an error was first seen within a day."""
    first: datetime | None = failure["first_seen"]
    return first is not None and datetime.now(UTC) - first < DAY


@pages.get("/failures/{failure}")
async def failure_page(call: Call, failure: str) -> Page:
    """An error, or a group of failed jobs: when it began, whom it affects, why it is final, one traceback."""
    found = await show_failure(call, failure=failure, query=FailureQuery(examples=0))
    by = found["by"]
    wanted = {by: [found["name"]] if by == "queue" else found["name"], "state": ["failed"]}
    jobs, workers, trend = await asyncio.gather(
        list_jobs(call, query=msgspec.convert({**wanted, "fields": FIELDS, "limit": LOOKED_AT}, JobQuery)),
        summarize_workers(call), _trend_of(call, found),
    )  # fmt: skip
    deploys = find_deploys(workers)
    return Page(
        "failure.html", title=found["type"] or found["name"], section="Failures", failure=found, by=by,
        affected=Affected(jobs.items), deploys=deploys, plot=trend and _draw(found, *trend, deploys),
        beginning=beginning(found, deploys), rate=await _rate(call, found, jobs.items), is_new=is_new,
        examples=jobs.items[:EXAMPLES], live_events="type=failed,retried,deleted", live_every=10,
    )  # fmt: skip


class Affected(NamedTuple):
    """Whom a failure concerns, by the jobs that failed last."""

    jobs: Sequence[Record]

    def most(self, name: str) -> list[tuple[str, int]]:
        return Counter(str(each[name] or "unknown") for each in self.jobs).most_common(MAX_NAMES)


async def _trend_of(call: Call, failure: Record) -> tuple[Trend, list[int]] | None:
    """Return how many jobs failed when, from before the error began, as far as that is shown."""
    if not call.user.has_all_queues or failure["by"] != "fingerprint":
        return None
    age = datetime.now(UTC) - (failure["first_seen"] or datetime.now(UTC))
    trend = next((each for each in (SINCE_TODAY, *TRENDS[1:]) if age < each.length * 0.9), TRENDS[-1])
    return trend, (await _read_trends(call, [failure["name"]], trend))[failure["name"]]


def _draw(failure: Record, trend: Trend, counts: Sequence[int], deploys: Sequence[Deploy]) -> Markup:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    end = epoch + ((datetime.now(UTC) - epoch) // trend.step + 1) * trend.step
    times = Times(start=end - trend.length, step=trend.step, count=trend.buckets)
    series = Series("failed", list(counts), "failed")
    name = failure["type"] or failure["name"]
    return plot(f"Failed jobs of {name}, last {trend.words}", times, [Panel([series])], marks=marks_of(deploys))


class Beginning(NamedTuple):
    """When an error began: with which deploy, and how long after it."""

    at: datetime
    revision: int | None
    deploy: Deploy | None

    @property
    def after(self) -> float | None:
        """Seconds after the first worker of the release started."""
        return None if self.deploy is None else (self.at - self.deploy.at).total_seconds()


def beginning(failure: Record, deploys: Sequence[Deploy]) -> Beginning | None:
    first: datetime | None = failure["first_seen"]
    if first is None:
        return None
    revision = failure["revision"]
    deploy = next((each for each in deploys if each.revision == revision and each.at <= first), None)
    return Beginning(first, revision, deploy)


async def _rate(call: Call, failure: Record, jobs: Sequence[Record]) -> dict[str, Any] | None:
    """Return how many attempts of its task did not succeed today, in the queue where it failed last."""
    if not jobs or not failure["task"]:
        return None
    query = StatisticsQuery(queue=jobs[0]["queue"], task=failure["task"])
    try:
        found = await show_statistics(call, query=query)
    except NotFound:
        return None
    bad = found["failures"] + found["retries"]
    return {"task": query.task, "bad": bad, "ended": found["ended"]} if bad and found["ended"] else None
