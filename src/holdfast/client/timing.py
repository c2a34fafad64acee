"""Timing: when a schedule fires, and what happens to missed firings.

Every(interval, offset)       the store computes the firing times
Cron("0 2 * * *", zone)       clients and workers compute them; the store holds the next ones and requests more

`cron` and `every` create a `Timing` for `@jobs.task(schedule=...)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, Literal, TypedDict, Unpack, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec

from holdfast.constants import MAX_BACKLOG, MAX_DURATION, MAX_JITTER, MIN_INTERVAL
from holdfast.errors import Invalid
from holdfast.units import DAY, Duration, milliseconds, utc

Missed = Literal["one", "all", "skip"]
Overlap = Literal["allow", "skip"]

AHEAD = 100  # firing times that the store is given
MAX_MISSED = 10_000  # firing times that are computed after an outage
MAX_LOOKS, MAX_LOOKED_AT = 40, 2000  # periods, and firing times of each, among which past ones are looked for


@dataclass(frozen=True)
class Every:
    """An interval in milliseconds, aligned to an offset from 1970-01-01 UTC: hours and days are those of UTC."""

    interval: int
    offset: int = 0


@dataclass(frozen=True)
class Cron:
    """Five fields (minute, hour, day, month, weekday), or six with seconds first, in a time zone.

    Daylight saving is handled like in Debian's cron: a time that is skipped fires right after the change, and one that
    occurs twice fires once; expressions for every minute or hour are not affected.
    """

    expression: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """Raise Invalid if the expression or the zone is wrong, or it never fires."""
        if not isinstance(self.expression, str):
            raise Invalid(f"cron is {self.expression!r}; it must be a str like '30 2 * * mon-fri'")
        if next(self.after(0), None) is None:
            raise Invalid(f"cron {self.expression!r} never fires; check its day and month")

    def after(self, ms: int) -> Iterator[int]:
        """Iterate over the firing times after a time, in milliseconds."""
        last = ms
        for moment in self._moments(utc(ms).astimezone(_zone(self.zone))):
            time = int(moment.astimezone(UTC).timestamp()) * 1000
            if time > last:  # a clock change can make two of them equal
                last = time
                yield time

    def _moments(self, start: datetime) -> Iterator[datetime]:
        from cronsim import CronSim, CronSimError

        fields = self.expression.split()
        # CronSim handles clock changes like Debian's cron, but only for five fields.
        handle_here = len(fields) == 6 and not fields[1].startswith("*") and not fields[2].startswith("*")
        try:
            moments = CronSim(self.expression, start.replace(tzinfo=None, fold=0) if handle_here else start)
        except CronSimError as error:
            raise Invalid(
                f"cron is {self.expression!r}: {error}; "
                "it must be like '30 2 * * mon-fri' (minute, hour, day, month, weekday)"
            ) from None
        return (_existing(moment.replace(tzinfo=start.tzinfo)) for moment in moments) if handle_here else moments

    def next(self, ms: int, number: int = AHEAD) -> list[int]:
        return list(islice(self.after(ms), number))


def _existing(moment: datetime) -> datetime:
    """Return the moment, or the end of the clock change that skips it."""
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
            raise Invalid(f"unknown time zone {name!r}: this machine has no time zone data; install tzdata") from None
        raise Invalid(f"unknown time zone {name!r}; expected a name like Europe/Berlin, or UTC") from None


When = Every | Cron


def encode(when: When) -> str:
    """Return the text in the store from which further firing times can be computed."""
    kind = "every" if isinstance(when, Every) else "cron"
    return msgspec.json.encode({"kind": kind, **msgspec.to_builtins(when)}).decode()


def decode(spec: str) -> When:
    fields: dict[str, Any] = msgspec.json.decode(spec)
    kind = fields.pop("kind")
    return Every(**fields) if kind == "every" else Cron(**fields)


def more_times(cron: Cron, last: int, now: int) -> list[int]:
    """Return the firing times after the last known one: the latest missed ones, and the next ones."""
    missed = list(islice(takewhile(lambda time: time <= now, cron.after(last)), MAX_MISSED))
    if len(missed) == MAX_MISSED:  # a long outage: only the last day counts
        missed = list(takewhile(lambda time: time <= now, cron.after(now - 86_400_000)))
    return [*missed[-AHEAD:], *cron.next(max(now, last))]


def further_times(fields: Mapping[str, str]) -> tuple[int, list[int]] | None:
    """Return the last firing time that the store knows, and those that follow; None if the store computes them itself.

    `fields` are those of the schedule in the store.
    """
    when = decode(fields["spec"])
    if isinstance(when, Every):
        return None
    known = fields.get("times", "").split()
    last = int(known[-1] if known else fields.get("last", 0))
    return last, more_times(when, max(last, int(fields["since"])), int(fields["now"]))


def next_firings(when: When, now: datetime, number: int = 10) -> list[datetime]:
    """Return the next firing times."""
    ms = int(now.timestamp() * 1000)
    if isinstance(when, Cron):
        return [utc(time) for time in when.next(ms, number)]
    first = when.offset + max(0, -((when.offset - ms) // when.interval)) * when.interval
    return [utc(first + step * when.interval) for step in range(number)]


def past_firings(when: When, until: datetime, number: int = 10) -> list[datetime]:
    """Return the firing times up to a moment, the latest first."""
    ms = int(until.timestamp() * 1000)
    if isinstance(when, Cron):
        return [utc(time) for time in _past_times(when, ms, number)]
    last = when.offset + (ms - when.offset) // when.interval * when.interval
    return [utc(time) for step in range(number) if (time := last - step * when.interval) >= 0]


def _past_times(cron: Cron, ms: int, number: int) -> list[int]:
    """Look at ever longer periods before a time. A shorter one is taken if there are too many firing times in one."""
    following = cron.next(ms, 2)
    too_near, start = ms, max(0, ms - (number + 1) * (following[-1] - following[0] or DAY))
    found: list[int] = []
    for _ in range(MAX_LOOKS):
        found = list(islice(takewhile(lambda time: time <= ms, cron.after(start)), MAX_LOOKED_AT))
        if len(found) == MAX_LOOKED_AT:
            start = (start + too_near) // 2
        elif len(found) >= number or start == 0:
            break
        else:
            too_near, start = start, max(0, start - 4 * (ms - start))
    return found[: -number - 1 : -1] if len(found) < MAX_LOOKED_AT else []


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule fires, and what happens to missed firings. Durations are in milliseconds."""

    when: When
    missed: Missed = "one"
    backlog: int | None = None
    late: int | None = None
    overlap: Overlap = "allow"
    jitter: int | None = None

    @classmethod
    def of(
        cls,
        *,
        cron: str | None = None,
        tz: str | None = None,
        every: Duration | None = None,
        offset: Duration = 0,
        missed: Missed = "one",
        backlog: int | None = None,
        late: Duration | None = None,
        overlap: Overlap = "allow",
        jitter: Duration | None = None,
    ) -> Timing:
        """Check and convert the arguments.

        Raises:
            Invalid: neither or both of `cron` and `every` are given, or a value is not allowed.
        """
        if (cron is None) == (every is None):
            raise Invalid("a schedule needs either cron or every, not both")
        if every is None and cron is not None:
            if offset != 0:
                raise Invalid("offset is given with cron; it can only be used with every")
            when: When = Cron(cron, tz or "UTC")
        elif tz is not None:
            raise Invalid("tz is given with every; an interval has no time zone: use cron, or offset")
        else:
            interval = milliseconds(every or 0, what="every", minimum=MIN_INTERVAL, maximum=MAX_DURATION)
            when = Every(interval, milliseconds(offset, what="offset"))
        _check_choice("missed", missed, get_args(Missed))
        _check_choice("overlap", overlap, get_args(Overlap))
        if backlog is not None and (type(backlog) is not int or not 1 <= backlog <= MAX_BACKLOG):
            raise Invalid(f"backlog is {backlog!r}; it must be an int from 1 to {MAX_BACKLOG}")
        wait = None if late is None else milliseconds(late, what="late", maximum=MAX_DURATION)
        spread = None if jitter is None else milliseconds(jitter, what="jitter", maximum=MAX_JITTER)
        return cls(when=when, missed=missed, backlog=backlog, late=wait, overlap=overlap, jitter=spread)

    def next(self, number: int = 10, *, after: datetime | None = None) -> list[datetime]:
        """Return the next firing times, without jitter."""
        return next_firings(self.when, after or datetime.now(UTC), number)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the command. The firing times of a cron expression are sent later, in a refill."""
        when = self.when
        times = {"every": when.interval, "offset": when.offset} if isinstance(when, Every) else {}
        policy = {name: getattr(self, name) for name in ("missed", "backlog", "late", "overlap", "jitter")}
        return {"spec": encode(when), **times, **policy}


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise Invalid(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}")


class SchedulePolicy(TypedDict, total=False):
    """What happens to missed firings, and to those while the last job is unfinished. See `Holdfast.schedule`."""

    missed: Missed  # after a gap, fire the last `one`, `all`, or `skip` those that are too late; default one
    backlog: int | None  # maximum number of firings that `all` makes up for; default 100
    late: Duration | None  # maximum delay of a firing with `skip`; default one minute
    overlap: Overlap  # whether it fires while its last job has not ended; default allow
    jitter: Duration | None  # maximum random delay, always the same for the same firing time; default 0


def cron(expression: str, *, tz: str = "UTC", **policy: Unpack[SchedulePolicy]) -> Timing:
    """Fire at the times of a cron expression, in a time zone: `@jobs.task(schedule=cron("0 2 * * *"))`."""
    return Timing.of(cron=expression, tz=tz, **policy)


def every(interval: Duration, *, offset: Duration = 0, **policy: Unpack[SchedulePolicy]) -> Timing:
    """Fire at an interval: `@jobs.task(schedule=every("30s"))`."""
    return Timing.of(every=interval, offset=offset, **policy)
