"""The pages of limits: who holds a slot, who waits for one, and forms that change them."""

from __future__ import annotations

import msgspec

from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.lists import ListQuery
from holdfast.web.pages.formats import duration
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.limits import LimitQuery, list_limits, show_limit

pages = Pages()

PAGE = 100  # limits
SHOWN = 25  # keys, holders and waiting jobs of a limit


class LimitsPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which limits."""

    after: str | None = None  # the last limit of the page before


@pages.get("/limits")
async def limits_page(call: Call, query: LimitsPageQuery) -> Page:
    """Limits, and how many jobs hold or wait for a slot."""
    found = await list_limits(call, query=ListQuery(limit=PAGE, cursor=query.after))
    return Page(
        "limits.html", title="Limits", section="Limits", limits=found.items, next=found.next, query=query,
        capacity=capacity_in_words, live_every=5,
    )  # fmt: skip


@pages.get("/limits/{limit}")
async def limit_page(call: Call, limit: str) -> Page:
    """A limit, or one of its keys: who holds a slot, and who waits."""
    found = await show_limit(call, limit=limit, query=LimitQuery(limit=SHOWN))
    name, _, key = limit.partition(":")
    return Page(
        "limit.html", title=f"Limit {limit}", section="Limits", limit=found, given=limit, name=name, key=key,
        capacity=capacity_in_words, shown=SHOWN, live_every=5,
    )  # fmt: skip


def capacity_in_words(limit: Record, which: str = "") -> str:
    """Return what a limit allows, or what an app declares: 4 at once, 100 in 1 min."""
    slots, per = limit[f"{which}slots"], limit[f"{which}per_seconds"]
    if slots is None:
        return "not defined"
    return f"{slots:,} in {duration(per)}" if per else f"{slots:,} at once"
