"""Schedules: when to enqueue again and again. Calendars are known here, time is kept in the store.

Every(interval, offset)       the store computes the times itself
Cron("0 2 * * *", zone)       the store is given the next ones, and asks for more when they run out
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec

from holdfast.errors import Invalid
from holdfast.units import utc

AHEAD = 100  # times that the store is given
MOST_MISSED = 10_000  # times that are looked at after an outage


@dataclass(frozen=True)
class Every:
    """Every so many milliseconds, counted from an offset: 0 is the beginning of 1970, so all hours and days in UTC."""

    interval: int
    offset: int = 0


@dataclass(frozen=True)
class Cron:
    """Five fields (minute, hour, day, month, weekday), or six with seconds first, in a time zone.

    Across daylight saving it does as Debian's cron: a time that the clock leaps over fires right after the leap, and
    one that comes twice fires once; what runs every minute or hour goes on every minute or hour.
    """

    expression: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """Raises Invalid if the expression or the zone is none, or if it never fires."""
        if not isinstance(self.expression, str):
            raise Invalid(f"cron is {self.expression!r}; it must be a text like '30 2 * * mon-fri'")
        if next(self.after(0), None) is None:
            raise Invalid(f"cron {self.expression!r} never fires")

    def after(self, ms: int) -> Iterator[int]:
        """Iterate over the times after a time, in milliseconds."""
        last = ms
        for moment in self._moments(utc(ms).astimezone(_zone(self.zone))):
            time = int(moment.astimezone(UTC).timestamp()) * 1000
            if time > last:  # of two times that a leap of the clock makes one, one
                last = time
                yield time

    def _moments(self, start: datetime) -> Iterator[datetime]:
        from cronsim import CronSim, CronSimError

        fields = self.expression.split()
        # What Debian's cron does at a leap is done there for five fields only.
        is_ours = len(fields) == 6 and not fields[1].startswith("*") and not fields[2].startswith("*")
        try:
            moments = CronSim(self.expression, start.replace(tzinfo=None, fold=0) if is_ours else start)
        except CronSimError as error:
            raise Invalid(
                f"cron is {self.expression!r}: {error}; "
                "it must be like '30 2 * * mon-fri' (minute, hour, day, month, weekday)"
            ) from None
        return (_real(moment.replace(tzinfo=start.tzinfo)) for moment in moments) if is_ours else moments

    def next(self, ms: int, number: int = AHEAD) -> list[int]:
        return list(islice(self.after(ms), number))


def _real(moment: datetime) -> datetime:
    """The moment itself, or the end of the leap of the clock in which it would be."""
    while moment != moment.astimezone(UTC).astimezone(moment.tzinfo):
        moment = moment.replace(second=0) + timedelta(minutes=1)
    return moment


@lru_cache(maxsize=100)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        if not available_timezones():
            raise Invalid(f"no time zones are known on this machine, so {name!r} is not: install tzdata") from None
        raise Invalid(f"there is no time zone {name!r}; they are named like Europe/Berlin, and UTC") from None


When = Every | Cron


def encode(when: When) -> str:
    """Return what the store keeps for those who have to compute further times."""
    kind = "every" if isinstance(when, Every) else "cron"
    return msgspec.json.encode({"kind": kind, **msgspec.to_builtins(when)}).decode()


def decode(spec: str) -> When:
    fields: dict[str, Any] = msgspec.json.decode(spec)
    kind = fields.pop("kind")
    return Every(**fields) if kind == "every" else Cron(**fields)


def more_times(cron: Cron, last: int, now: int) -> list[int]:
    """Return the times that follow the last known one: the latest of those that were missed, and the next ones."""
    missed = list(islice(takewhile(lambda time: time <= now, cron.after(last)), MOST_MISSED))
    if len(missed) == MOST_MISSED:  # a long outage: only what is recent counts
        missed = list(takewhile(lambda time: time <= now, cron.after(now - 86_400_000)))
    return [*missed[-AHEAD:], *cron.next(max(now, last))]


def further_times(fields: Mapping[str, str]) -> tuple[int, list[int]] | None:
    """Return the last time that the store knows of a schedule, and those that follow; None: it needs none.

    `fields` is what the store says of the schedule.
    """
    when = decode(fields["spec"])
    if isinstance(when, Every):
        return None
    known = fields.get("times", "").split()
    last = int(known[-1] if known else fields.get("last", 0))
    return last, more_times(when, max(last, int(fields["since"])), int(fields["now"]))


def next_firings(when: When, now: datetime, number: int = 10) -> list[datetime]:
    """Return the next times at which it fires."""
    ms = int(now.timestamp() * 1000)
    if isinstance(when, Cron):
        return [utc(time) for time in when.next(ms, number)]
    first = when.offset + max(0, -((when.offset - ms) // when.interval)) * when.interval
    return [utc(first + place * when.interval) for place in range(number)]
