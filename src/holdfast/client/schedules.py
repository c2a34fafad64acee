"""Schedules as users make and see them. Verbs of the client; see `verbs`."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack, get_args

import msgspec

from holdfast.client.timing import Cron, Every, When, decode, encode, further_times, next_firings
from holdfast.constants import MAX_BACKLOG, MAX_DURATION, MAX_JITTER, MIN_INTERVAL
from holdfast.errors import Invalid, ScheduleNotFound
from holdfast.job.option_table import not_for
from holdfast.names import check_schedule
from holdfast.store import Steps, Stores, commands
from holdfast.task.task import BoundCall
from holdfast.units import Duration, milliseconds, utc

Missed = Literal["one", "all", "skip"]
Overlap = Literal["allow", "skip"]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule fires, and what becomes of times that it missed. Times are in milliseconds."""

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
        """Check what users write.

        Raises:
            Invalid: neither or both of `cron` and `every` are given, or one of the values is not acceptable.
        """
        if (cron is None) == (every is None):
            raise Invalid("a schedule has either cron or every: say one of them")
        if every is None and cron is not None:
            if offset != 0:
                raise Invalid("offset is given with cron, which says its times itself; use it with every")
            when: When = Cron(cron, tz or "UTC")
        elif tz is not None:
            raise Invalid("tz is given with every; an interval knows no time zone: use cron, or offset")
        else:
            interval = milliseconds(every or 0, what="every", least=MIN_INTERVAL, most=MAX_DURATION)
            when = Every(interval, milliseconds(offset, what="offset"))
        _check_choice("missed", missed, get_args(Missed))
        _check_choice("overlap", overlap, get_args(Overlap))
        if backlog is not None and (type(backlog) is not int or not 1 <= backlog <= MAX_BACKLOG):
            raise Invalid(f"backlog is {backlog!r}; it must be an int from 1 to {MAX_BACKLOG}")
        wait = None if late is None else milliseconds(late, what="late", most=MAX_DURATION)
        spread = None if jitter is None else milliseconds(jitter, what="jitter", most=MAX_JITTER)
        return cls(when=when, missed=missed, backlog=backlog, late=wait, overlap=overlap, jitter=spread)

    def next(self, number: int = 10, *, after: datetime | None = None) -> list[datetime]:
        """Return the next times at which it fires, without the jitter."""
        return next_firings(self.when, after or utc(_now()), number)

    def arguments(self) -> dict[str, Any]:
        """As the store takes them. The times of a calendar follow, when the store has said its own time."""
        when = self.when
        times = {"every": when.interval, "offset": when.offset} if isinstance(when, Every) else {}
        policy = {name: getattr(self, name) for name in ("missed", "backlog", "late", "overlap", "jitter")}
        return {"spec": encode(when), **times, **policy}


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise Invalid(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}")


class Policy(TypedDict, total=False):
    """What becomes of times that were missed, or come while the last job is under way. See `Holdfast.schedule`."""

    missed: Missed  # of several times that are due: the last `one`, `all`, or `skip` those that are too late; one
    backlog: int  # how many `all` makes up for, at most; 100
    late: Duration  # how late a time may fire with `skip`; a minute
    overlap: Overlap  # whether it fires while its last job has not ended; allow
    jitter: Duration  # up to so much later, always the same for the same time; 0


def cron(expression: str, *, tz: str = "UTC", **policy: Unpack[Policy]) -> Timing:
    """At the times of a cron expression, in a time zone: for `@jobs.task(schedule=cron("0 2 * * *"))`."""
    return Timing.of(cron=expression, tz=tz, **policy)


def every(interval: Duration, *, offset: Duration = 0, **policy: Unpack[Policy]) -> Timing:
    """Every so often: for `@jobs.task(schedule=every("30s"))`."""
    return Timing.of(every=interval, offset=offset, **policy)


class Schedule(msgspec.Struct, frozen=True):
    """A schedule as it was at one moment."""

    name: str
    when: When | None  # None: it was made by a program whose calendar is not known here
    task: str
    queue: str
    paused: bool
    missed: str
    overlap: str
    fired: int  # how many times it has fired
    skipped: int  # how many times it should have fired, and did not
    last_at: datetime | None  # the last time that was due
    last_job: str  # the id of the last job that it enqueued
    looked_at: datetime  # that moment, by the clock of the store

    def next(self, number: int = 10, *, after: datetime | None = None) -> list[datetime]:
        """Return the next times at which it fires, without the jitter; none while it is paused."""
        return [] if self.paused or self.when is None else next_firings(self.when, after or self.looked_at, number)


def declaration(name: str, call: BoundCall[Any], timing: Timing, revision: int | None = None) -> dict[str, Any]:
    """Return the arguments of `commands.schedule`."""
    if not isinstance(call, BoundCall):
        raise Invalid(f"{call!r} is no bound call; write task.bind(...)")
    if not isinstance(timing, Timing):
        raise Invalid(f"schedule is {timing!r}; it must be cron(...) or every(...), of holdfast")
    if call.chosen.deadline_at is not None:
        raise Invalid("deadline is a time; each firing needs one of its own: give a duration")
    if call.chosen.deadline is not None and call.chosen.deadline <= (timing.jitter or 0):
        raise Invalid("the jitter may be longer than the deadline; a job would be due after it")
    for option in not_for("schedule"):
        if getattr(call.chosen, option) is not None:
            raise Invalid(f"{option} is no option of a scheduled call: each firing is a job of its own")
    told = {"name": check_schedule(name), "batch": call.variant.batch, "payload": call.payload}
    return {**told, "revision": revision, **timing.arguments()}


def schedule(
    _: Stores,
    name: str,
    call: BoundCall[Any],
    /,
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
) -> Steps[bool]:
    """Enqueue a call again and again, at the times of a cron expression or every so often.

    jobs.schedule("nightly", report.bind(), cron="0 2 * * *", tz="Europe/Berlin")
    jobs.schedule("poll", poll.bind("inbox"), every="30s", overlap="skip")

    Of times that were missed, because nothing ran, `one` is made up for, `all` (the last `backlog`), or those that are
    not more than `late` (`skip`). Returns whether that changed anything.
    """
    timing = Timing.of(
        cron=cron,
        tz=tz,
        every=every,
        offset=offset,
        missed=missed,
        backlog=backlog,
        late=late,
        overlap=overlap,
        jitter=jitter,
    )
    changed: bool = yield commands.schedule(**declaration(name, call, timing))
    if changed:
        for fields in (yield commands.schedules([name])):
            if told := further_times(fields):
                yield commands.refill(name, *told)
    return changed


def unschedule(_: Stores, name: str) -> Steps[bool]:
    """Remove a schedule; its jobs stay. Returns whether there was one."""
    gone: bool = yield commands.unschedule(name)
    return gone


def pause_schedule(_: Stores, name: str) -> Steps[bool]:
    """Have a schedule fire no more, until `resume_schedule`. Returns whether that changed anything."""
    changed: bool = yield commands.pause_schedule(name)
    return changed


def resume_schedule(_: Stores, name: str) -> Steps[bool]:
    """Have a paused schedule fire again; what came due meanwhile is not made up for."""
    changed: bool = yield commands.resume_schedule(name)
    return changed


def trigger(_: Stores, name: str) -> Steps[str]:
    """Enqueue a job of a schedule now, besides its times. Returns the job's id."""
    id: str = yield commands.trigger(name)
    return id


def schedules(_: Stores) -> Steps[list[Schedule]]:
    """Return all schedules, by name."""
    found: list[Schedule] = []
    while part := (yield commands.schedules(after=found[-1].name if found else None)):
        found += [_read(fields) for fields in part]
    return found


def get_schedule(_: Stores, name: str) -> Steps[Schedule]:
    """Return a schedule.

    Raises:
        ScheduleNotFound: there is none of this name.
    """
    found = yield commands.schedules([name])
    if not found:
        raise ScheduleNotFound(f"there is no schedule {name}")
    return _read(found[0])


def _read(fields: dict[str, Any]) -> Schedule:
    batch = msgspec.json.decode(fields["batch"])
    return Schedule(
        fields["name"],
        _when(fields["spec"]),
        batch["task"],
        batch["queue"],
        fields.get("paused") == "1",
        fields["missed"],
        fields["overlap"],
        int(fields.get("fired", 0)),
        int(fields.get("skipped", 0)),
        utc(int(fields["last"])) if fields.get("last") else None,
        fields.get("job", ""),
        utc(int(fields["now"])),
    )


def _when(spec: str) -> When | None:
    try:
        return decode(spec)
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, Invalid):
        return None


def _now() -> int:
    return time.time_ns() // 1_000_000
