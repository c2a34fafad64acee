"""Renews and releases the items that a program holds: the commands of its heartbeat."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.constants import MAX_BATCH
from holdfast.items.claim_slot import ClaimSlot, ClaimSlots
from holdfast.items.item import Item, Owner
from holdfast.store import Steps, commands

if TYPE_CHECKING:
    from holdfast.store import AsyncStore, Store


class Claims(Owner, Protocol):
    """The `Items` whose leases are renewed."""

    queue: str

    def request_claim(
        self, slot: ClaimSlot, limit: int, lease: int | None = None, *, leaves: bool
    ) -> Steps[commands.ClaimReply]: ...


class ItemRenewal:
    """Renews the leases of items. The program appears as a worker while it sends heartbeats."""

    def __init__(self, items: Claims) -> None:
        self.queue = items.queue
        self._items = items
        self._started = time.time()

    @property
    def store(self) -> Store:
        return self._items.store

    @property
    def async_store(self) -> AsyncStore:
        return self._items.async_store

    def renew_all(self, slots: ClaimSlots[Item]) -> Steps[None]:
        """Renew all leases, and report that this program is alive."""
        slots.held.warn_of_dropped(self.queue)
        leases = slots.held.leases()
        for first in range(0, len(leases) or 1, MAX_BATCH):
            batch, began = leases[first : first + MAX_BATCH], time.monotonic()
            renewed = yield commands.renew(slots.worker, batch, about=self._about(), queues=[self.queue])
            for lease in batch:
                if item := slots.held.get(lease):
                    item.was_renewed(began)
            for lost in renewed.lost:
                if item := slots.held.discard(lost):
                    item.is_lost = True
            for cancelled in renewed.cancelled:
                if item := slots.held.get(cancelled):
                    item.is_cancelled = True
        yield from self._release_unanswered(slots)

    def release_all(self, slots: ClaimSlots[Item]) -> Steps[None]:
        """Release the items that have not ended, and deregister."""
        yield from self._release_unanswered(slots)
        slots.held.warn_of_dropped(self.queue)
        for item in slots.held.items():
            yield from item._release_at_exit()
        while (yield commands.requeue_orphaned(worker=slots.worker, reason="the program has ended")):
            pass

    def _release_unanswered(self, slots: ClaimSlots[Item]) -> Steps[None]:
        """Release items that a cancelled or failed claim may have got without the program's knowledge."""
        while True:
            with slots.unanswered_slot() as slot:
                if slot is None:
                    return
                claim = yield from self._items.request_claim(slot, 1, leaves=True)
                for job in claim.jobs:
                    item = Item(self._items, job, slot.name)
                    yield from item._release(reason="the reply to its claim was lost", unstarted=True)

    def _about(self) -> str:
        about = {
            "pid": os.getpid(),
            "app": os.path.basename(sys.argv[0] or "python"),
            "kind": "program",
            "started": round(self._started * 1000),
        }
        return msgspec.json.encode(about).decode()
