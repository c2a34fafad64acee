"""Durations and moments: every spelling, every refusal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.units import CENTURY, LAST_MOMENT, humanize, milliseconds, moment, utc


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0),
        (90, 90_000),
        (0.25, 250),
        (1.0005, 1000),
        (timedelta(minutes=1, microseconds=600), 60_001),
        ("0s", 0),
        ("250ms", 250),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("1d12h", 129_600_000),
        ("1w", 604_800_000),
        ("1.5h", 5_400_000),
        ("1w2d3h4m5s6ms", 788_645_006),
    ],
)
def test_a_duration_may_be_a_timedelta_seconds_or_text(written: Any, expected: int) -> None:
    assert milliseconds(written, what="delay") == expected


NO_TEXT = [
    "",
    "h",
    "1",
    "1 h",
    "1h\n",
    " 1h",
    "-1h",
    "1x",
    "30m1h",
    "1h1h",
    "1.h",
    ".5h",
    "\u0661h",
    "1e3s",
    "9" * 400 + "s",
]
NO_NUMBER = [True, False, -1, -0.001, 10**400, float("nan"), float("inf"), 1j]


@pytest.mark.parametrize("written", [*NO_TEXT, *NO_NUMBER, None, b"1h", timedelta(seconds=-1), [1]])
def test_invalid_durations_are_refused_by_name(written: Any) -> None:
    with pytest.raises(Invalid, match="delay is"):
        milliseconds(written, what="delay")


def test_a_duration_out_of_range_is_refused_with_the_range() -> None:
    with pytest.raises(Invalid, match=r"lease is '2h'; it must be from 1s to 1h"):
        milliseconds("2h", what="lease", minimum=1000, maximum=3_600_000)
    assert milliseconds("1h", what="lease", minimum=1000, maximum=3_600_000) == 3_600_000
    with pytest.raises(Invalid):
        milliseconds(CENTURY / 1000 + 1, what="delay")


@given(st.integers(0, CENTURY))
def test_humanized_durations_can_be_parsed(ms: int) -> None:
    assert milliseconds(humanize(ms), what="delay") == ms


def test_humanize_leaves_out_what_is_zero() -> None:
    assert [humanize(ms) for ms in (0, 250, 5_400_000, 90 * 86_400_000, -90_000)] == [
        "0s",
        "250ms",
        "1h30m",
        "90d",
        "-1m30s",
    ]


def test_a_moment_is_in_milliseconds_since_1970_whatever_its_zone() -> None:
    east = timezone(timedelta(hours=2))
    assert moment(datetime(1970, 1, 1, 2, 0, 1, 500_999, tzinfo=east), "at") == 1500
    assert moment(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "at") == LAST_MOMENT


@given(st.integers(0, LAST_MOMENT))
def test_a_moment_comes_back_from_utc(ms: int) -> None:
    assert moment(utc(ms), "at") == ms
    assert utc(ms).tzinfo is UTC


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (datetime(2026, 1, 1), "no time zone; use datetime.now"),
        (datetime(1969, 1, 1, tzinfo=UTC), "not be before 1970"),
        ("2026-01-01T00:00:00Z", "must be a datetime"),
        (1_700_000_000, "must be a datetime"),
    ],
)
def test_a_moment_that_is_not_clear_is_refused_with_advice(value: Any, advice: str) -> None:
    with pytest.raises(Invalid, match=advice):
        moment(value, "at")
