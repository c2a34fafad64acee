"""A ledger of what happened to jobs, which tests keep themselves, and the statistics that follow from it."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.store.commands import StatsReply, TimesReply

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BOUNDS = [
    0,
    *(2**exponent for exponent in range(10)),
    *range(1000, MINUTE, 1000),
    *range(MINUTE, HOUR, MINUTE),
    *range(HOUR, DAY, HOUR),
    *range(DAY, 104 * DAY, DAY),
]  # where the buckets of a histogram begin, in milliseconds


@dataclass
class Entry:
    """What happened to the jobs of one queue and task in one day, hour or minute."""

    waits: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    ended: int = 0
    failures: int = 0
    retries: int = 0

    @classmethod
    def sum(cls, entries: Iterable[Entry]) -> Entry:
        total = cls()
        for each in entries:
            total.waits += each.waits
            total.runs += each.runs
            total.ended += each.ended
            total.failures += each.failures
            total.retries += each.retries
        return total

    @property
    def counts(self) -> tuple[int, ...]:
        return self.ended, self.failures, self.retries, len(self.waits), len(self.runs)


class Ledger:
    """Entries by queue, task and minute."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str, int], Entry] = defaultdict(Entry)
        self.arrivals: Counter[tuple[str, int]] = Counter()  # by queue and minute

    def arrived(self, queue: str, now: int, count: int = 1) -> None:
        self.arrivals[queue, now // MINUTE] += count

    def claimed(self, queue: str, task: str, waited: int, now: int) -> None:
        self._entry(queue, task, now).waits.append(waited)

    def ended(self, queue: str, task: str, ran: int, now: int, *, is_run: bool) -> None:
        entry = self._entry(queue, task, now)
        entry.ended += 1
        if is_run:
            entry.runs.append(ran)

    def failed(self, queue: str, task: str, now: int) -> None:
        self._entry(queue, task, now).failures += 1

    def retried(self, queue: str, task: str, now: int) -> None:
        self._entry(queue, task, now).retries += 1

    def forget(self, queue: str) -> None:
        for key in [key for key in self.entries if key[0] == queue]:
            del self.entries[key]
        for place in [place for place in self.arrivals if place[0] == queue]:
            del self.arrivals[place]

    def _entry(self, queue: str, task: str, now: int) -> Entry:
        return self.entries[queue, task, now // MINUTE]

    def total(self, queue: str | None = None, task: str | None = None, *, since: int = 0, until: int = 2**45) -> Entry:
        return Entry.sum(
            entry
            for (of_queue, of_task, minute), entry in self.entries.items()
            if queue in (None, of_queue) and task in (None, of_task) and since <= minute * MINUTE < until
        )

    def arrivals_of(self, queue: str, since: int, until: int) -> int:
        return sum(
            n for (name, minute), n in self.arrivals.items() if name == queue and since <= minute * MINUTE < until
        )

    def tasks(self, queue: str) -> list[str]:
        return sorted({task for name, task, _ in self.entries if name == queue})


def histogram(times: Iterable[int]) -> list[tuple[int, int | None, int]]:
    """Lower bound, upper bound and count of each bucket that is not empty."""
    counts = Counter(bisect_right(BOUNDS, time) - 1 for time in times)
    ends = [*BOUNDS[1:], None]
    return [(BOUNDS[number], ends[number], count) for number, count in sorted(counts.items())]


def check_times(found: TimesReply, times: Sequence[int], *, has_histogram: bool = True) -> None:
    """The same count, sum and variance, to rounding; the same histogram; each quantile in its bucket."""
    assert (found.number, found.total) == (len(times), sum(times))
    if len(times) > 1:
        variance = found.deviations / (len(times) - 1)
        assert math.isclose(variance, statistics.variance(map(float, times)), rel_tol=1e-9, abs_tol=1e-6)
    assert found.buckets == (histogram(times) if has_histogram else [])


def check_stats(found: StatsReply, wanted: Entry, *, has_histogram: bool = True) -> None:
    check_times(found.wait, wanted.waits, has_histogram=has_histogram)
    check_times(found.run, wanted.runs, has_histogram=has_histogram)
    assert (found.ended, found.failures, found.retries) == (wanted.ended, wanted.failures, wanted.retries)
