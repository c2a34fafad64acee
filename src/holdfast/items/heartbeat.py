"""The heartbeat of a program that claims items: it renews their leases while the program is inside of `with`.

A thread sends it, or in an asyncio program a task: one command for all leases, when the first of them has lost a
quarter, or after ten seconds. Nobody waits for it. An item that the program has dropped is not renewed.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast import errors
from holdfast.constants import MAX_BATCH
from holdfast.items.claim_slot import ClaimSlots, Holder
from holdfast.items.item import Item
from holdfast.store import Steps, client_method, commands

if TYPE_CHECKING:
    import asyncio

    from holdfast.items.items import Items
    from holdfast.store import AsyncStore, Store

SIGN_EVERY = 10.0  # seconds, at most
AWAY = 0.5  # seconds until the next try, while the store is away

_TWICE = "these items are inside of `with` already; call jobs.items() again to have others"

log = logging.getLogger(__name__)


class Heartbeat:
    """Keeps what the programs of some `Items` hold. A forked process that holds something has a thread of its own."""

    def __init__(self, items: Items, slots: ClaimSlots) -> None:
        self._items = items
        self._slots = slots
        self._started = time.time()
        self._due = math.inf  # when to sign next; whoever holds what is due sooner says so
        self._say_sooner: Callable[[], object] = lambda: None
        self._is_away = False
        self._over = True
        self._thread: threading.Thread | None = None
        self._thread_holder: Holder | None = None  # whose thread it is
        self._task: asyncio.Task[None] | None = None

    @property
    def store(self) -> Store:
        return self._items.store

    @property
    def async_store(self) -> AsyncStore:
        return self._items.async_store

    def look_at(self, item: Item) -> None:
        """See to it that an item which was claimed just now is renewed in time."""
        holder = self._slots.holder
        if self._thread and self._thread_holder is not holder:  # forked: the thread is not here
            with holder.lock:
                if self._thread_holder is not holder:
                    self.start()
        if item.renew_at < self._due:
            self._say_sooner()

    def _sign(self) -> Steps[None]:
        """Renew all leases and give a sign of life."""
        holder = self._slots.holder
        holder.held.warn_of_dropped(self._items.queue)
        held = holder.held.leases()
        for first in range(0, len(held) or 1, MAX_BATCH):
            part, began = held[first : first + MAX_BATCH], time.monotonic()
            renewed = yield commands.renew(holder.worker, part, about=self._about(), queues=[self._items.queue])
            for lease in part:
                if item := holder.held.get(lease):
                    item.was_renewed(began)
            for lost in renewed.lost:
                if item := holder.held.discard(lost):
                    item.is_lost = True
            for cancelled in renewed.cancelled:
                if item := holder.held.get(cancelled):
                    item.is_cancelled = True
        yield from self._give_back_unheard(holder)

    sign, asign = client_method(_sign)

    def _give_back_unheard(self, holder: Holder) -> Steps[None]:
        """A claim that was cancelled, or broke, may have got items of which nobody knows."""
        while True:
            with holder.unanswered_slot() as slot:
                if slot is None:
                    return
                claim = yield from self._items.ask(slot, 1, leaves=True)
                for job in claim.jobs:
                    item = Item(self._items, job, slot.name)
                    yield from item._release(reason="its claim was not heard", unstarted=True)

    def _leave(self) -> Steps[None]:
        """Give back what was not completed, and be forgotten as a worker."""
        holder = self._slots.holder
        yield from self._give_back_unheard(holder)
        holder.held.warn_of_dropped(self._items.queue)
        for item in holder.held.items():
            yield from item._give_back()
        while (yield commands.requeue_orphaned(worker=holder.worker, reason="the program has ended")):
            pass

    leave, aleave = client_method(_leave)

    def _about(self) -> str:
        about = {
            "pid": os.getpid(),
            "app": os.path.basename(sys.argv[0] or "python"),
            "kind": "program",
            "started": round(self._started * 1000),
        }
        return msgspec.json.encode(about).decode()

    def _next_due(self) -> float:
        """When to sign again."""
        times = [item.renew_at for item in self._slots.holder.held.items()]
        return min([time.monotonic() + (AWAY if self._is_away else SIGN_EVERY), *([] if self._is_away else times)])

    def _note(self, error: errors.HoldfastError | None) -> None:
        """Say once that leases cannot be renewed: they are spared as long as nobody can reach the store."""
        if error and not self._is_away:
            log.warning("leases of items of %s cannot be renewed now: %s", self._items.queue, error)
        self._is_away = error is not None

    # In a thread

    def start(self) -> None:
        if self._thread and self._thread_holder is self._slots.holder:
            raise errors.Invalid(_TWICE)
        sooner = threading.Event()
        self._due, self._say_sooner, self._over = math.inf, sooner.set, False
        self._thread_holder = self._slots.holder
        self._thread = threading.Thread(target=self._keep_up, args=[sooner], name="holdfast-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self._say_sooner()
        if self._thread and self._thread_holder is self._slots.holder:
            self._thread.join()
        self._thread = None
        try:
            self.leave()
        except errors.StoreUnavailable as error:
            self._note(error)  # what is held comes back when its leases end

    def _keep_up(self, sooner: threading.Event) -> None:
        while not self._over:
            try:
                self.sign()
            except errors.HoldfastError as error:
                self._note(error)
            else:
                self._note(None)
            self._due = math.inf  # before looking: what comes from now on wakes us
            sooner.clear()
            self._due = self._next_due()
            if not self._over:
                sooner.wait(max(0.0, self._due - time.monotonic()))

    # In an event loop

    async def astart(self) -> None:
        import asyncio

        if self._task or self._thread:
            raise errors.Invalid(_TWICE)
        sooner, loop = asyncio.Event(), asyncio.get_running_loop()
        self._due, self._say_sooner = math.inf, lambda: loop.call_soon_threadsafe(sooner.set)
        self._task = asyncio.create_task(self._akeep_up(sooner), name="holdfast-heartbeat")

    async def astop(self) -> None:
        import asyncio

        self._say_sooner = lambda: None
        while self._task and not self._task.done():  # once is not always enough: see `cancel_all` of the worker
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.1)
        self._task = None
        try:
            await self.aleave()
        except errors.StoreUnavailable as error:
            self._note(error)

    async def _akeep_up(self, sooner: asyncio.Event) -> None:
        import asyncio

        while True:
            try:
                await self.asign()
            except errors.HoldfastError as error:
                self._note(error)
            else:
                self._note(None)
            self._due = math.inf
            sooner.clear()
            self._due = self._next_due()
            try:
                async with asyncio.timeout(max(0.0, self._due - time.monotonic())):
                    await sooner.wait()
            except TimeoutError:
                continue
