"""Events: read them, or follow them as they happen.

    for event in jobs.subscribe(queue="mail", types=["failed"]):
        print(event.job, event.detail["group"])

A reader asks the store for what is new, then blocks on the stream until there is more. However busy the stream is, it
reads at most ten times a second, unless it lags behind. Conditions are tested here, not in the server.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypedDict, Unpack

from holdfast.constants import DEFAULT_PAGE, MAX_BATCH
from holdfast.errors import Invalid, StoreUnavailable
from holdfast.events.event import Event
from holdfast.events.filter import EventFilter
from holdfast.store import Action, Steps, Stores, adrive, commands, drive
from holdfast.store.driver import sleep

START = "start"  # the position before the first event that is kept
END = "end"  # that after the latest
_ID = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)
MIN_READ_INTERVAL = 0.1  # seconds between two reads that find few events
MAX_WAIT = 5.0  # seconds that a reader blocks
RETRY_INTERVAL = 1.0  # seconds between attempts to reach a store that is unavailable


class HandlerConditions(TypedDict, total=False):
    """Conditions on events besides their types, which must all be true; see `subscribe`."""

    queue: str | None
    job: str | None
    worker: str | None
    tag: str | None
    scope: str | None
    tracked: bool


class EventConditions(HandlerConditions, total=False):
    """Conditions on events, which must all be true; see `subscribe`."""

    types: str | Sequence[str] | None


def events(
    _: Stores, after: str | None = None, *, limit: int = DEFAULT_PAGE, **conditions: Unpack[EventConditions]
) -> Steps[list[Event]]:
    """Return the events after a given one, or the latest.

    Of `limit` events, up to 1,000, those that match the conditions are returned; `subscribe` has the conditions.
    """
    page = yield from event_page(after, limit=limit, selects=EventFilter.of(**conditions))
    return page.events


def event_page(after: str | None, *, limit: int, selects: EventFilter) -> Steps[commands.EventPage]:
    """Return what `events` does, and where to read on."""
    page: commands.EventPage = yield commands.events(_check_position(after), limit=limit, types=selects.types)
    return page._replace(events=[event for event in map(selects.select, page.events) if event])


def earlier_events(before: str | None, *, limit: int, selects: EventFilter) -> Steps[commands.EventPage]:
    """Return the events before a given one, or the latest, which come first; and where to read on."""
    if before is not None and before != END and not _ID.fullmatch(before):
        raise Invalid(f"expected the id of an event, or {END}, got {before[:60]!r}")
    page: commands.EventPage = yield commands.events(before=before or END, limit=limit, types=selects.types)
    return page._replace(events=[event for event in map(selects.select, page.events) if event])


def subscribe(self: Stores, *, after: str | None = None, **conditions: Unpack[EventConditions]) -> Iterator[Event]:
    """Iterate over events as they happen, without end.

    `types` is one type or several; `queue`, `job`, `tag`, `scope` and `tracked` are conditions on the job, and `worker`
    is the node, worker or executor that caused the event. Of an event with several jobs, only those that match are
    yielded.

    It begins now, or `after` the event with this id, or with "start" at the oldest event that is kept. If events after
    that are no longer kept, an event of the type `gap` comes first. During an outage it waits, and then continues.
    """
    reader = EventReader(EventFilter.of(**conditions), after)
    drive(reader.begin(), self.store.run)
    return _follow(self, reader)


def _follow(stores: Stores, reader: EventReader) -> Iterator[Event]:
    while True:
        try:
            yield from drive(reader.poll(stores), stores.store.run)
        except StoreUnavailable:
            time.sleep(RETRY_INTERVAL)


async def asubscribe(
    self: Stores, *, after: str | None = None, **conditions: Unpack[EventConditions]
) -> AsyncIterator[Event]:
    """Iterate over events, like `subscribe`. Without `after`, it begins with the first iteration."""
    import asyncio

    reader = EventReader(EventFilter.of(**conditions), after)
    await adrive(reader.begin(), self.async_store.run)
    while True:
        try:
            found = await adrive(reader.poll(self), self.async_store.run)
        except StoreUnavailable:
            await asyncio.sleep(RETRY_INTERVAL)
            continue
        for event in found:
            yield event


class EventReader:
    """Reads on from a position."""

    def __init__(self, selects: EventFilter, after: str | None, *, max_wait: float = MAX_WAIT) -> None:
        self._selects = selects
        self._max_wait = max_wait
        self._position = _check_position(after)
        self._key = b""  # of the stream
        self.may_have_more = True
        self._read_at = 0.0

    @property
    def position(self) -> str | None:
        """The id of the last event that was looked at; None before `begin`."""
        return self._position

    def begin(self) -> Steps[None]:
        """Begin after the latest event, if no position was given."""
        if self._position is None:
            page: commands.EventPage = yield commands.events(limit=1)
            self._position, self._key = page.position or "0-0", page.key

    def poll(self, stores: Stores) -> Steps[list[Event]]:
        """Return the next events that match, perhaps none; wait until there are some that might."""
        if not self.may_have_more:
            yield wait_for_events(stores, self._key, self._position or "0-0", self._max_wait)
            yield sleep(max(0.0, self._read_at + MIN_READ_INTERVAL - time.monotonic()))
        self._read_at = time.monotonic()
        page: commands.EventPage = yield commands.events(self._position, limit=MAX_BATCH, types=self._selects.types)
        self._position, self._key = page.position or self._position, page.key
        self.may_have_more = page.has_more
        return [event for event in map(self._selects.select, page.events) if event]


def wait_for_events(stores: Stores, key: bytes, after: str, seconds: float) -> Action[Any]:
    """Wait at most `seconds` for an event after a position."""
    request = read_request(key, after, seconds)
    return Action(
        lambda: stores.store.execute(*request, blocks=seconds),
        lambda: stores.async_store.execute(*request, blocks=seconds),
    )


def read_request(key: bytes, after: str, seconds: float) -> tuple[Any, ...]:
    """Return the command that blocks until there is an event after a position."""
    known = after if after[:1].isdigit() else "0-0"
    return "XREAD", "COUNT", 1, "BLOCK", max(1, int(seconds * 1000)), "STREAMS", key, known


def _check_position(after: Any) -> str | None:
    if after is None or (isinstance(after, str) and after):
        return after
    raise Invalid(f'after is {after!r}; it must be the id of an event, or "{START}"')
