"""How many jobs arrive: from the minutes of the last hour, without bursts and retries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.client.statistics import Bucket, Point, Times
from holdfast.planning.rates import arrival_rate, run_times

START = datetime(2024, 7, 1, tzinfo=UTC)


def points(arrivals: Sequence[int], retries: int = 0) -> list[Point]:
    """Minutes, and one that has just begun."""
    return [
        Point(START + timedelta(minutes=number), each, 0, 0, retries if each else 0, 0, None, 0, None)
        for number, each in enumerate([*arrivals, 1000])
    ]


@pytest.mark.parametrize(
    ("arrivals", "per_minute"),
    [
        ([], 0),
        ([0] * 180, 0),
        ([60] * 180, 60),
        ([0] * 170 + [60] * 10, 60),  # the queue is new
        ([0] * 100 + [5000] + [0] * 20, 0),  # a backlog, enqueued at once
        ([0] * 120 + [4] * 30 + [5000] + [4] * 29, (59 * 4 + 12) / 60),  # and while others arrive
        ([1, 0, 0, 0, 0, 0, 0, 0, 0, 0] * 18, 0.1),  # rare jobs
        ([600] * 120 + [6] * 60, 6),  # what was before does not count
    ],
)
def test_the_rate_is_that_of_the_last_hour(arrivals: list[int], per_minute: float) -> None:
    assert arrival_rate(points(arrivals)) == pytest.approx(per_minute / 60)


def test_retries_are_no_arrivals() -> None:
    assert arrival_rate(points([10] * 60, retries=4)) == pytest.approx(6 / 60)
    assert arrival_rate(points([10] * 60, retries=20)) == 0


def test_run_times_of_statistics() -> None:
    found = run_times(Times(2, 6.0, 2.0, (Bucket(2.0, 3.0, 1), Bucket(4.0, None, 1))))

    assert found is not None
    assert (found.count, found.mean, found.stdev) == (2, 3.0, 2.0**0.5)
    assert found.buckets == ((2.0, 3.0, 1), (4.0, 8.0, 1))
    assert found.error == pytest.approx(1)
    assert run_times(Times()) is None
