"""`holdfast schedules`: jobs that are enqueued periodically."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, get_args
from zoneinfo import available_timezones

import click

from holdfast import Holdfast
from holdfast.cli.calls import app_option, choose_task, make_call
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_schedule, complete_task, complete_zone
from holdfast.cli.errors import print_note
from holdfast.cli.job_options import job_options
from holdfast.cli.options import Integer, duration_option, limit_option
from holdfast.cli.output import STYLES, Fact, Output
from holdfast.cli.suggestions import note_undefined_limits
from holdfast.cli.watch import show_list, watch_option
from holdfast.client.finding import find
from holdfast.client.schedules import Schedule
from holdfast.client.timing import Missed, Overlap
from holdfast.constants import MAX_BATCH, MAX_DURATION, MIN_INTERVAL
from holdfast.errors import Invalid
from holdfast.records.formatting import duration_text, json_text
from holdfast.records.schedules import (
    REMOVED,
    SCHEDULE_DETAILS,
    SCHEDULES,
    TRIGGERED,
    schedule_details,
    schedule_record,
    when_text,
)
from holdfast.records.table import Record
from holdfast.text import did_you_mean
from holdfast.units import DAY

TIMING = ("cron", "every", "offset", "missed", "backlog", "late", "overlap", "jitter")


@click.group(
    "schedules", cls=Group, default="list",
    examples=("holdfast schedules", "holdfast schedules add nightly tasks.report --cron '0 2 * * *'"),
)  # fmt: skip
def schedules() -> None:
    """List, add, pause and trigger periodic jobs.

    Without a command, schedules are listed. Tasks may declare schedules, too; workers add those when they start, and
    `schedules add` overrides them.
    """


_name = click.argument("name", shell_complete=complete_schedule)


@command(
    "list", "holdfast schedules", "holdfast schedules --json | jq '.[] | select(.paused) | .schedule'",
    output=SCHEDULES,
)  # fmt: skip
@watch_option("Refresh until Ctrl-C; in a pipe, print the schedules that change.")
@pass_client
def list_schedules(client: Client, watching: bool) -> None:
    """List schedules with the time each fires next."""

    def load() -> list[Record]:
        now = client.now()
        return [schedule_record(each, now) for each in client.app.schedules()]

    show_list(client.output, load, SCHEDULES, watching=watching)


@command(
    "show", "holdfast schedules show nightly", "holdfast schedules show nightly --json | jq -r '.firings[].at'",
    output=SCHEDULE_DETAILS,
)  # fmt: skip
@_name
@limit_option("Number of next times, and of past ones.", default=10, minimum=0, maximum=MAX_BATCH)
@pass_client
def show(client: Client, name: str, limit: int) -> None:
    """Show a schedule, and its next and past times, in its time zone and in UTC.

    Exit code 3 if the schedule does not exist.
    """
    record = schedule_details(client.app, _find(client.app, name), client.now(), limit)
    if client.output.mode == "json":
        client.output.json(record)
    else:
        client.output.facts(_describe(record, client.output))


def _find(app: Holdfast, name: str) -> Schedule:
    return find("schedule", {each.name: each for each in app.schedules()}, name)


def _describe(record: Record, output: Output) -> Iterator[Fact]:
    yield Fact("schedule", record["schedule"])
    yield Fact("state", "paused" if record["paused"] else "active", "yellow" if record["paused"] else "green")
    yield Fact("when", when_text(record))
    yield Fact("source", record["source"], STYLES.get(record["source"], ""))
    if record["declared_when"]:
        yield Fact("declared", record["declared_when"])
    yield Fact("task", record["task"])
    yield Fact("queue", record["queue"])
    yield Fact("arguments", json_text(record["arguments"]))
    if record["options"]:
        yield Fact("options", json_text(record["options"]))
    yield Fact("missed", _missed(record))
    yield Fact("overlap", record["overlap"])
    if record["jitter_seconds"]:
        yield Fact("jitter", duration_text(record["jitter_seconds"]))
    yield Fact("fired", f"{record['fired']}, skipped {record['skipped']}")
    if record["last_at"]:
        yield Fact("last", output.when(record["last_at"]))
    if record["last_job"]:
        yield Fact("last job", record["last_job"])
    for firing in reversed(record["history"]):
        if firing["state"]:
            yield Fact("past", f"{_firing(firing, record['tz'], output)}: {firing['state']}")
    for firing in record["firings"]:
        yield Fact("next", _firing(firing, record["tz"], output))


def _missed(record: Record) -> str:
    more = {"all": f", up to {record['backlog']}", "skip": f", if later than {duration_text(record['late_seconds'])}"}
    return f"{record['missed']}{more.get(record['missed'], '')}"


def _firing(firing: Record, zone: str | None, output: Output) -> str:
    if zone in (None, "UTC"):
        return output.when(firing["at"])
    return f"{firing['local'].isoformat(timespec='seconds')} {zone}, {output.when(firing['at'])}"


@command(
    "add",
    "holdfast schedules add nightly tasks.report --cron '0 2 * * *' --tz Europe/Berlin",
    "holdfast schedules add poll tasks.poll inbox --app tasks --every 30s --overlap skip",
    output=SCHEDULES,
)
@click.argument("name")
@click.argument("task", shell_complete=complete_task)
@click.argument("words", nargs=-1, metavar="[ARGUMENT...]")
@click.option("--cron", metavar="EXPRESSION", help="Minute, hour, day, month, weekday: '30 2 * * mon-fri'.")
@click.option(
    "--tz", metavar="ZONE", shell_complete=complete_zone, help="Time zone of --cron: Europe/Berlin. Default: UTC."
)
@duration_option("--every", help="Interval, instead of --cron: 30s, 1h.", minimum=MIN_INTERVAL, maximum=MAX_DURATION)
@duration_option("--offset", help="With --every: shift all firings by this time. --every 1h --offset 5m fires at :05.")
@click.option(
    "--missed",
    type=click.Choice(get_args(Missed)),
    help="Missed times: make up for one or all of them, or skip them. Default: one.",
)
@click.option(
    "--backlog",
    type=Integer(1),
    metavar="NUMBER",
    help="With --missed all: maximum number to make up for. Default: 100.",
)
@duration_option("--late", help="With --missed skip: how late it may still fire. Default: 1m.")
@click.option(
    "--overlap",
    type=click.Choice(get_args(Overlap)),
    help="If the last job has not ended: allow another, or skip this time. Default: allow.",
)
@duration_option("--jitter", help="Maximum random delay of each job, to spread the load.", maximum=DAY)
@app_option
@job_options(not_for="schedule")
@pass_client
def add(
    client: Client, /, name: str, task: str, words: Sequence[str], *, path: str | None, tz: str | None, **options: Any
) -> None:  # fmt: skip
    """Add a schedule, or change the one of this name.

    Arguments of the task are given as for `enqueue`. Each firing is a job whose id consists of the name and the time,
    so no time fires twice. A schedule that a task declares is overridden, also after workers restart, until `schedules
    reset`. Exit code 2 if an expression, a time zone or an argument is invalid.
    """
    if tz is not None and tz not in available_timezones():
        raise Invalid(f"unknown time zone {tz!r}{did_you_mean(tz, available_timezones())}")
    if isinstance(options["deadline"], datetime):
        raise click.UsageError("expected --deadline as a duration: each job of a schedule gets its own deadline.")
    timing = {each: options.pop(each) for each in TIMING}
    chosen, app = choose_task(client, path, task, options)
    given = {each: value for each, value in timing.items() if value is not None}
    existed = name in {each.name for each in app.schedules()}
    changed = app.schedule(name, make_call(chosen, words, checked=bool(path)), tz=tz, **given)
    note_undefined_limits(app, chosen.effective_options.limits or ())
    _print(client, name, changed=changed)
    if app.get_schedule(name).is_overridden:
        print_note(f"a task declares {name} differently; `holdfast schedules reset {name}` returns to that")
    elif changed and existed:
        print_note(f"changed the existing schedule {name}")


@command("reset", "holdfast schedules reset tasks.report", output=SCHEDULES)
@_name
@pass_client
def reset(client: Client, name: str) -> None:
    """Return to the schedule that a task declares.

    Missed times are made up for only if the times are the same as before. A paused schedule stays paused. Exit code 3
    if the schedule does not exist, 1 if no task declares it.
    """
    _find(client.app, name)
    _print(client, name, changed=client.app.reset_schedule(name))


def _print(client: Client, name: str, *, changed: bool) -> None:
    client.output.one(schedule_record(_find(client.app, name), client.now()), SCHEDULES)
    if not changed:
        print_note(f"schedule {name} is unchanged")


@command("pause", "holdfast schedules pause nightly", output=SCHEDULES)
@_name
@pass_client
def pause(client: Client, name: str) -> None:
    """Pause a schedule.

    Exit code 3 if the schedule does not exist.
    """
    _find(client.app, name)
    _print(client, name, changed=client.app.pause_schedule(name))


@command("resume", "holdfast schedules resume nightly", output=SCHEDULES)
@_name
@pass_client
def resume(client: Client, name: str) -> None:
    """Resume a paused schedule; times that passed meanwhile are not made up for.

    Exit code 3 if the schedule does not exist.
    """
    _find(client.app, name)
    _print(client, name, changed=client.app.resume_schedule(name))


@command(
    "trigger", "holdfast schedules trigger nightly", "holdfast schedules trigger nightly | holdfast wait",
    output=TRIGGERED,
)  # fmt: skip
@_name
@pass_client
def trigger(client: Client, name: str) -> None:
    """Enqueue a job of a schedule now, and print its id.

    Exit code 3 if the schedule does not exist.
    """
    _find(client.app, name)
    client.output.value({"schedule": name, "id": client.app.trigger(name)}, "id")


@command("remove", "holdfast schedules remove nightly", output=REMOVED)
@_name
@pass_client
def remove(client: Client, name: str) -> None:
    """Remove a schedule; its jobs stay.

    A schedule that a task declares is added again when a worker of the app starts: pause it instead. Exit code 3 if the
    schedule does not exist.
    """
    schedule = _find(client.app, name)
    client.app.unschedule(name)
    client.output.one({"schedule": name, "removed": True}, REMOVED)
    if schedule.is_declared:
        print_note(f"a task declares {name}: workers add it again when they start")


for each in (list_schedules, show, add, reset, pause, resume, trigger, remove):
    schedules.add_command(each)
