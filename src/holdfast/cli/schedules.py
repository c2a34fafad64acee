"""Commands on schedules: what is enqueued again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, get_args
from zoneinfo import ZoneInfo, available_timezones

import click
import msgspec

from holdfast import Holdfast
from holdfast.cli.arguments import call_options, choose_task, make_call
from holdfast.cli.complaints import note
from holdfast.cli.completers import complete_schedule, complete_task, complete_zone
from holdfast.cli.fields import FULL_SCHEDULE, SCHEDULE, TRIGGERED, UNSCHEDULED
from holdfast.cli.lookup import note_undefined_limits, pick
from holdfast.cli.output import Column, Fact, Output
from holdfast.cli.records import Record, decoded, schedule_record
from holdfast.cli.session import Group, Session, command, duration_option, pass_session
from holdfast.cli.text import json_text, seconds_text
from holdfast.cli.watch import View, follow_option, show_list
from holdfast.client.schedules import Missed, Overlap, Schedule
from holdfast.constants import MAX_DURATION, MIN_INTERVAL
from holdfast.errors import Invalid
from holdfast.store import commands
from holdfast.text import did_you_mean
from holdfast.units import DAY

TIMING = ("cron", "every", "offset", "missed", "backlog", "late", "overlap", "jitter")


@click.group(
    "schedules", cls=Group, default="list",
    examples=("holdfast schedules", "holdfast schedules add nightly tasks.report --cron '0 2 * * *'"),
)  # fmt: skip
def schedules() -> None:
    """Schedules: jobs that are enqueued again and again.

    They come at the times of a cron expression, or every so often. Without a command, they are listed. Tasks may
    declare schedules, too: workers make those when they start.
    """


_name = click.argument("name", shell_complete=complete_schedule)


@command(
    "list", "holdfast schedules", "holdfast schedules --json | jq '.[] | select(.paused) | .schedule'", fields=SCHEDULE
)
@follow_option("Refresh until Ctrl-C; when piped, print the schedules that change.")
@pass_session
def list_schedules(session: Session, watch: bool) -> None:
    """List schedules, with the time at which each fires next.

    When piped, the columns are schedule, when, task, queue, next, last, and active or paused. With --json, an array;
    with --follow, an object on each line.
    """

    def look() -> View:
        now = session.now()
        return View([schedule_record(each, now) for each in session.app.schedules()])

    show_list(session.output, look, _columns(), "schedule", watch=watch)


def _columns() -> list[Column]:
    return [
        Column("SCHEDULE", lambda row: row["schedule"], whole=True),
        Column("WHEN", when),
        Column("TASK", lambda row: row["task"]),
        Column("QUEUE", lambda row: row["queue"]),
        Column("NEXT", lambda row: row["next_at"], right=True),
        Column("LAST", lambda row: row["last_at"], right=True),
        Column("STATE", lambda row: "paused" if row["paused"] else "active", coloured=True, whole=True),
    ]


def when(record: Record) -> str:
    """Return when a schedule fires, for people: 0 2 * * * Europe/Berlin, every 30s."""
    if record["cron"]:
        return f"{record['cron']} {record['tz']}"
    if record["every_seconds"] is None:
        return "a calendar that is not known here"
    offset = seconds_text(record["offset_seconds"])
    return f"every {seconds_text(record['every_seconds'])}{f', offset {offset}' if record['offset_seconds'] else ''}"


@command(
    "show",
    "holdfast schedules show nightly",
    "holdfast schedules show nightly --json | jq -r '.firings[].at'",
    fields=FULL_SCHEDULE,
)
@_name
@click.option(
    "--limit",
    type=click.IntRange(0, 1000),
    metavar="NUMBER",
    default=10,
    show_default=True,
    help="How many of the next times.",
)
@pass_session
def show(session: Session, name: str, limit: int) -> None:
    """Show a schedule, and when it fires next: in its time zone, and in UTC.

    With --json, an object. Exit code 3 if there is no such schedule.
    """
    found = _find(session.app, name)
    (fields,) = session.app.store.run(commands.schedules([name]))
    record = {
        **schedule_record(found, session.now()),
        **_details(fields),
        "firings": _firings(found, session.now(), limit),
    }
    if session.output.mode == "json":
        session.output.json(record)
    else:
        session.output.facts(_describe(record, session.output))


def _find(app: Holdfast, name: str) -> Schedule:
    return pick("schedule", {each.name: each for each in app.schedules()}, name)


def _details(fields: dict[str, Any]) -> Record:
    """What a list does not show."""
    batch = msgspec.json.decode(fields["batch"])
    codec = batch.pop("codec", "json")
    return {
        "backlog": int(fields["backlog"]),
        "late_seconds": int(fields["late"]) / 1000,
        "jitter_seconds": int(fields["jitter"]) / 1000,
        "revision": int(fields["revision"]),
        "arguments": decoded(fields["payload"], codec),
        "options": {name: value for name, value in batch.items() if name not in ("task", "queue")},
    }


def _firings(found: Schedule, now: datetime, limit: int) -> list[Record]:
    zone = ZoneInfo(getattr(found.when, "zone", "UTC"))
    return [{"at": at, "local": at.astimezone(zone)} for at in found.next(limit, after=now)]


def _describe(record: Record, output: Output) -> Iterator[Fact]:
    yield Fact("schedule", record["schedule"])
    yield Fact("state", "paused" if record["paused"] else "active", "yellow" if record["paused"] else "green")
    yield Fact("when", when(record))
    yield Fact("task", record["task"])
    yield Fact("queue", record["queue"])
    yield Fact("arguments", json_text(record["arguments"]))
    if record["options"]:
        yield Fact("options", json_text(record["options"]))
    yield Fact("missed", _missed(record))
    yield Fact("overlap", record["overlap"])
    if record["jitter_seconds"]:
        yield Fact("jitter", seconds_text(record["jitter_seconds"]))
    yield Fact("fired", f"{record['fired']}, skipped {record['skipped']}")
    if record["last_at"]:
        yield Fact("last", output.when(record["last_at"]))
    if record["last_job"]:
        yield Fact("last job", record["last_job"])
    for firing in record["firings"]:
        yield Fact("next", _firing(firing, record["tz"], output))


def _missed(record: Record) -> str:
    more = {"all": f", up to {record['backlog']}", "skip": f", if later than {seconds_text(record['late_seconds'])}"}
    return f"{record['missed']}{more.get(record['missed'], '')}"


def _firing(firing: Record, zone: str | None, output: Output) -> str:
    if zone in (None, "UTC"):
        return output.when(firing["at"])
    return f"{firing['local'].isoformat(timespec='seconds')} {zone}, {output.when(firing['at'])}"


@command(
    "add",
    "holdfast schedules add nightly tasks.report --cron '0 2 * * *' --tz Europe/Berlin",
    "holdfast schedules add poll tasks.poll inbox --app tasks --every 30s --overlap skip",
    fields=SCHEDULE,
)
@click.argument("name")
@click.argument("task", shell_complete=complete_task)
@click.argument("words", nargs=-1, metavar="[ARGUMENT...]")
@click.option("--cron", metavar="EXPRESSION", help="Minute, hour, day, month, weekday: '30 2 * * mon-fri'.")
@click.option(
    "--tz", metavar="ZONE", shell_complete=complete_zone, help="Time zone of --cron: Europe/Berlin; else UTC."
)
@duration_option("--every", "Every so often, instead of --cron: 30s, 1h.", least=MIN_INTERVAL, most=MAX_DURATION)
@duration_option("--offset", "Count intervals from so long after midnight in UTC.")
@click.option(
    "--missed",
    type=click.Choice(get_args(Missed)),
    help="Of times that were missed, make up for one, all, or skip them; else one.",
)
@click.option(
    "--backlog", type=click.IntRange(1), metavar="NUMBER", help="With --missed all: the last so many; else 100."
)
@duration_option("--late", "With --missed skip: those that are later than this; else 1m.")
@click.option(
    "--overlap", type=click.Choice(get_args(Overlap)), help="If the last job has not ended: fire, or skip; else allow."
)
@duration_option("--jitter", "Up to so much later, so that not all come at once.", most=DAY)
@call_options
@pass_session
def add(
    session: Session, /, name: str, task: str, words: Sequence[str], *, path: str | None, tz: str | None, **options: Any
) -> None:
    """Make a schedule, or change the one of this name.

    The arguments of the task are given as to `enqueue`. Each firing is a job of its own, whose id is the name and the
    time, so no time fires twice. Exit code 2 if an expression, a time zone or an argument is wrong.
    """
    if tz is not None and tz not in available_timezones():
        raise Invalid(f"there is no time zone {tz!r}{did_you_mean(tz, available_timezones())}")
    if isinstance(options["deadline"], datetime):
        raise click.UsageError("the --deadline of a schedule is a duration, for each of its jobs.")
    timing = {each: options.pop(each) for each in TIMING}
    made, app = choose_task(session, path, task, options)
    given = {each: value for each, value in timing.items() if value is not None}
    is_known = name in {each.name for each in app.schedules()}
    changed = app.schedule(name, make_call(made, words, checked=bool(path)), tz=tz, **given)
    note_undefined_limits(app, made.chosen.limits or ())
    _say(session, name, changed=changed)
    if changed and is_known:
        note(f"schedule {name} was there, and was changed")


def _say(session: Session, name: str, *, changed: bool) -> None:
    session.output.one(schedule_record(_find(session.app, name), session.now()), _columns())
    if not changed:
        note(f"schedule {name} was so before")


@command("pause", "holdfast schedules pause nightly", fields=SCHEDULE)
@_name
@pass_session
def pause(session: Session, name: str) -> None:
    """Have a schedule fire no more, until it is resumed. Exit code 3 if there is no such schedule."""
    _find(session.app, name)
    _say(session, name, changed=session.app.pause_schedule(name))


@command("resume", "holdfast schedules resume nightly", fields=SCHEDULE)
@_name
@pass_session
def resume(session: Session, name: str) -> None:
    """Have a paused schedule fire again; what came due meanwhile is not made up for.

    Exit code 3 if there is no such schedule.
    """
    _find(session.app, name)
    _say(session, name, changed=session.app.resume_schedule(name))


@command(
    "trigger",
    "holdfast schedules trigger nightly",
    "holdfast schedules trigger nightly | holdfast wait",
    fields=TRIGGERED,
)
@_name
@pass_session
def trigger(session: Session, name: str) -> None:
    """Enqueue a job of a schedule now, besides its times, and print its id.

    Exit code 3 if there is no such schedule.
    """
    _find(session.app, name)
    session.output.value({"schedule": name, "id": session.app.trigger(name)}, "id")


@command("remove", "holdfast schedules remove nightly", fields=UNSCHEDULED)
@_name
@pass_session
def remove(session: Session, name: str) -> None:
    """Remove a schedule; its jobs stay. Exit code 3 if there is no such schedule.

    One that a task declares is made again when a worker of the app starts: pause it instead.
    """
    _find(session.app, name)
    session.app.unschedule(name)
    columns = [Column("SCHEDULE", lambda row: row["schedule"], whole=True), Column("", lambda _: "removed")]
    session.output.one({"schedule": name, "removed": True}, columns)


for each in (list_schedules, show, add, pause, resume, trigger, remove):
    schedules.add_command(each)
