"""ClaimSlots: under which names a program claims, without a worker around it.

A claim that is made again, because its answer was lost, gets the same jobs: that is known by the executor's name and a
number that rises. So one that is under way has a name to itself, a slot; there are as many as claims at once.

The items that a process holds, without keeping them alive: one that the program has dropped is renewed no more.

A weak reference says that an item is gone, at any moment and in any thread, even in the middle of a garbage
collection. So that only takes it off the list; the next claim or heartbeat logs it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from holdfast.names import new_id, node_name

if TYPE_CHECKING:
    from holdfast.items.item import Item
    from holdfast.store.commands import Lease


class ClaimSlot:
    """The name of one executor, and its claims."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_idle = False
        self.unanswered: dict[str, Any] | None = None
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number


class Holder:
    """The slots of one process, under the name of a worker, and what it holds."""

    def __init__(self) -> None:
        self.worker = f"{node_name()}/{new_id()[-8:]}"
        self.held = HeldItems()
        self._free: list[ClaimSlot] = []
        self._count = 0
        self.lock = threading.Lock()

    @contextmanager
    def slot(self) -> Iterator[ClaimSlot]:
        """Have a slot to oneself: one whose question is unanswered, else the one that was free last."""
        slot = self._take_unanswered() or self._take_last()
        try:
            yield slot
        finally:
            self._free.append(slot)

    @contextmanager
    def unanswered_slot(self) -> Iterator[ClaimSlot | None]:
        """Have a slot that nobody sits on and whose question was never answered, if there is one."""
        slot = self._take_unanswered()
        try:
            yield slot
        finally:
            if slot:
                self._free.append(slot)

    def _take_unanswered(self) -> ClaimSlot | None:
        with self.lock:
            slot = next((slot for slot in self._free if slot.unanswered), None)
            if slot:
                self._free.remove(slot)
            return slot

    def _take_last(self) -> ClaimSlot:
        with self.lock:
            if self._free:
                return self._free.pop()
            self._count += 1
            return ClaimSlot(f"{self.worker}.{self._count}")


class ClaimSlots:
    """The holder of this process. One that is forked has another, from its first moment."""

    def __init__(self) -> None:
        self.holder = Holder()
        _all.add(self)

    def renew(self) -> None:
        self.holder = Holder()


_all: WeakSet[ClaimSlots] = WeakSet()


def _after_fork() -> None:
    for slots in list(_all):
        slots.renew()


os.register_at_fork(after_in_child=_after_fork)


_DROPPED = (
    "item %s of %s was dropped: it was not completed, failed or released, and nothing refers to it any more. Its lease"
    " is not renewed; when that has ended, the item is handed out again. Write `with items.claim() as item:`, or keep"
    " the item until it has ended. (This is logged once per process.)"
)
_has_warned = False

log = logging.getLogger("holdfast.items")


class _Reference(ref["Item"]):
    """A weak reference that knows which lease its item had."""

    held: Lease


class HeldItems:
    """The items of one process that have not ended, by their leases."""

    def __init__(self) -> None:
        self._references: dict[Lease, _Reference] = {}
        self._dropped: Lease | None = None  # the last one, until it is logged

    def add(self, item: Item) -> None:
        reference = _Reference(item, self._drop)
        reference.held = item.held
        self._references[item.held] = reference

    def discard(self, held: Lease) -> Item | None:
        """The item has ended. Returns it, unless it was dropped."""
        reference = self._references.pop(held, None)
        return reference() if reference else None

    def get(self, held: Lease) -> Item | None:
        reference = self._references.get(held)
        return reference() if reference else None

    def leases(self) -> list[Lease]:
        return list(self._references)

    def items(self) -> list[Item]:
        return [item for reference in list(self._references.values()) if (item := reference())]

    def _drop(self, reference: ref[Item]) -> None:
        held = reference.held  # type: ignore[attr-defined]
        if self._references.pop(held, None):
            self._dropped = held

    def warn_of_dropped(self, queue: str) -> None:
        """Log that an item was dropped, once per process."""
        global _has_warned  # noqa: PLW0603
        dropped, self._dropped = self._dropped, None
        if dropped and not _has_warned:
            _has_warned = True
            log.warning(_DROPPED, dropped.id, queue)
