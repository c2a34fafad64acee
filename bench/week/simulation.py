"""The time of a simulation, and an event loop that runs in it.

The time jumps from event to event, so a week passes in seconds, until it has caught up with the clock of the machine.
From then on both are the same, and the simulation goes on live.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any


class Clock:
    """The time, in seconds since 1970; callable as the clock of a store, in milliseconds."""

    def __init__(self, begin: float) -> None:
        self._time = begin
        self.is_live = False
        self.on_live: Callable[[], object] = lambda: None  # called when the simulation has caught up

    def __call__(self) -> int:
        return int(self.seconds * 1000)

    @property
    def seconds(self) -> float:
        return time.time() if self.is_live else self._time

    @property
    def behind(self) -> float:
        """Seconds until it has caught up."""
        return time.time() - self.seconds

    def advance(self, seconds: float) -> None:
        """Move on, at most to the time of the machine."""
        self._time += seconds
        if self._time >= time.time():
            self.is_live = True
            self.on_live()


class _Selector(selectors.DefaultSelector):
    """Lets the time jump instead of waiting."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        if self._clock.is_live or timeout is None:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self._clock.advance(timeout)
        return found


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose `asyncio.sleep` takes as long in the simulation as it says."""

    def __init__(self, clock: Clock) -> None:
        self._simulated = clock
        super().__init__(_Selector(clock))
        self._clock_resolution = 1e-3  # seconds since 1970 have less in a float than the loop takes for granted

    def time(self) -> float:
        return self._simulated.seconds
