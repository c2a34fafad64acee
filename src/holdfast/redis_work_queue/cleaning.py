"""Cleaning: put back the items of a shared queue that nobody works on.

Programs that use the protocol pop an id and set its lease a moment later, so each item is seen twice, a second apart,
before it is touched (`store/lua/work_queue_clean.lua`). Every call looks at a bounded part of the queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from holdfast.store import Steps, Stores, commands, sleep
from holdfast.store.commands import Place

PAUSE = 1.0  # seconds between the two looks


class Queue(Stores, Protocol):
    """The items of a shared queue."""

    prefix: bytes


def clean(items: Queue, *, deep: bool = False) -> Steps[int]:
    """Put abandoned items back into the queue. Return how many.

    A light clean looks at items in progress, and takes a second: run it about as often as your shortest lease. A
    `deep` clean also finds items that are in no list, because a program died between two commands: it scans all keys of
    the database in small steps, and remembers the ids of waiting items meanwhile. Any number of cleaners of any
    version may run at the same time.
    """
    return (yield from clean_queue(items.prefix, deep=deep))


def clean_queue(prefix: bytes, *, deep: bool = False) -> Steps[int]:
    """Clean the queue with a prefix."""
    lost: set[bytes] = (yield from _lost(prefix)) if deep else set()
    abandoned = yield from _look(prefix, "processing")
    left = yield from _look(prefix, "cleaning")
    lost -= abandoned | left
    if not (lost or abandoned or left):
        return 0
    yield sleep(PAUSE)
    back = yield from _requeue(prefix, "processing", abandoned)
    back += yield from _requeue(prefix, "cleaning", left)
    back += yield from _requeue(prefix, "items", lost)
    return back


def _lost(prefix: bytes) -> Steps[set[bytes]]:
    """Return the items without a lease that are not in the queue."""
    lost = yield from _look(prefix, "items")
    cursor = "0"
    while lost:
        cursor, ids = yield commands.work_queue_look(prefix, "queue", cursor)
        lost.difference_update(ids)
        if cursor == "0":
            break
    return lost


def _look(prefix: bytes, place: Place) -> Steps[set[bytes]]:
    found: set[bytes] = set()
    cursor = "0"
    while True:
        cursor, ids = yield commands.work_queue_look(prefix, place, cursor)
        found.update(ids)
        if cursor == "0":
            return found


def _requeue(prefix: bytes, place: Place, ids: Iterable[bytes]) -> Steps[int]:
    left, back = list(ids), 0
    while left:
        handled, put_back = yield commands.work_queue_requeue(prefix, place, left)
        left, back = left[handled:], back + put_back
    return back
