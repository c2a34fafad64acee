"""Sums of what all executors of a worker ran, a line a second: for when a line for each job would be too many."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

log = logging.getLogger("holdfast.worker")

GATHER = 0.25  # seconds in which the executors report the same second


class Tally:
    """Adds up what executors report at the end of a second; see `journal`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def heard(self, word: str, rows: list[Any]) -> None:
        if word != "tally":
            return
        if not self._counts:
            asyncio.get_running_loop().call_later(GATHER, self.log)
        for name, count in zip(rows[::2], rows[1::2], strict=True):
            self._counts[name] += count

    def log(self) -> None:
        """Log the sums; now, if the worker ends."""
        if self._counts:
            counts, self._counts = self._counts, Counter()
            parts = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
            log.info("ran %s in the last second: %s", f"{counts.total():,} job{'s' * (counts.total() != 1)}", parts)
