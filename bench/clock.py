"""Estimate how long a run still takes, and whether there is time to repeat disturbed measurements."""

from __future__ import annotations

import time
from collections.abc import Iterable

from bench.measures import BY_NAME, Measure
from bench.roster import Peer

GUESS = 5.0  # seconds of a measurement, before the first
REPEATING = 360.0  # seconds of a run that may be spent on what was measured before


class Clock:
    """Knows which measurements are left, and how long each finished one took."""

    def __init__(self, pairs: Iterable[tuple[Measure, Peer]]) -> None:
        self._left = list(pairs)
        self._took: dict[tuple[str, str], float] = {}
        self._last = time.monotonic()
        self._to_repeat = REPEATING

    def strike(self, measure: Measure, peer: Peer) -> None:
        """A measurement is over."""
        self._last, before = time.monotonic(), self._last
        self._took[measure.name, peer.name] = self._last - before
        self._left.remove((measure, peer))

    def may_repeat(self, seconds: float) -> bool:
        """Whether there is time to take a measurement again that took so long; if so, it is used up."""
        if seconds > self._to_repeat:
            return False
        self._to_repeat -= seconds
        return True

    def words(self) -> str:
        usual = [took for (name, _), took in self._took.items() if not BY_NAME[name].about] or [GUESS]
        mean = sum(usual) / len(usual)
        left = sum(self._took.get((each.name, peer.name)) or each.about or mean for each, peer in self._left)
        return f"about {left / 60:.0f} min left"
