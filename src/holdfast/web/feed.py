"""Events for all followers: one reader for each web process, for any number of followers.

    store ──▶ reader ──▶ queue of each follower ──▶ stream
                              │ full: the follower is slow
                              └──▶ it reads on from the store, at its own pace

A follower begins with what the store has after its position, then takes what the reader hands out. Its queue is
bounded: if it overflows, it is emptied, and the follower begins again from the last event that it has sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from weakref import WeakKeyDictionary

from holdfast.app import Holdfast
from holdfast.client.events import RETRY_INTERVAL, START, EventReader
from holdfast.errors import StoreUnavailable
from holdfast.events.event import Event
from holdfast.events.filter import EventFilter
from holdfast.store import adrive
from holdfast.web.background import background_of

MAX_QUEUED = 500  # events of one follower

_EVERYTHING = EventFilter()
_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Holdfast, Feed]] = WeakKeyDictionary()


class Follower:
    """The queue of one who follows events."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self.overflowed = False
        self.closed = False  # nobody reads any more

    def put(self, event: Event) -> None:
        if len(self._events) >= MAX_QUEUED:
            self.overflowed = True
        if not self.overflowed:
            self._events.append(event)
        self._news.set()

    def close(self) -> None:
        self.closed = True
        self._news.set()

    async def take(self) -> list[Event]:
        """Wait for events, and return them."""
        await self._news.wait()
        self._news.clear()
        found = list(self._events)
        self._events.clear()
        return found

    def begin_again(self) -> None:
        self._events.clear()
        self.overflowed = False


class Feed:
    """Reads the events of an app while somebody follows them."""

    def __init__(self) -> None:
        self._followers: set[Follower] = set()
        self._begun = asyncio.Event()  # once the reader has a position
        self.readers = 0  # how often one was started

    async def join(self, app: Holdfast) -> Follower:
        """Add a follower, which gets all events from now on."""
        follower = Follower()
        self._followers.add(follower)
        background_of(app).start("events", self._read(app))
        await self._begun.wait()
        return follower

    def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)

    async def _read(self, app: Holdfast) -> None:
        """Hand out events until nobody follows them."""
        reader = EventReader(_EVERYTHING, None)
        self.readers += 1
        try:
            while self._followers:
                try:
                    if reader.position is None:
                        await adrive(reader.begin(), app.async_store.run)
                    self._begun.set()
                    self._hand_out(await adrive(reader.poll(app), app.async_store.run))
                except StoreUnavailable:
                    await asyncio.sleep(RETRY_INTERVAL)
        finally:
            for follower in self._followers:
                follower.close()
            self._begun.set()  # wakes those who wait for it
            self._begun.clear()

    def _hand_out(self, events: list[Event]) -> None:
        for event in events:
            for follower in self._followers:
                follower.put(event)


def feed_of(app: Holdfast) -> Feed:
    """Return the feed of an app in this event loop."""
    of_apps = _feeds.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    return of_apps.setdefault(app, Feed())


async def follow(app: Holdfast, selects: EventFilter, after: str | None) -> AsyncIterator[Event]:
    """Yield the events that match, after a position or from now on, as long as the process reads events."""
    feed, position = feed_of(app), after
    follower = await feed.join(app)
    try:
        while not follower.closed:
            follower.begin_again()
            reader = EventReader(selects, position)
            async for event in _stored(app, reader):
                yield event
            position = reader.position or "0-0"
            while not (follower.overflowed or follower.closed):
                for event in await follower.take():
                    if _place(event.id) > _place(position):
                        position = event.id
                        if selected := selects.select(event):
                            yield selected
    finally:
        feed.leave(follower)


async def _stored(app: Holdfast, reader: EventReader) -> AsyncIterator[Event]:
    """Yield what the store has after the position of a reader; without one, it gets that of the latest event."""
    while reader.position is None or reader.may_have_more:
        try:
            if reader.position is None:
                await adrive(reader.begin(), app.async_store.run)
            found = await adrive(reader.poll(app), app.async_store.run)
        except StoreUnavailable:
            await asyncio.sleep(RETRY_INTERVAL)
            continue
        for event in found:
            yield event


def _place(id: str) -> tuple[int, int, bool]:
    """Return where an event is in the stream; a gap is before the event that it names."""
    if id == START:
        return 0, 0, False
    time, _, number = id.lstrip("=").partition("-")
    return int(time), int(number), not id.startswith("=")
