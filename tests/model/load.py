"""The model of throughput: the rules at the heads of `throughput.lua` and `queue_load.lua`.

Slots that the store has dropped are kept here, so after the clock went back, both may differ.
"""

from __future__ import annotations

from collections import Counter

SLOT, SLOTS = 15_000, 20


class Load:
    def __init__(self) -> None:
        self.slots: dict[str, Counter[tuple[str, int]]] = {}  # queue -> letter and slot of time

    def came(self, queue: str, now: int) -> None:
        self._count(queue, "i", 1, now)

    def ended(self, queue: str, took: int, now: int) -> None:
        self._count(queue, "o", 1, now)
        self._count(queue, "r", took, now)

    def _count(self, queue: str, letter: str, count: int, now: int) -> None:
        if not count:
            return
        self.slots.setdefault(queue, Counter())[letter, now // SLOT] += count

    def forget(self, queue: str) -> None:
        self.slots.pop(queue, None)

    def sums(self, queue: str, now: int) -> tuple[int, int, int, int]:
        """Of how many milliseconds; how many jobs came, how many attempts ended, and how long these took."""
        slots = {name: count for name, count in self.slots.get(queue, {}).items() if name[1] >= now // SLOT - SLOTS}
        first = min([now // SLOT, *(slot for _, slot in slots)])
        came, ended, took = (sum(count for name, count in slots.items() if name[0] == letter) for letter in "ior")
        return max(now - first * SLOT, 1000), came, ended, took
