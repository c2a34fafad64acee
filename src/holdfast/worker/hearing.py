"""Whether an executor still hears what its supervisor says. One whose event loop a coroutine holds does not.

Then nothing in it can be stopped: not by a cancellation, nor by a time-out, which is kept by that loop. So it is asked
now and then, and killed if something is to be stopped and it has not answered for long. Its jobs run again, each in a
process of its own, where a time-out finds the one that it is meant for.
"""

from __future__ import annotations

import time

DEAF_AFTER = 10.0  # seconds


class Hearing:
    """What one executor was asked and told, and has not answered yet."""

    def __init__(self) -> None:
        self.silent = 0.0  # seconds, as far as we were awake ourselves to hear an answer
        self.has_told = False  # that a job is to end, and since then it has not answered
        self.is_warned_of = False
        self._looked_at: float | None = None  # since the question, if it is not answered

    @property
    def is_deaf(self) -> bool:
        return self.silent > DEAF_AFTER

    def look(self, longest: float) -> bool:
        """Count the time since the last look, up to so much. Returns whether to ask: it has answered before."""
        now = time.monotonic()
        before, self._looked_at = self._looked_at, now
        if before is not None:
            self.silent += min(now - before, longest)
        return before is None

    def answered(self) -> None:
        self.silent, self._looked_at = 0.0, None
        self.has_told = self.is_warned_of = False
