"""The items that a process holds, without keeping them alive: one that the program has dropped is renewed no more.

A weak reference says that an item is gone, at any moment and in any thread, even in the middle of a garbage
collection. So that only takes it off the list; the next claim or heartbeat logs it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from holdfast.commands import Held
    from holdfast.item import Item

_DROPPED = (
    "item %s of %s was dropped: it was not completed, failed or released, and nothing refers to it any more. Its lease"
    " is not renewed; when that has ended, the item is handed out again. Write `with items.claim() as item:`, or keep"
    " the item until it has ended. (This is logged once per process.)"
)
_has_warned = False

log = logging.getLogger("holdfast.items")


class _Reference(ref["Item"]):
    """A weak reference that knows which lease its item had."""

    held: Held


class Holding:
    """The items of one process that have not ended, by their leases."""

    def __init__(self) -> None:
        self._references: dict[Held, _Reference] = {}
        self._dropped: Held | None = None  # the last one, until it is logged

    def add(self, item: Item) -> None:
        reference = _Reference(item, self._drop)
        reference.held = item.held
        self._references[item.held] = reference

    def discard(self, held: Held) -> Item | None:
        """The item has ended. Returns it, unless it was dropped."""
        reference = self._references.pop(held, None)
        return reference() if reference else None

    def get(self, held: Held) -> Item | None:
        reference = self._references.get(held)
        return reference() if reference else None

    def leases(self) -> list[Held]:
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
