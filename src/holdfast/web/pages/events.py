"""The page of events: what happened, and who did it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec

from holdfast.events.types import BY_NAME, TYPES
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.events import EventQuery, list_events

pages = Pages()

# What people and programs do, rather than what follows from it: the audit.
ACTIONS = (
    "paused",
    "resumed",
    "configured",
    "cancelling",
    "cancelled",
    "moved",
    "deleted",
    "retried",
    "forked",
    "tracked",
    "untracked",
)
# Glyphs of types of events: a shape and a state that gives the colour.
SHAPES = {
    "enqueued": ("waiting", "waiting"), "claimed": ("running", "running"), "saved": ("save", "running"),
    "succeeded": ("succeeded", "succeeded"), "failed": ("failed", "failed"), "cancelled": ("cancelled", "cancelled"),
    "cancelling": ("cancelled", "cancelled"), "retried": ("scheduled", "scheduled"),
    "released": ("released", "waiting"), "timeout": ("failed", "failed"),
    "stalled": ("failed", "failed"), "crashed": ("failed", "failed"),
    "lost": ("lost", "failed"), "paused": ("paused", "waiting"), "fired": ("scheduled", "scheduled"),
    "deleted": ("close", "cancelled"), "rewound": ("warn", "failed"), "gap": ("warn", "failed"),
}  # fmt: skip


class EventsPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events."""

    type: list[str] = msgspec.field(default_factory=list)
    queue: str | None = None
    job: str | None = None
    worker: str | None = None
    tag: str | None = None
    scope: str | None = None
    tracked: bool = False
    after: str | None = None

    @property
    def conditions(self) -> dict[str, Any]:
        """The filters that are given."""
        found = {name: getattr(self, name) for name in ("type", "queue", "job", "worker", "tag", "scope", "tracked")}
        return {name: value for name, value in found.items() if value}


@pages.get("/events")
async def events_page(call: Call, query: EventsPageQuery) -> Page:
    """The latest events that match a filter."""
    conditions = query.conditions
    found = await list_events(call, query=EventQuery(**conditions, limit=100, cursor=query.after))
    followed = {name: "true" if value is True else value for name, value in conditions.items()}
    return Page(
        "events.html", title="Events", section="Events", events=[shown(each) for each in found.items[::-1]],
        query=query, conditions=conditions, actions_of_people=ACTIONS, types=TYPES,
        live_events=urlencode(followed, doseq=True),
    )  # fmt: skip


def shown(event: Record) -> Record:
    """Return an event with what a line of it needs."""
    about = BY_NAME[event["type"]].about if event["type"] in BY_NAME else "job"
    details = dict.fromkeys(" ".join(f"{key}={value}" for key, value in each.items()) for each in event["details"])
    shape, state = SHAPES.get(event["type"], ("dot", "waiting"))
    return {**event, "about": about, "texts": [each for each in details if each], "shape": shape, "state": state}
