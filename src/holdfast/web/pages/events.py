"""The page of events: what happened, and who did it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from holdfast.client.events import END
from holdfast.constants import MAX_BATCH
from holdfast.events.event import time_of
from holdfast.events.types import BY_NAME, TYPES
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.events import EventQuery, list_events

pages = Pages()

ROWS = 100
MAX_READS = 10  # pages of the store that are looked through for matches

# Kinds of events, by what people look for.
KINDS: dict[str, tuple[str, ...]] = {
    "All": (),
    "Actions": ("paused", "resumed", "configured", "cancelling", "cancelled", "moved", "deleted", "forked", "tracked"),
    "Problems": ("failed", "crashed", "lost", "timeout", "stalled", "rewound"),
    "Schedules": ("fired",),
}
# The glyph and its colour, as those of a state.
SHAPES = {
    "enqueued": ("waiting", "waiting"),
    "claimed": ("running", "running"),
    "saved": ("save", "running"),
    "succeeded": ("succeeded", "succeeded"),
    "failed": ("failed", "failed"),
    "cancelled": ("cancelled", "cancelled"),
    "cancelling": ("cancelled", "cancelled"),
    "retried": ("scheduled", "scheduled"),
    "released": ("released", "waiting"),
    "timeout": ("failed", "failed"),
    "stalled": ("failed", "failed"),
    "crashed": ("failed", "failed"),
    "lost": ("lost", "failed"),
    "paused": ("paused", "waiting"),
    "moved": ("released", "waiting"),
    "fired": ("scheduled", "scheduled"),
    "deleted": ("close", "cancelled"),
    "rewound": ("warn", "failed"),
    "gap": ("warn", "failed"),
}
PLACES = {"queue": "/queues/", "schedule": "/schedules/", "subscription": "", "limit": "/limits/", "batch": "/batches/"}
SINGLE = ("queue", "job", "worker", "tag", "scope")


class EventsPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events, and before which one."""

    type: list[str] = msgspec.field(default_factory=list)
    queue: str | None = None
    job: str | None = None
    worker: str | None = None
    tag: str | None = None
    scope: str | None = None
    tracked: bool = False
    before: str | None = None

    @property
    def types(self) -> list[str]:
        return [name for each in self.type for name in each.split(",") if name]

    @property
    def conditions(self) -> dict[str, Any]:
        """The filters that are given."""
        single = {name: getattr(self, name) for name in (*SINGLE, "tracked")}
        return {name: value for name, value in {"type": self.types, **single}.items() if value}


class Found(NamedTuple):
    events: list[Record]
    next: str | None  # the event before which the next page begins
    looked_at: str | None  # the last event that was compared; None: all that are kept


@pages.get("/events")
async def events_page(call: Call, query: EventsPageQuery) -> Page:
    """The latest events that match a filter."""
    conditions = query.conditions
    found = await find_events(call, conditions, query.before)
    others = {name: value for name, value in conditions.items() if name != "type"}
    return Page(
        "events.html", title="Events", section="Events", events=[shown(each) for each in found.events], query=query,
        conditions=conditions, next=found.next, back_to=_time(found.looked_at),
        older=address(call, conditions, before=found.next) if found.next else None, first=address(call, conditions),
        tabs=[
            (name, address(call, others, type=types), set(types) == set(query.types)) for name, types in KINDS.items()
        ],
        chips=_chips(call, conditions), type_choices=[(each.name, each.name.replace("_", " ")) for each in TYPES],
        meanings={each.name: each.meaning for each in TYPES}, address=_encode(conditions),
        cli=conditions, live_events=_encode(conditions),
    )  # fmt: skip


async def find_events(call: Call, conditions: dict[str, Any], before: str | None) -> Found:
    """Return a page of events, the latest first. With conditions, several pages of the store are looked through."""
    events: list[Record] = []
    place: str | None = before or END
    for _ in range(MAX_READS):
        limit = MAX_BATCH if conditions else ROWS
        page = await list_events(call, query=EventQuery(**conditions, limit=limit, before=place))
        events += page.items
        place = page.next
        if place is None or len(events) >= ROWS:
            break
    if len(events) > ROWS:
        place = events[ROWS - 1]["event"]
    return Found(events[:ROWS], place, place)


def shown(event: Record) -> Record:
    """Return an event with what a line of it needs."""
    about = BY_NAME[event["type"]].about if event["type"] in BY_NAME else "job"
    what = next((each["what"] for each in event["details"] if each.get("what")), "" if about == "job" else about)
    texts = dict.fromkeys(_details(each) for each in event["details"])
    shape, state = SHAPES.get(event["type"], ("dot", "waiting"))
    return {
        **event, "about": about, "what": "" if "," in what else what, "texts": [each for each in texts if each],
        "place": PLACES.get(what, "") if event["jobs"] != ["*"] else "", "shape": shape, "state": state,
    }  # fmt: skip


def _details(details: dict[str, str]) -> str:
    """Return the details of a job as a line: by ann, reason: wrong file."""
    return ", ".join(
        f"{name.replace('_', ' ')}: {value}" for name, value in details.items() if value and name != "what"
    )


def _time(position: str | None) -> datetime | None:
    return time_of(position) if position else None


def _chips(call: Call, conditions: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the filters for which the form has no field, with the addresses of the page without each."""
    found = []
    for name, value in conditions.items():
        if name not in ("scope", "tracked"):
            continue
        text = "yes" if value is True else value
        rest = {other: each for other, each in conditions.items() if other != name}
        found.append((name, text, address(call, rest)))
    return found


def address(call: Call, conditions: dict[str, Any], **more: Any) -> str:
    query = _encode({**conditions, **more})
    return call.url(f"/events?{query}" if query else "/events")


def _encode(conditions: dict[str, Any]) -> str:
    given = {name: "true" if value is True else value for name, value in conditions.items() if value}
    return urlencode(given, doseq=True)
