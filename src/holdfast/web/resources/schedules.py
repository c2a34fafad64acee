"""Schedules: jobs that are enqueued periodically; listed, added, changed, triggered, paused and removed."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, get_type_hints

import msgspec

from holdfast.client.finding import find
from holdfast.client.schedules import Schedule, reschedule
from holdfast.client.timing import Missed, Overlap, SchedulePolicy
from holdfast.constants import MAX_BACKLOG
from holdfast.records.schedules import (
    LISTED_SCHEDULES,
    SCHEDULE_DETAILS,
    SCHEDULES,
    TRIGGERED,
    aschedule_details,
    aschedules_with_history,
    schedule_record,
)
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.durations import read_duration
from holdfast.web.lists import ListQuery, cut
from holdfast.web.new_jobs import DurationText, LaterJob, make_call
from holdfast.web.paths import encode_name
from holdfast.web.problems import Problem
from holdfast.web.resource import API, Listed, ListOf, Resources, about
from holdfast.web.steps import run

routes = Resources()

MAX_FIRINGS = 100
MAX_LISTED = 20  # past times of each schedule in a list


class ScheduleQuery(msgspec.Struct, frozen=True):
    limit: Annotated[int, about("maximum number of next times, and of past times", ge=0, le=MAX_FIRINGS)] = 10


class SchedulesQuery(ListQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which schedules."""

    history: Annotated[int, about("maximum number of past times of each, with their jobs", ge=0, le=MAX_LISTED)] = 0


class NewSchedule(LaterJob, frozen=True, kw_only=True, forbid_unknown_fields=True):  # type: ignore[misc, call-arg]
    """A call of a task or a program, and when it is enqueued: `cron` or `every` is required."""

    cron: Annotated[str | None, about("minute, hour, day, month, weekday: 30 2 * * mon-fri")] = None
    tz: Annotated[str | None, about("time zone of `cron`: Europe/Berlin; else UTC")] = None
    every: Annotated[DurationText | None, about("interval, instead of `cron`")] = None
    offset: Annotated[DurationText | None, about("with `every`: shift all times by this")] = None
    missed: Annotated[Missed | None, about("missed times: make up for one or all of them, or skip them; else one")] = (
        None
    )
    backlog: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MAX_BACKLOG)] | None,
        about("with `missed` all: how many times to make up for at most; else 100"),
    ] = None
    late: Annotated[DurationText | None, about("with `missed` skip: how late it may still fire; else 1m")] = None
    overlap: Annotated[Overlap | None, about("if the last job has not ended: allow another, or skip; else allow")] = (
        None
    )
    jitter: Annotated[DurationText | None, about("maximum random delay of each job")] = None


class NamedSchedule(NewSchedule, frozen=True, kw_only=True, forbid_unknown_fields=True):  # type: ignore[call-arg]
    """The same, with a name."""

    schedule: Annotated[str, about("name of the schedule")]


TIMING = ("cron", "tz", "every", "offset", *SchedulePolicy.__annotations__)
NewTiming: Any = msgspec.defstruct(
    "NewTiming",
    [(name, get_type_hints(NewSchedule, include_extras=True)[name], None) for name in TIMING],
    namespace={"__doc__": "When a schedule fires: `cron` or `every` is required."},
    frozen=True, kw_only=True, forbid_unknown_fields=True,
)  # fmt: skip
DURATIONS = ("every", "offset", "late", "jitter")


@routes.get("/schedules", reply=ListOf(LISTED_SCHEDULES), scope="visible", client="schedules")
async def list_schedules(call: Call, query: SchedulesQuery) -> Listed:
    """List schedules with the time each fires next; with `history`, also the last times and their jobs."""
    found = cut(await visible_schedules(call), query, lambda each: each.name)
    return Listed(items=await aschedules_with_history(call.app, found.values, query.history), next=found.next)


@routes.get("/schedules/{schedule}", reply=SCHEDULE_DETAILS, scope="visible", client=("schedules", "get_schedule"))
async def show_schedule(call: Call, schedule: str, query: ScheduleQuery) -> Record:
    """Show a schedule: its job, its next times, and its past times with the jobs that they enqueued."""
    found = await find_schedule(call, schedule)
    return await aschedule_details(call.app, found, found.looked_at, query.limit)


@routes.put(
    "/schedules/{schedule}", reply=SCHEDULES, role="admin", scope="visible", status=(200, 201), client="schedule"
)
async def put_schedule(call: Call, schedule: str, body: NewSchedule) -> Record:
    """Add a schedule, or change the one of this name.

    Each firing is a job whose id consists of the name and the time, so no time fires twice. A schedule that a task
    declares is overridden, also after workers restart, until it is reset. The answer is 201 if it was added.
    """
    bound = make_call(call, body, later=True)
    known = {each.name: each for each in await call.app.aschedules()}
    if schedule in known and not call.user.has_queue(known[schedule].queue):
        raise Problem(403, "FORBIDDEN", f"{call.user.name} has no rights on the queue of the schedule {schedule}")
    await call.app.aschedule(schedule, bound, **_timing(body))
    if schedule not in known:
        call.respond(201, Location=call.url(f"{API}/schedules/{encode_name(schedule)}"))
    return await _record(call, schedule)


@routes.post("/schedules", reply=SCHEDULES, role="admin", scope="visible", status=201, client="schedule")
async def add_schedule(call: Call, body: NamedSchedule) -> Record:
    """Add a schedule. 409 if there is one of this name."""
    call.audited["schedule"] = body.schedule
    if any(each.name == body.schedule for each in await call.app.aschedules()):
        raise Problem(409, "EXISTS", f"there is a schedule of the name {body.schedule}")
    await call.app.aschedule(body.schedule, make_call(call, body, later=True), **_timing(body))
    call.respond(201, Location=call.url(f"{API}/schedules/{encode_name(body.schedule)}"))
    return await _record(call, body.schedule)


@routes.put("/schedules/{schedule}/timing", reply=SCHEDULES, role="admin", scope="visible", client="schedule")
async def put_timing(call: Call, schedule: str, body: NewTiming) -> Record:
    """Change when a schedule fires. Its job stays as it is: the task, the arguments and the options."""
    await find_schedule(call, schedule)
    await run(call, reschedule(schedule, **_timing(body)))
    return await _record(call, schedule)


@routes.delete("/schedules/{schedule}", role="admin", scope="visible", client="unschedule")
async def remove_schedule(call: Call, schedule: str) -> None:
    """Remove a schedule; its jobs stay.

    One that a task declares is added again when a worker of the app starts: pause it instead.
    """
    await find_schedule(call, schedule)
    await call.app.aunschedule(schedule)


@routes.post("/schedules/{schedule}:reset", reply=SCHEDULES, role="admin", scope="visible", client="reset_schedule")
async def reset_schedule(call: Call, schedule: str) -> Record:
    """Return to the schedule that a task declares. 409 if no task declares it.

    Missed times are made up for only if the times are the same as before. A paused schedule stays paused.
    """
    await find_schedule(call, schedule)
    await call.app.areset_schedule(schedule)
    return await _record(call, schedule)


@routes.post("/schedules/{schedule}:pause", reply=SCHEDULES, scope="visible", client="pause_schedule")
async def pause_schedule(call: Call, schedule: str) -> Record:
    """Pause a schedule."""
    await find_schedule(call, schedule)
    await call.app.apause_schedule(schedule)
    return await _record(call, schedule)


@routes.post("/schedules/{schedule}:resume", reply=SCHEDULES, scope="visible", client="resume_schedule")
async def resume_schedule(call: Call, schedule: str) -> Record:
    """Resume a paused schedule; times that passed meanwhile are not made up for."""
    await find_schedule(call, schedule)
    await call.app.aresume_schedule(schedule)
    return await _record(call, schedule)


@routes.post("/schedules/{schedule}:trigger", reply=TRIGGERED, scope="visible", status=201, client="trigger")
async def trigger_schedule(call: Call, schedule: str) -> Record:
    """Enqueue a job of a schedule now."""
    await find_schedule(call, schedule)
    id = await call.app.atrigger(schedule)
    call.respond(201, Location=call.url(f"{API}/jobs/{encode_name(id)}"))
    return {"schedule": schedule, "id": id}


def _timing(body: Any) -> Any:
    given = {name: getattr(body, name) for name in TIMING}
    return {
        name: read_duration(value) if name in DURATIONS else value for name, value in given.items() if value is not None
    }


async def visible_schedules(call: Call) -> list[Schedule]:
    """Return the schedules of queues that the user may see."""
    return call.visible(await call.app.aschedules())


async def find_schedule(call: Call, name: str) -> Schedule:
    """Return a schedule of a queue that the user may see; raise NotFound, with similar names, if there is none."""
    return find("schedule", {each.name: each for each in await visible_schedules(call)}, name)


async def _record(call: Call, name: str) -> Record:
    found = await find_schedule(call, name)
    return await asyncio.to_thread(schedule_record, found, found.looked_at)
