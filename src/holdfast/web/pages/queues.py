"""The page of all queues."""

from __future__ import annotations

from holdfast.web.call import Call
from holdfast.web.pages.charts import bar_total
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.queues import list_queues

pages = Pages()


@pages.get("/queues")
async def queues_page(call: Call) -> Page:
    """Queues with their number of jobs in each state."""
    queues = (await list_queues(call)).items
    largest = max(map(bar_total, queues), default=0)
    return Page("queues.html", title="Queues", section="Queues", queues=queues, largest=largest)
