"""Statistics of the model: a ledger of waits, runs, failures and retries, compared with what the store says.

The clock goes back now and then. What was too old when it was folded is gone, even if the clock then says that it is
not so old, so a comparison begins with the oldest day, hour or minute that was never too old.
"""

from __future__ import annotations

from holdfast.store import commands
from holdfast.store.commands import Period, SeriesRow
from holdfast.store.store import Store
from tests.model.job import DEFAULTS
from tests.support.statistics_ledger import DAY, HOUR, MINUTE, Ledger, check_stats

MINUTES_AGE = 3 * HOUR
TASKS = ["send", "transcode.all"]


class Comparison:
    """Compares one queue after the other."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self.store, self.ledger = store, ledger
        self.latest = 0  # time of a call
        self._number = 0

    def compare(self, queues: list[str], failed: dict[str, list[int]], now: int) -> None:
        """`failed`: when the jobs of each queue failed that still are."""
        self._number += 1
        queue = queues[self._number % len(queues)]
        self._compare_days(queue, failed.get(queue, []), now)
        self._compare_units(queue, "hour", HOUR, DEFAULTS["stats_age"], now)
        self._compare_units(queue, "minute", MINUTE, MINUTES_AGE, now)

    def _compare_days(self, queue: str, failed: list[int], now: int) -> None:
        age, short = DEFAULTS["stats_age"], DEFAULTS["histogram_age"]
        for since, has_histogram in ((self._oldest(DAY, age), False), (self._oldest(DAY, short), True)):
            until = max(since, now // DAY * DAY + DAY)
            period = Period(since, until)
            for task in (None, *TASKS):
                found = self.store.run(commands.stats(queue, period, task))
                if not has_histogram:
                    found = found._replace(wait=found.wait._replace(buckets=[]), run=found.run._replace(buckets=[]))
                check_stats(
                    found, self.ledger.total(queue, task, since=since, until=until), has_histogram=has_histogram
                )
                still = sum(since <= time < until for time in failed)
                assert found.failed == (None if task else still), f"{found.failed} of {queue} are failed, not {still}"

    def _compare_units(self, queue: str, name: str, unit: int, age: int, now: int) -> None:
        since = max(self._oldest(HOUR if unit == MINUTE else DAY, age), now - 30 * unit) // unit * unit
        reply = self.store.run(commands.stats_series(queue, name, Period(since)))
        rows = {row.number: row for row in reply.rows}
        for number in range(since // unit, now // unit + 1):
            start, end = number * unit, (number + 1) * unit
            entry = self.ledger.total(queue, since=start, until=end)
            arrivals = self.ledger.arrivals_of(queue, start, end)
            ended, failures, retries, waits, runs = entry.counts
            wanted = SeriesRow(
                number, arrivals, ended, failures, retries, waits, sum(entry.waits), runs, sum(entry.runs)
            )
            found = rows.get(number) or SeriesRow(number, 0, 0, 0, 0, 0, 0, 0, 0)
            assert found == wanted, f"{name} {number} of {queue} is {found}, not {wanted}"

    def _oldest(self, record: int, age: int) -> int:
        """When the first record began that was never too old."""
        return ((self.latest - age) // record + 1) * record
