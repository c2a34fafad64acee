"""The page of subscriptions: which handler runs for which events, and how far each lags behind."""

from __future__ import annotations

from holdfast.web.call import Call
from holdfast.web.lists import ListQuery
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.subscriptions import list_subscriptions

pages = Pages()

LAGGING = 60  # seconds


@pages.get("/subscriptions")
async def subscriptions_page(call: Call, query: ListQuery) -> Page:
    """Subscriptions of event handlers."""
    found = await list_subscriptions(call, query=query)
    return Page(
        "subscriptions.html", title="Subscriptions", section="Subscriptions", subscriptions=found.items,
        next=found.next, query=query, lagging=LAGGING, live_events="type=paused,resumed,configured", live_every=5,
    )  # fmt: skip
