"""Calendars: cron across daylight saving, in many zones, against a clock that is watched minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from holdfast.durations import utc
from holdfast.errors import Invalid
from holdfast.schedule import Cron, Every, decode, encode, more_times, next_firings

ZONES = [
    "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Lisbon", "Europe/Moscow", "America/New_York",
    "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo", "America/Santiago", "America/Havana",
    "Africa/Casablanca", "Africa/Cairo", "Asia/Kolkata", "Asia/Tehran", "Asia/Kathmandu", "Asia/Tokyo",
    "Australia/Lord_Howe", "Australia/Sydney", "Pacific/Chatham",
]  # fmt: skip
START = datetime(2020, 1, 1, tzinfo=UTC)
YEARS = 10


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def fires(cron: Cron, until: datetime) -> list[datetime]:
    found: list[datetime] = []
    for time in cron.after(ms(START)):
        if utc(time) > until:
            return found
        found.append(utc(time))
    return found


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "15 0 * * *", "30 1 * * *", "5 3 * * *"])
def test_a_daily_time_fires_once_on_each_day_for_ten_years(zone: str, expression: str) -> None:
    """None is doubled, none is missing; and each at its time, unless the clock leapt over it."""
    here = ZoneInfo(zone)
    minute, hour = map(int, expression.split()[:2])
    until = START + timedelta(days=365 * YEARS)

    found = fires(Cron(expression, zone), until)

    days = [moment.astimezone(here).date() for moment in found]
    assert len(set(days)) == len(days)
    first = days[0]
    assert days == [first + timedelta(days=n) for n in range(len(days))]
    assert len(days) >= 365 * YEARS - 1
    for moment in found:
        local = moment.astimezone(here)
        wanted = local.replace(hour=hour, minute=minute, second=0, fold=0)
        leapt_over = wanted.astimezone(UTC).astimezone(here).replace(tzinfo=None) != wanted.replace(tzinfo=None)
        assert leapt_over or (local.hour, local.minute) == (hour, minute)


@pytest.mark.parametrize("zone", ZONES)
def test_an_hourly_time_fires_every_hour_whatever_the_clock_does(zone: str) -> None:
    found = fires(Cron("0 * * * *", zone), START + timedelta(days=400))

    gaps = {later - earlier for earlier, later in pairwise(found)}
    # A zone that moves its clock by half an hour has one shorter and one longer hour by the clock.
    assert gaps <= {timedelta(hours=1), timedelta(minutes=30), timedelta(minutes=90)}
    assert len(found) >= 400 * 24 - 4


def test_times_go_on_from_where_the_list_ended() -> None:
    cron = Cron("*/7 * * * *", "Europe/Berlin")
    whole = cron.next(ms(START), 300)

    parts: list[int] = []
    while len(parts) < 300:
        parts += more_times(cron, parts[-1] if parts else ms(START), ms(START))

    assert parts[:300] == whole


def test_after_an_outage_the_missed_times_come_first_but_not_all_of_a_year() -> None:
    cron = Cron("* * * * *")
    last = ms(START)
    now = last + 30 * 60_000 + 1

    times = more_times(cron, last, now)
    assert [time for time in times if time <= now] == [last + n * 60_000 for n in range(1, 31)]

    year = more_times(cron, last, last + 365 * 86_400_000)
    assert sum(time <= last + 365 * 86_400_000 for time in year) == 100
    assert year == sorted(set(year))


@pytest.mark.parametrize("expression", ["", "* * *", "61 * * * *", "a b c d e", "0 0 31 2 *", "* * * * * * *"])
def test_a_bad_expression_is_refused(expression: str) -> None:
    with pytest.raises(Invalid, match="cron"):
        Cron(expression)


def test_a_zone_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match="Europe/Berlin"):
        Cron("0 2 * * *", "Europe/Berln")


@pytest.mark.parametrize("when", [Every(60_000, 5_000), Cron("0 2 * * *", "Asia/Tokyo")])
def test_what_the_store_keeps_comes_back(when: Every | Cron) -> None:
    assert decode(encode(when)) == when


def test_the_next_firings_are_told() -> None:
    assert next_firings(Every(3_600_000), START, 2) == [START, START + timedelta(hours=1)]
    assert next_firings(Every(3_600_000), START + timedelta(minutes=1), 1) == [START + timedelta(hours=1)]
    assert next_firings(Cron("0 2 * * *"), START, 1) == [START + timedelta(hours=2)]
