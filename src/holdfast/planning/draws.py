"""Random run times with the mean, the deviation and the shape that the statistics have."""

from __future__ import annotations

import math
from bisect import bisect
from itertools import accumulate
from random import Random

from holdfast.planning.model import RunTimes

MAX_SINGLE = 16  # runs of a chunk that are drawn one by one
TRIES = 20


class Draws:
    """Draws run times of a task.

    The buckets of a histogram are wide, so what is drawn from them is scaled to the exact mean and deviation. `shift`
    moves the mean by so many standard errors: with few runs, the true mean may be another.
    """

    def __init__(self, run: RunTimes | None, shift: float = 0.0) -> None:
        self.mean = max(run.mean * 0.1, run.mean + shift * run.error) if run else 0.0
        self.stdev = run.stdev if run else 0.0
        self._buckets = run.buckets if run else ()
        self._sums = list(accumulate(count for _, _, count in self._buckets))
        self._middle, self._scale = self._fit()

    def _fit(self) -> tuple[float, float]:
        """Return the mean of the histogram, and the ratio of the deviations."""
        if not self._sums:
            return 0.0, 0.0
        total = self._sums[-1]
        middle = sum((low + high) / 2 * count for low, high, count in self._buckets) / total
        square = sum((low * low + low * high + high * high) / 3 * count for low, high, count in self._buckets)
        spread = math.sqrt(max(0.0, square / total - middle**2))
        return middle, self.stdev / spread if spread else 0.0

    def one(self, dice: Random) -> float:
        """Draw the time of a run."""
        return self._quantile(dice.random())

    def _quantile(self, fraction: float) -> float:
        """Return the time that this fraction of the runs does not exceed."""
        if not self._scale:
            return self.mean
        runs = fraction * self._sums[-1]
        place = bisect(self._sums, runs, hi=len(self._sums) - 1)
        low, high, count = self._buckets[place]
        time = high - (high - low) * (self._sums[place] - runs) / count
        return max(0.0, self.mean + (time - self._middle) * self._scale)

    def several(self, dice: Random, runs: int) -> tuple[float, float]:
        """Draw how long some runs take together, and the longest of them."""
        if runs <= MAX_SINGLE:
            drawn = [self.one(dice) for _ in range(runs)]
            return sum(drawn), max(drawn)
        longest = self._quantile(dice.random() ** (1 / runs))
        if not self.mean or not self.stdev:
            return self.mean * runs, longest
        shape = runs * (self.mean / self.stdev) ** 2  # a sum of run times is skewed and never negative: so is a gamma
        return dice.gammavariate(shape, self.mean * runs / shape), longest

    def rest(self, dice: Random, elapsed: float) -> float:
        """Draw what is left of a run that has taken this long already."""
        for _ in range(TRIES):
            if (drawn := self.one(dice)) >= elapsed:
                return drawn - elapsed
        return max(self.stdev, self.mean / 2)  # it takes longer than almost all before it
