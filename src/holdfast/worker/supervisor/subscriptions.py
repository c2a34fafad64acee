"""The subscriptions of a worker: it declares those of its app, and delivers events to their handlers, as jobs.

    events after the position ──select──▶ matching ones ──deliver, in one call──▶ jobs, and a new position

One worker at a time reads for a subscription; it holds a lease, which others take over when it ends. A delivery
enqueues the jobs and moves the position together, unless somebody else has moved it (`store/lua/subscriptions.lua`), so
neither a death nor two readers lose or repeat an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast import errors
from holdfast.client.events import read_request
from holdfast.events.handlers import MAX_JOBS, HandlerSpec
from holdfast.store import commands
from holdfast.store.commands import EventPage, LeasedSubscription
from holdfast.worker.event_loop import wait_for_first
from holdfast.worker.linux import boot_time
from holdfast.worker.retrying_store import RetryingStore

log = logging.getLogger("holdfast.worker")

LEASE = 15_000  # milliseconds
LEASE_INTERVAL = 5.0  # seconds between renewals
MIN_READ_INTERVAL = 0.1  # seconds between two reads that find few events
PAGE = 500  # events that one call looks at

Declaration = dict[str, Any]


@dataclass
class Held:
    """A subscription that this worker holds."""

    name: str
    spec: HandlerSpec
    text: str  # of the spec
    stored: str  # its position in the store
    position: str  # of the last event that was looked at


class WorkerSubscriptions:
    """Declares subscriptions, and delivers their events."""

    def __init__(self, worker: str, store: RetryingStore) -> None:
        self._worker = worker
        self._store = store
        self._names: list[str] = []
        self._held: dict[str, Held] = {}
        self._key = b""  # of the stream
        self._leased_at = -LEASE_INTERVAL
        self._has_changed = asyncio.Event()
        self._logged: dict[str, str] = {}  # the last error of each subscription

    async def declare(self, declarations: Iterable[Declaration], *, after_loss: bool = False) -> None:
        """Declare subscriptions. After a loss of data, those that are gone begin anew, and tell their handlers."""
        declared = list(declarations)
        for declaration in declared:
            await self._declare({**declaration, "start": "gap"} if after_loss else declaration)
        self._names = [declaration["name"] for declaration in declared]
        self._leased_at = -LEASE_INTERVAL
        self._has_changed.set()

    async def _declare(self, declaration: Declaration) -> None:
        name = declaration["name"]
        try:
            if await self._store.run(commands.declare_subscription(**declaration)):
                log.info("subscription %s is declared", name)
        except errors.WrongState as error:
            log.warning("%s; the newer declaration stays in effect", error)
        except errors.HoldfastError as error:
            log.error("subscription %s is not declared: %s", name, error)

    async def run(self) -> None:
        """Deliver events to the handlers of the app for as long as the worker runs."""
        self._held = {}  # after an error, positions may be ahead of what was delivered
        self._leased_at = -LEASE_INTERVAL
        while True:
            self._has_changed.clear()
            if self._names:
                await self._lease()
                await self._deliver_all()
                await self._wait()
            else:
                await self._has_changed.wait()

    async def give_back(self) -> None:
        """Give the leases back when the worker stops, so that others need not wait for their end."""
        held, self._held, self._names = list(self._held), {}, []
        if held:
            await self._store.run(commands.lease_subscriptions(held, self._worker, 0))

    # Leases

    async def _lease(self) -> None:
        """Renew the leases, and store positions that have moved, if it is time."""
        if boot_time() - self._leased_at < LEASE_INTERVAL:
            return
        for held in list(self._held.values()):
            if held.position != held.stored:
                with self._containing([held]):
                    await self._move(held)
        leased = await self._store.run(commands.lease_subscriptions(self._names, self._worker, LEASE))
        self._leased_at = boot_time()
        found = {each.name: self._hold(each) for each in leased if not each.is_paused}
        self._held = {name: held for name, held in found.items() if held}
        if unreadable := found.keys() - self._held.keys():
            await self._store.run(commands.lease_subscriptions(sorted(unreadable), self._worker, 0))

    def _hold(self, found: LeasedSubscription) -> Held | None:
        """Return what is held, with the position that this worker has read to; None if it cannot read the spec."""
        known = self._held.get(found.name)
        if known and known.stored == found.position and known.text == found.spec:
            return known
        try:
            spec = HandlerSpec.decode(found.spec)
        except msgspec.MsgspecError as error:
            self._log_once(found.name, f"a newer release declared it, and must deliver its events: {error}")
            return None
        return Held(found.name, spec, found.spec, found.position, found.position)

    # Delivering

    async def _deliver_all(self) -> None:
        """Read on from each position, until nothing is left or the leases must be renewed."""
        reading = set(self._held)
        while reading and boot_time() - self._leased_at < LEASE_INTERVAL:
            for position in {self._held[name].position for name in reading}:
                group = [held for name in reading if (held := self._held.get(name)) and held.position == position]
                with self._containing(group):
                    page = await self._read(position, group)
                    for held in group:
                        with self._containing([held]):
                            await self._deliver_page(held, page)
                    if not page.has_more:
                        reading -= {held.name for held in group}
            reading &= self._held.keys()

    @contextmanager
    def _containing(self, group: Iterable[Held]) -> Iterator[None]:
        """Give up subscriptions for which the store refuses a call until the next renewal, so that others go on."""
        try:
            yield
        except (errors.StoreUnavailable, errors.StoreFull):
            raise
        except errors.HoldfastError as error:
            for held in group:
                self._held.pop(held.name, None)
                self._log_once(held.name, str(error))

    async def _read(self, position: str, group: list[Held]) -> EventPage:
        types = {kind for held in group for kind in held.spec.filter.types}
        page = await self._store.run(commands.events(position, limit=PAGE, types=sorted(types)))
        self._key = page.key
        return page

    async def _deliver_page(self, held: Held, page: EventPage) -> None:
        """Deliver the events of a page in steps of up to `MAX_JOBS` jobs, each with whole events."""
        jobs: list[tuple[str, bytes]] = []
        for event in page.events:
            new = list(held.spec.jobs(held.name, event))
            if jobs and len(jobs) + len(new) > MAX_JOBS and not await self._move(held, jobs):
                return
            jobs = [*jobs, *new] if len(jobs) + len(new) <= MAX_JOBS else new
            held.position = event.id
        if jobs and not await self._move(held, jobs):
            return
        held.position = page.position or held.position

    async def _move(self, held: Held, jobs: Iterable[tuple[str, bytes]] = ()) -> bool:
        """Enqueue jobs and store the position. If somebody else has moved it, give up the subscription."""
        try:
            command = commands.deliver(held.name, self._worker, held.stored, held.position, list(jobs))
            stored, moved = await self._store.run(command)
        except errors.SubscriptionNotFound:
            stored, moved = "", False
        if moved or stored == held.position:  # or the reply to the first of two calls was lost
            held.stored = stored
            self._logged.pop(held.name, None)
            return True
        self._held.pop(held.name, None)
        return False

    async def _wait(self) -> None:
        """Wait for the next event; without a subscription, until leases are tried again."""
        began = boot_time()
        left = max(MIN_READ_INTERVAL, self._leased_at + LEASE_INTERVAL - began)
        if not self._held:
            await wait_for_first(self._has_changed.wait(), timeout=left)
            return
        position = max((held.position for held in self._held.values()), key=_order)
        store = await self._store.connected()
        try:
            await store.execute(*read_request(self._key, position, left), blocks=left)
        except errors.StoreUnavailable:
            log.debug("the store is unavailable; events are read again when it is back")
        await asyncio.sleep(max(0.0, began + MIN_READ_INTERVAL - boot_time()))

    def _log_once(self, name: str, error: str) -> None:
        if self._logged.get(name) != error:
            self._logged[name] = error
            log.error("subscription %s: %s", name, error)


def _order(position: str) -> tuple[int, int]:
    """Return an order of positions."""
    milliseconds, _, number = position.lstrip("=").partition("-")
    return (int(milliseconds), int(number)) if milliseconds.isdigit() else (0, 0)
