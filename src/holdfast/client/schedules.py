"""Schedules: create, remove, pause, trigger and list them. When they fire is computed in `client.timing`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Unpack

import msgspec

from holdfast.client.timing import SchedulePolicy, Timing, When, decode, further_times, next_firings
from holdfast.errors import Invalid, ScheduleNotFound
from holdfast.job.option_table import not_for
from holdfast.names import check_schedule
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands.command import read_number, read_template
from holdfast.task.scope import scope_now, with_scope
from holdfast.task.task import BoundCall
from holdfast.units import Duration, humanize, utc


class Schedule(msgspec.Struct, frozen=True):
    """A snapshot of a schedule."""

    name: str
    when: When | None  # None if another release created it in a way unknown here
    task: str
    queue: str
    paused: bool
    missed: str
    overlap: str
    fired: int  # number of firings
    skipped: int  # number of skipped firings
    last_at: datetime | None  # the last firing time that was due
    last_job: str  # id of the last job that it enqueued
    is_declared: bool  # by a task of an app
    is_overridden: bool  # declared, but changed with `schedule`: see `reset_schedule`
    declared_when: When | None  # as it is declared; None if it is not declared, or in a way unknown here
    looked_at: datetime  # when the snapshot was taken, by the store's clock

    def next(self, number: int = 10, *, after: datetime | None = None) -> list[datetime]:
        """Return the next firing times, without jitter; none while it is paused."""
        return [] if self.paused or self.when is None else next_firings(self.when, after or self.looked_at, number)


def declaration(name: str, call: BoundCall[Any], timing: Timing) -> dict[str, Any]:
    """Return the arguments of `commands.schedule`; with a revision, those of `commands.declare_schedule`."""
    if not isinstance(call, BoundCall):
        raise Invalid(f"expected a bound call, as task.bind(...), got {call!r}")
    if not isinstance(timing, Timing):
        raise Invalid(f"schedule is {timing!r}; it must be holdfast.cron(...) or holdfast.every(...)")
    options, jitter = call.effective_options, timing.jitter or 0
    if options.deadline_at is not None:
        raise Invalid("deadline of a scheduled call must be a duration, not a time: it applies to each firing")
    if options.deadline is not None and options.deadline <= jitter:
        raise Invalid(
            f"deadline ({humanize(options.deadline)}) must be longer than jitter ({humanize(jitter)}): the jitter may "
            "delay a job beyond its deadline"
        )
    for option in not_for("schedule"):
        if getattr(options, option) is not None:
            raise Invalid(f"a scheduled call cannot have the option {option}: each firing is a job of its own")
    batch = with_scope(call.variant.batch, scope_now(call.variant.app))
    fields = {"name": check_schedule(name), "batch": batch, "payload": call.payload}
    return {**fields, **timing.arguments()}


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
    **policy: Unpack[SchedulePolicy],
) -> Steps[bool]:
    """Enqueue a call at the times of a cron expression, or at an interval.

    jobs.schedule("nightly", report.bind(), cron="0 2 * * *", tz="Europe/Berlin")
    jobs.schedule("poll", poll.bind("inbox"), every="30s", overlap="skip")

    `missed` decides what follows when no worker ran for a while: one job for all missed firings (`"one"`), one for each
    of the last `backlog` (`"all"`), or none for those that are more than `late` overdue (`"skip"`).

    A schedule that a task declares is overridden until `reset_schedule`. Return whether it changed anything.
    """
    timing = Timing.of(cron=cron, tz=tz, every=every, offset=offset, **policy)
    changed: bool = yield commands.schedule(**declaration(name, call, timing))
    if changed:
        yield from _refill(name)
    return changed


def reschedule(name: str, /, **timing: Any) -> Steps[bool]:
    """Change when a schedule fires, as `schedule` does, but keep its call. Return whether it changed anything.

    Raises:
        ScheduleNotFound: no schedule has this name.
    """
    found = yield commands.schedules([name])
    if not found:
        raise ScheduleNotFound(f"schedule {name} does not exist")
    fields, new = found[0], Timing.of(**timing)
    batch, payload = msgspec.json.decode(fields["batch"]), fields["payload"]
    changed: bool = yield commands.schedule(name, batch, payload, **new.arguments())
    if changed:
        yield from _refill(name)
    return changed


def reset_schedule(_: Stores, name: str) -> Steps[bool]:
    """Return to the schedule that the code declares. Return whether it was overridden.

    Firings are made up for only if the times are the same as before. A paused schedule stays paused.

    Raises:
        ScheduleNotFound: no schedule has this name.
        WrongState: no app declares it; `unschedule` removes it.
    """
    changed: bool = yield commands.reset_schedule(name)
    if changed:
        yield from _refill(name)
    return changed


def _refill(name: str) -> Steps[None]:
    for fields in (yield commands.schedules([name])):
        if times := further_times(fields):
            yield commands.refill(name, *times)


def unschedule(_: Stores, name: str) -> Steps[bool]:
    """Remove a schedule; its jobs stay. Return whether it existed.

    A schedule that a task declares is added again when a worker of the app starts: pause it instead.
    """
    gone: bool = yield commands.unschedule(name)
    return gone


def pause_schedule(_: Stores, name: str) -> Steps[bool]:
    """Pause a schedule until `resume_schedule`. Return whether it changed anything."""
    changed: bool = yield commands.pause_schedule(name)
    return changed


def resume_schedule(_: Stores, name: str) -> Steps[bool]:
    """Resume a paused schedule; firings in the meantime are not made up for. Return whether it changed anything."""
    changed: bool = yield commands.resume_schedule(name)
    return changed


def trigger(_: Stores, name: str) -> Steps[str]:
    """Enqueue a job of a schedule now, in addition to its firing times. Return the job's id."""
    id: str = yield commands.trigger(name)
    return id


def schedules(_: Stores) -> Steps[list[Schedule]]:
    """Return all schedules, sorted by name."""
    found: list[Schedule] = []
    while part := (yield commands.schedules(after=found[-1].name if found else None)):
        found += [_read(fields) for fields in part]
    return found


def get_schedule(_: Stores, name: str) -> Steps[Schedule]:
    """Return a schedule.

    Raises:
        ScheduleNotFound: no schedule has this name.
    """
    found = yield commands.schedules([name])
    if not found:
        raise ScheduleNotFound(f"schedule {name} does not exist")
    return _read(found[0])


def _read(fields: dict[str, Any]) -> Schedule:
    """Read a schedule. What is damaged is left out, so that it can be listed and removed."""
    template, last = read_template(fields.get("batch")), read_number(fields.get("last"))
    return Schedule(
        fields["name"],
        _when(fields.get("spec", "")),
        template.task,
        template.queue,
        fields.get("paused") == "1",
        fields.get("missed", ""),
        fields.get("overlap", ""),
        read_number(fields.get("fired")),
        read_number(fields.get("skipped")),
        utc(last) if last else None,
        fields.get("job", ""),
        "revision" in fields or "default:revision" in fields,
        "default:revision" in fields,
        _when(fields.get("default:spec", fields.get("spec", "") if "revision" in fields else "")),
        utc(int(fields["now"])),
    )


def _when(spec: str) -> When | None:
    try:
        return decode(spec)
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, Invalid):
        return None
