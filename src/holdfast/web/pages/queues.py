"""The page of all queues."""

from __future__ import annotations

import msgspec

from holdfast.web.call import Call
from holdfast.web.lists import WholeListQuery
from holdfast.web.pages.charts import bar_total
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.queues import list_queues

pages = Pages()

ON_PAGE = 100


class QueuesQuery(msgspec.Struct, frozen=True):
    cursor: str | None = None


@pages.get("/queues")
async def queues_page(call: Call, query: QueuesQuery) -> Page:
    """Queues with their number of jobs in each state."""
    found = await list_queues(call, query=WholeListQuery(limit=ON_PAGE, cursor=query.cursor))
    largest = max(map(bar_total, found.items), default=0)
    return Page(
        "queues.html", title="Queues", section="Queues", queues=found.items, largest=largest,
        next=found.next, is_first=query.cursor is None,
    )  # fmt: skip
