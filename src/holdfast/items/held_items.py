"""The items that a process holds, by weak reference: an item that the program has dropped is no longer renewed.

The callback of a weak reference may run at any moment and in any thread, even during a garbage collection. So it only
removes the item; the next claim or heartbeat logs it.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

_DROPPED = (
    "item %s of %s was dropped: nothing refers to it any more, and it was not completed, failed or released. Its lease"
    " is not renewed, and when it expires, the item is requeued. Use `with items.claim() as item:`, or keep a reference"
    " to the item until it has ended. (Logged once per process.)"
)
_has_warned = False

log = logging.getLogger("holdfast.items")


class Held(Hashable, Protocol):
    """A lease."""

    @property
    def id(self) -> str: ...


class Holdable(Protocol):
    """A claimed item."""

    renew_at: float

    @property
    def held(self) -> Any: ...  # its lease


I = TypeVar("I", bound=Holdable)  # noqa: E741, the kind of items


class _Reference(ref[I]):
    """A weak reference that knows the lease of its item."""

    held: Held


class HeldItems(Generic[I]):
    """The items of one process that have not ended, by their leases."""

    def __init__(self) -> None:
        self._references: dict[Any, _Reference[I]] = {}
        self._dropped: Held | None = None  # the last one, until it is logged

    def add(self, item: I) -> None:
        reference = _Reference(item, self._drop)
        reference.held = item.held
        self._references[item.held] = reference

    def discard(self, held: Held) -> I | None:
        """Remove an item that has ended, and return it unless it was dropped."""
        reference = self._references.pop(held, None)
        return reference() if reference else None

    def get(self, held: Held) -> I | None:
        reference = self._references.get(held)
        return reference() if reference else None

    def leases(self) -> list[Any]:
        return list(self._references)

    def items(self) -> list[I]:
        return [item for reference in list(self._references.values()) if (item := reference())]

    def _drop(self, reference: ref[I]) -> None:
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
