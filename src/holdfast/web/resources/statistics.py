"""Statistics: how long jobs wait and run, failures and retries; by queue, by task, and as series."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any

import msgspec

from holdfast.client.statistics import Resolution, SeriesOfQueues, series_of_queues
from holdfast.errors import Invalid
from holdfast.job.options import DEFAULT_QUEUE
from holdfast.records.statistics import BY, QUEUE_SERIES, SERIES, STATISTICS, TRENDS, arows_by_queue, arows_by_task
from holdfast.records.table import Record
from holdfast.units import is_duration, utc
from holdfast.web.call import Call
from holdfast.web.lists import Cursor, ListQuery, cut
from holdfast.web.memo import shared
from holdfast.web.resource import Listed, ListOf, Resources, about
from holdfast.web.resources.queues import find_queue, visible_queues
from holdfast.web.steps import run

routes = Resources()

SERIES_FOR = {"minute": 4.0, "hour": 20.0}  # seconds for which series are shared
MAX_ROWS = 100  # queues or tasks of a page: the statistics of each are read by a call of their own

Task = Annotated[str | None, about("only this task")]
Since = Annotated[str | None, about("the first day as a date, or how long ago: 7d")]
Until = Annotated[date | None, about("the last day")]


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """Which days, in UTC. The default is today."""

    day: Annotated[date | None, about("one day")] = None
    since: Since = None
    until: Until = None

    def read(self) -> dict[str, Any]:
        """Return the period as the client takes it."""
        return {"day": self.day, "since": _read_since(self.since), "until": self.until}


class StatisticsQuery(Period, frozen=True, kw_only=True):
    """Which statistics."""

    queue: Annotated[str | None, about("only this queue; else all queues together")] = None
    task: Task = None


class RowsQuery(Period, frozen=True, kw_only=True):
    """Which rows."""

    task: Task = None
    limit: Annotated[int, about("maximum number of records", ge=1, le=MAX_ROWS)] = MAX_ROWS
    cursor: Cursor = None


class SeriesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which series."""

    queue: Annotated[str | None, about("only this queue; else all queues together")] = None
    task: Task = None
    resolution: Annotated[Resolution, about("minutes, of which 3 hours are kept; or hours, as far as `stats_age`")] = (
        "minute"
    )
    since: Since = None
    until: Until = None


class SeriesOfQueuesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which series."""

    queue: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_ROWS, description="these queues")]
    task: Task = None
    resolution: Annotated[Resolution, msgspec.Meta(description="minutes or hours")] = "minute"
    since: Since = None
    until: Until = None


class TrendsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues, and how fine."""

    queue: Annotated[list[str], about("these queues", min_length=1, max_length=MAX_ROWS)]
    resolution: Annotated[Resolution, about("of which time the numbers are kept: see /stats/series")] = "minute"
    since: Since = None
    step: Annotated[int, about("minutes or hours that each number stands for", ge=1, le=1440)] = 3


@routes.get("/stats", reply=STATISTICS, scope="none", client="stats")
async def show_statistics(call: Call, query: StatisticsQuery) -> Record:
    """Show how long jobs wait and run, with histograms and quantiles; failures and retries.

    Without `queue`, all queues count together. A wait counts on the day of the claim, a run on the day of its end.
    Quantiles are read off histograms; the exact value lies within the bounds.
    """
    await _check(call, query.queue)
    return STATISTICS.record(await call.app.astats(query.queue, task=query.task, **query.read()))


@routes.get("/stats/queues", reply=ListOf(BY["queue"]), scope="visible", client="stats")
async def list_statistics_of_queues(call: Call, query: RowsQuery) -> Listed:
    """List the statistics of each queue."""
    names = [each.name for each in await visible_queues(call)]
    found = cut(names, _page(query), str)
    rows = await arows_by_queue(call.app, found.values, query.task, query.read())
    return Listed(items=rows, next=found.next)


@routes.get("/queues/{queue}/stats/tasks", reply=ListOf(BY["task"]), client=("stats_tasks", "stats"))
async def list_statistics_of_tasks(call: Call, queue: str, query: RowsQuery) -> Listed:
    """List the statistics of each task of a queue.

    A queue has statistics of up to 200 tasks per day; further ones count together as `other`.
    """
    await find_queue(call, queue)
    names = [query.task] if query.task else await call.app.astats_tasks(queue, **query.read())
    found = cut(names, _page(query), str)
    return Listed(items=await arows_by_task(call.app, queue, found.values, query.read()), next=found.next)


@routes.get("/stats/series", reply=ListOf(SERIES), scope="none", client="stats_series")
async def list_series(call: Call, query: SeriesQuery) -> Listed:
    """List numbers per minute or hour, the oldest first, for plots.

    There is a point for each minute or hour, even if nothing happened; the last one is not over. The default is all
    minutes, or the hours of the last day.
    """
    await _check(call, query.queue)
    if query.queue or query.task or query.until:
        points = await call.app.astats_series(
            query.queue, task=query.task, resolution=query.resolution, since=_read_since(query.since), until=query.until
        )
    else:
        names = [each.name for each in await visible_queues(call)]
        points = (await _shared_series(call, names, query.resolution, query.since)).total()
    return Listed(items=SERIES.records(points))


@routes.get("/stats/trends", reply=ListOf(TRENDS), scope="none", client="stats_series")
async def list_trends_of_queues(call: Call, query: TrendsQuery) -> Listed:
    """List how many attempts ended when, of several queues, for small plots. All have the same times."""
    for name in query.queue:
        call.check_queue(name)
    names = [each.name for each in await visible_queues(call)] if call.user.has_all_queues else query.queue
    known = names if len(names) <= MAX_ROWS and set(query.queue) <= set(names) else query.queue
    found = await _shared_series(call, known, query.resolution, query.since)
    since = found.numbers.start // query.step * query.step * found.unit
    return Listed(items=[
        {
            "queue": name, "since": utc(since), "step_seconds": query.step * found.unit / 1000,
            "ended": found.ended(name, query.step),
        }
        for name in query.queue
    ])  # fmt: skip


async def _shared_series(
    call: Call, queues: Sequence[str], resolution: Resolution, since: str | None
) -> SeriesOfQueues:
    """Read the series of queues; a page asks for their sum and for their trends, as do all who look at it."""
    names = tuple(sorted(queues)) or (DEFAULT_QUEUE,)
    steps = series_of_queues(names, resolution=resolution, since=_read_since(since))
    return await shared(
        call, ("series", names, resolution, since), SERIES_FOR[resolution], lambda: run(call, steps), lasts=True
    )


@routes.get("/stats/series/queues", reply=ListOf(QUEUE_SERIES), scope="none", client="stats_series")
async def list_series_of_queues(call: Call, query: SeriesOfQueuesQuery) -> Listed:
    """List numbers per minute or hour of several queues: one or more calls of the store for each twenty of them.

    The series of all queues have the same minutes or hours. Of a queue that does not exist, all numbers are 0.
    """
    for name in query.queue:
        call.check_queue(name)
    found = await run(
        call,
        series_of_queues(
            query.queue, task=query.task, resolution=query.resolution, since=_read_since(query.since), until=query.until
        ),
    )
    return Listed(items=[{"queue": name, "points": SERIES.records(found.of_queue(name))} for name in query.queue])


async def _check(call: Call, queue: str | None) -> None:
    """Raise a problem unless the user has rights on a queue, or on all; NotFound if it does not exist."""
    if queue is None:
        call.check_all_queues()
    else:
        call.check_queue(queue)
        await find_queue(call, queue)


def _page(query: RowsQuery) -> ListQuery:
    return ListQuery(limit=query.limit, cursor=query.cursor)


def _read_since(text: str | None) -> Any:
    if text is None or is_duration(text):
        return text
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Invalid(
            f"since is {text[:60]!r}; it must be a date such as 2024-07-01, or a duration such as 7d"
        ) from None
