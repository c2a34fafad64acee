"""The page of all queues, and the page of one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import msgspec

from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.lists import WholeListQuery
from holdfast.web.pages.charts import bar_total
from holdfast.web.pages.page import Page, Pages
from holdfast.web.pages.periods import read_series, trends_of
from holdfast.web.resources.queues import LoadQuery, list_queues, show_load

pages = Pages()

ROWS = 100  # of a page


class QueuesQuery(msgspec.Struct, frozen=True):
    cursor: str | None = None


@pages.get("/queues")
async def queues_page(call: Call, query: QueuesQuery) -> Page:
    """Queues with their number of jobs in each state."""
    found = await list_queues(call, query=WholeListQuery(limit=ROWS, cursor=query.cursor))
    queues: list[Record] = found.items
    names = [each["queue"] for each in sorted(queues, key=lambda each: -bar_total(each))]
    load, series = await asyncio.gather(
        show_load(call, query=LoadQuery(queue=names)), read_series(call, names, "minute", timedelta(hours=3))
    )
    return Page(
        "queues.html", title="Queues", section="Queues", queues=queues, load=load if names else None,
        loads={each["queue"]: each for each in load["queues"]} if names else {},
        trends=trends_of(series, datetime.now(UTC)), largest=max(map(bar_total, queues), default=0),
        next=call.url(f"/queues?{urlencode({'cursor': found.next})}") if found.next else None,
        first=call.url("/queues") if query.cursor else None, live_every=5,
    )  # fmt: skip
