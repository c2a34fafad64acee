"""Claim slots: the executor names under which a program without a worker claims items.

A claim that is repeated because its reply was lost gets the same items: the store recognises it by the executor's name
and an increasing number. So each concurrent claim has a slot, with a name of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic
from weakref import WeakSet

from holdfast.items.held_items import HeldItems, I
from holdfast.names import new_id, node_name


class ClaimSlot:
    """The name of one executor, the number of its last claim, and a claim whose reply was lost."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_idle = False
        self.unanswered: dict[str, Any] | None = None
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number


class ClaimSlots(Generic[I]):
    """The claim slots of one process, under one worker name, and the items that it holds."""

    def __init__(self) -> None:
        self.worker = f"{node_name()}/{new_id()[-8:]}"
        self.held = HeldItems[I]()
        self._free: list[ClaimSlot] = []
        self._count = 0
        self.lock = threading.Lock()

    @contextmanager
    def slot(self) -> Iterator[ClaimSlot]:
        """Take a free slot: one with an unanswered claim, else the last used one, else a new one."""
        slot = self._take_unanswered() or self._take_last()
        try:
            yield slot
        finally:
            self._free.append(slot)

    @contextmanager
    def unanswered_slot(self) -> Iterator[ClaimSlot | None]:
        """Take a free slot with an unanswered claim, if there is one."""
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


class ProcessSlots(Generic[I]):
    """The claim slots of this process; a forked child starts with its own."""

    def __init__(self) -> None:
        self.current = ClaimSlots[I]()
        _all.add(self)


_all: WeakSet[ProcessSlots[Any]] = WeakSet()


def _after_fork() -> None:
    for slots in list(_all):
        slots.current = ClaimSlots()


os.register_at_fork(after_in_child=_after_fork)
