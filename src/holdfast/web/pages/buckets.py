"""Histograms of the store in buckets that double, so that their axis is a log axis.

The buckets of the store double below a second, and then are a second, a minute, an hour or a day wide.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from holdfast.records.table import Record
from holdfast.web.pages.charts import Bucket

# Seconds at which buckets begin: each is a bound of the store, too.
BOUNDS = (
    0.0, *(2**power / 1000 for power in range(10)), 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0,
    1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 57_600.0, 86_400.0, 172_800.0, 345_600.0, 691_200.0, 1_382_400.0,
    2_764_800.0, 5_529_600.0,
)  # fmt: skip


def log_buckets(histogram: Iterable[Record]) -> list[Bucket]:
    """Return the buckets from the first to the last one that has values."""
    counts = [0] * len(BOUNDS)
    for each in histogram:
        counts[bisect_right(BOUNDS, each["lower"] + 1e-9) - 1] += each["count"]
    used = [place for place, count in enumerate(counts) if count]
    if not used:
        return []
    bounds = (*BOUNDS, None)
    return [
        Bucket(lower=BOUNDS[place], upper=bounds[place + 1], count=counts[place])
        for place in range(used[0], used[-1] + 1)
    ]
