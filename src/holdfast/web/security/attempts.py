"""Limit attempts to sign in, in bounded memory."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

MAX_KEYS = 10_000


class Attempts:
    """Allows `burst` attempts of each key, and another one every `interval` seconds.

    What is stored of a key is when all of its attempts are allowed again. If there are too many keys, the one that was
    used longest ago is forgotten.
    """

    def __init__(
        self, burst: int, interval: float, *, max_keys: int = MAX_KEYS, now: Callable[[], float] = monotonic
    ) -> None:
        self._burst, self._interval, self._max_keys, self._now = burst, interval, max_keys, now
        self._free_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._free_at)

    def take(self, key: str) -> float:
        """Count an attempt and return 0; or return how many seconds later one is possible."""
        now = self._now()
        free_at = max(self._free_at.get(key, now), now) + self._interval
        wait = free_at - now - self._burst * self._interval
        if wait > 0:
            return wait
        self._free_at[key] = free_at
        self._free_at.move_to_end(key)
        if len(self._free_at) > self._max_keys:
            self._free_at.popitem(last=False)
        return 0

    def give_back(self, key: str) -> None:
        """Forget an attempt that succeeded."""
        if key in self._free_at:
            self._free_at[key] -= self._interval


def network_of(address: str) -> str:
    """Return what stands for one client: an address, or for IPv6 the network of which a client has all addresses."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(found.ipv4_mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)).network_address)
