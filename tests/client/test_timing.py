"""Cron across daylight saving in many time zones, compared with a simulated clock; alone and in the store."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from bisect import bisect
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from holdfast.client.timing import Cron, Every, decode, encode, further_times, more_times, next_firings, past_firings
from holdfast.errors import Invalid
from holdfast.store import commands
from holdfast.store.store import Store
from holdfast.units import utc
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import keep, take

ZONES = [
    "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Lisbon", "Europe/Moscow", "America/New_York",
    "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo", "America/Santiago", "America/Havana",
    "Africa/Casablanca", "Africa/Cairo", "Asia/Kolkata", "Asia/Tehran", "Asia/Kathmandu", "Asia/Tokyo",
    "Australia/Lord_Howe", "Australia/Sydney", "Pacific/Chatham",
]  # fmt: skip
START = datetime(2020, 1, 1, tzinfo=UTC)
END = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
QUARTER = timedelta(minutes=15)  # all clocks leap at quarters of an hour, by quarters of an hour


def ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


def fires(cron: Cron, start: datetime = START, end: datetime = END) -> list[datetime]:
    return [utc(time) for time in takewhile(lambda time: time <= ms(end), cron.after(ms(start)))]


# Two computations of when a daily time fires, which know nothing of each other or of cron


@lru_cache(maxsize=1000)
def seen(zone: str, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Watch the clock of a zone, each quarter of an hour: what it shows, and when."""
    here, moments = ZoneInfo(zone), (start + n * QUARTER for n in range((end - start) // QUARTER))
    return [(moment.astimezone(here).replace(tzinfo=None, fold=0), moment) for moment in moments]


def watched(zone: str, wanted: time, start: datetime, end: datetime) -> list[datetime]:
    """On each day, when the clock first shows the time, or first a later one because it leapt."""
    first: dict[date, datetime] = {}
    for shown, moment in seen(zone, start, end):
        if shown.time() >= wanted:
            first.setdefault(shown.date(), moment)
    return [moment for moment in first.values() if start < moment]


def computed(zone: str, wanted: time, start: datetime = START, end: datetime = END) -> list[datetime]:
    """On each day of the calendar: its time, the first if there are two, or the end of the leap over it."""
    here, first = ZoneInfo(zone), start.date() - DAY
    found = []
    for day in (first + n * DAY for n in range((end - start).days + 3)):
        local = datetime.combine(day, wanted)
        moment = local.replace(tzinfo=here).astimezone(UTC)
        if moment.astimezone(here).replace(tzinfo=None) != local:
            moment = leap(here, moment - timedelta(hours=4), moment)
        found.append(moment)
    return [moment for moment in found if start < moment <= end]


def leap(here: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """When the offset of a zone changes, to the second."""
    old = before.astimezone(here).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + ((after - before) // timedelta(seconds=2)) * timedelta(seconds=1)
        before, after = (middle, after) if middle.astimezone(here).utcoffset() == old else (before, middle)
    return after


def changes(zone: str) -> Iterator[datetime]:
    """The days on which the clock of a zone leaps."""
    here = ZoneInfo(zone)
    days = [START + n * DAY for n in range((END - START).days)]
    for day, next_day in pairwise(days):
        if day.astimezone(here).utcoffset() != next_day.astimezone(here).utcoffset():
            yield day


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_time_fires_once_on_each_day_for_ten_years(zone: str) -> None:
    """None is doubled, none is missing; each at its time, or right after the leap over it."""
    wanted = time(ZONES.index(zone) % 4, (ZONES.index(zone) * 15) % 60)

    found = fires(Cron(f"{wanted.minute} {wanted.hour} * * *", zone))

    assert found == computed(zone, wanted)
    days = [moment.astimezone(ZoneInfo(zone)).date() for moment in found]
    assert days == [days[0] + n * DAY for n in range(len(days))]
    assert len(days) in (3652, 3653, 3654)  # ten years, of which three are leap years


@pytest.mark.parametrize("zone", ZONES)
def test_around_each_leap_of_the_clock_every_time_of_the_night_fires_once_a_day(zone: str) -> None:
    times = [time(hour, minute) for hour in (0, 1, 2, 3) for minute in (0, 15, 30, 45)] + [time(23, 0), time(23, 30)]
    for number, day in enumerate(changes(zone)):
        start, end = day - 2 * DAY, day + 3 * DAY
        for wanted in (times[number % len(times)], *random.Random(number).sample(times, 5)):
            seconds = "0 " if number % 2 else ""  # with seconds it is the same
            found = fires(Cron(f"{seconds}{wanted.minute} {wanted.hour} * * *", zone), start, end)
            assert found == computed(zone, wanted, start, end)
            assert found == [
                moment for moment in watched(zone, wanted, start - DAY, end + DAY) if start < moment <= end
            ]


def test_clocks_did_leap() -> None:
    leaps = {zone: len(list(changes(zone))) for zone in ZONES}
    assert sum(number >= 6 for number in leaps.values()) >= 14
    assert sum(leaps.values()) > 250


@pytest.mark.parametrize("zone", ZONES)
def test_an_hourly_time_fires_every_hour_whatever_the_clock_does(zone: str) -> None:
    for day in changes(zone):
        found = fires(Cron("0 * * * *", zone), day - DAY, day + 2 * DAY)
        gaps = {later - earlier for earlier, later in pairwise(found)}
        # A zone that moves its clock by half an hour has one shorter and one longer hour by the clock. (Of a minute
        # that the clock shows twice then, the second is left out.)
        allowed = {30, 60, 90} if zone == "Australia/Lord_Howe" else {60}
        assert gaps <= {timedelta(minutes=minutes) for minutes in allowed}
        assert 70 <= len(found) <= 74


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Pacific/Chatham"])
def test_random_expressions_fire_in_the_minutes_that_they_match_also_across_leaps(zone: str) -> None:
    """Of those that go on with the clock, whatever it does: by minutes or by hours."""
    chance = random.Random(zone)
    for day in chance.sample(list(changes(zone)), 2):
        start, end = day - timedelta(hours=12), day + timedelta(hours=36)
        minutes = [start + timedelta(minutes=n) for n in range(1, 2 * 1440 + 1)]
        shown = [moment.astimezone(ZoneInfo(zone)) for moment in minutes]
        for _ in range(10):
            fields = [any_of(chance, first, last) for first, last in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))]
            fields[chance.randrange(2)] = chance.choice(["*", "*/7", "*/30"])
            fields[3] = "*" if chance.random() < 0.8 else fields[3]

            found = fires(Cron(" ".join(fields), zone), start, end)

            wanted = [moment for moment, local in zip(minutes, shown, strict=True) if matches(fields, local)]
            assert found == wanted, fields


def any_of(chance: random.Random, first: int, last: int) -> str:
    low, high = sorted(chance.sample(range(first, last + 1), 2))
    return chance.choice(["*", "*", "*/3", f"{low}", f"{low},{high}", f"{low}-{high}", f"{low}-{high}/2"])


def matches(fields: list[str], local: datetime) -> bool:
    """Whether a minute of a clock is of an expression, by the rules of cron."""
    values = (local.minute, local.hour, local.day, local.month, local.isoweekday() % 7)
    firsts = (0, 0, 1, 1, 0)
    minute, hour, day, month, weekday = map(is_of, fields, values, firsts)
    days = (day and weekday) if fields[2].startswith("*") or fields[4].startswith("*") else (day or weekday)
    return minute and hour and month and days


def is_of(field: str, value: int, first: int) -> bool:
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        least = first if low == "*" else int(low)
        most = 99 if low == "*" else int(high or low)
        if least <= value <= most and (value - least) % int(step or 1) == 0:
            return True
    return False


# In the store


def test_twenty_zones_over_ten_years_in_the_store_none_doubled_none_missing(store: Store, clock: TestClock) -> None:
    """Time passes in steps of all sizes, also of more than the store has times for; the jobs are the calendar's."""
    chance = random.Random(4)
    clock.now = ms(START)
    expected: dict[str, list[int]] = {}
    for place, zone in enumerate(ZONES):
        name, at = zone.replace("/", "."), time(place % 4, place * 15 % 60)
        days = {"Asia/Tehran": "20-23 3,9 *", "Africa/Cairo": "* * 5"}.get(zone, "* * 0")  # on which its clock leaps
        cron, here = Cron(f"{at.minute} {at.hour} {days}", zone), ZoneInfo(zone)
        on = ["*", "*", *days.split()]
        expected[name] = [ms(moment) for moment in computed(zone, at) if matches(on, moment.astimezone(here))]
        how = {"spec": encode(cron), "times": cron.next(clock.now), "missed": "all", "backlog": 1000}
        store.run(commands.schedule(name, {"queue": "q", "task": "report"}, b"[]", **how))

    while clock.now < ms(END):
        clock.now = min(clock.now + ms_of_a_step(chance), ms(END))
        move_time_on(store)
        for fields in store.run(commands.schedules()):
            fired = bisect(expected[fields["name"]], clock.now)
            assert int(fields["fired"] if fired else 0) == fired
            assert int(fields["last"] if fired else 0) == (expected[fields["name"]][fired - 1] if fired else 0)

    assert sorted(jobs_of(store)) == sorted(f"{name}@{at}" for name, list_ in expected.items() for at in list_)


def ms_of_a_step(chance: random.Random) -> int:
    hours = chance.choice([chance.uniform(0.1, 2), chance.uniform(2, 48), chance.uniform(48, 3000)])  # four months
    return round(hours * 3_600_000)


def move_time_on(store: Store) -> None:
    """Until nothing is due: what a worker does, and in its order."""
    while True:
        take(store, "node/worker.0", "elsewhere")
        names = keep(store, executor="node/worker.0", refills=100).refills
        if not names:
            return
        for fields in store.run(commands.schedules(names)):
            if further := further_times(fields):
                store.run(commands.refill(fields["name"], *further))


def jobs_of(store: Store) -> list[str]:
    found, cursor = [], None
    while True:
        page = store.run(commands.list_jobs(limit=1000, cursor=cursor))
        found += [fields["id"] for fields in page.jobs]
        if (cursor := page.cursor) is None:
            return found


# Lists of times


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


# What users write


@pytest.mark.parametrize("expression", ["", "* * *", "61 * * * *", "a b c d e", "0 0 31 2 *", "* * * * * * *"])
def test_a_bad_expression_is_refused(expression: str) -> None:
    with pytest.raises(Invalid, match="cron"):
        Cron(expression)


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(Invalid, match="Europe/Berlin"):
        Cron("0 2 * * *", "Europe/Berln")


def test_a_machine_without_time_zones_gets_another_error_than_a_mistyped_zone() -> None:
    code = "from holdfast import cron\ntry: cron('0 2 * * *', tz='Europe/Berlin')\nexcept ValueError as e: print(e)"
    hidden = {"PYTHONTZPATH": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", f"import sys; sys.modules['tzdata'] = None\n{code}"]
    done = subprocess.run(command, env=os.environ | hidden, capture_output=True, text=True, check=True)
    assert "unknown time zone 'Europe/Berlin': this machine has no time zone data; install tzdata" in done.stdout


@pytest.mark.parametrize("when", [Every(60_000, 5_000), Cron("0 2 * * *", "Asia/Tokyo")])
def test_encoded_times_of_a_schedule_can_be_decoded(when: Every | Cron) -> None:
    assert decode(encode(when)) == when


@pytest.mark.parametrize(
    "when",
    [
        Every(3_600_000, 60_000),
        *(Cron(each, "Europe/Berlin") for each in ("0 2 * * *", "*/5 9 * * mon", "* * * 1 *", "30 2 29 2 *")),
        Cron("*/10 * * * * *"),
    ],
)
def test_the_past_firings_are_those_that_were_next(when: Every | Cron) -> None:
    past = past_firings(when, START, 5)
    assert len(past) == 5
    assert past == sorted(past, reverse=True)
    assert past[0] <= START < next_firings(when, START, 1)[0]
    assert next_firings(when, past[-1] - timedelta(milliseconds=1), 5) == past[::-1]
    assert past_firings(when, START, 0) == []


def test_the_next_firings_are_computed() -> None:
    assert next_firings(Every(3_600_000), START, 2) == [START, START + timedelta(hours=1)]
    assert next_firings(Every(3_600_000), START + timedelta(minutes=1), 1) == [START + timedelta(hours=1)]
    assert next_firings(Cron("0 2 * * *"), START, 1) == [START + timedelta(hours=2)]
