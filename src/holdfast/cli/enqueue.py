"""Storing jobs from the command line, with the help of the app's signature or without, one or very many."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, BinaryIO

import click

from holdfast import Holdfast, errors
from holdfast.cli.arguments import (
    AnyTask,
    Arguments,
    call_of_words,
    find_task,
    json_or_text,
    named_task,
    unchecked_call,
)
from holdfast.cli.batch import Batch, store
from holdfast.cli.complaints import complain, note
from holdfast.cli.completers import complete_queue, complete_task
from holdfast.cli.exits import REFUSED
from holdfast.cli.fields import ENQUEUED
from holdfast.cli.imports import import_app
from holdfast.cli.output import Column, write
from holdfast.cli.records import decoded, full_record
from holdfast.cli.session import Session, command, duration_option, note_new_server, pass_session
from holdfast.cli.text import json_text
from holdfast.cli.waiting import wait_for
from holdfast.names import check_task
from holdfast.task import Given, Options


@command(
    "enqueue",
    "holdfast enqueue tasks.transcode source=in.mov height=1080",
    "holdfast enqueue tasks.transcode in.mov --app tasks --wait --timeout 1h",
    "holdfast enqueue tasks.send --from people.jsonl --id 'mail-{address}'",
    fields=ENQUEUED,
)
@click.argument("task", shell_complete=complete_task)
@click.argument("words", nargs=-1, metavar="[ARGUMENT...]")
@click.option("--app", "path", envvar="HOLDFAST_APP", metavar="APP", help="Module of the app: check the arguments.")
@click.option(
    "--from", "file", type=click.File("rb"), metavar="FILE", envvar="HOLDFAST_ENQUEUE_FROM",
    help="A job for each line, a JSON object with its arguments; - is the standard input.",
)  # fmt: skip
@click.option("--queue", shell_complete=complete_queue, help="Queue, instead of the task's own.")
@click.option("--id", help="Id of the job. While one of that id is kept, no second is stored. With --from, a pattern.")
@click.option("--on-exists", type=click.Choice(["return", "error", "replace"]), help="What to do then.")
@click.option("--unique", metavar="KEY", help="While a job of this key is there, no second is stored.")
@click.option("--unique-for", metavar="SPAN", help="For how long: queued, pending, kept, or a duration.")
@duration_option("--debounce", "Run it after this time without another call; the last call counts.")
@click.option("--priority", type=int, help="-256 to 255; lower runs first.")
@duration_option("--delay", "Run it after this time: 30s, 1h30m.")
@click.option("--at", metavar="ISO", help="Run it at this time: 2024-07-01T02:00+02:00; without a zone, local time.")
@click.option("--retries", type=int, help="How often it is tried again after an error.")
@click.option("--keep/--no-keep", default=None, help="Whether its record is kept when it has ended.")
@click.option("--at-most-once", is_flag=True, default=None, help="Rather not at all than twice.")
@click.option("--wait", is_flag=True, help="Wait until it has ended, and print its result.")
@duration_option("--timeout", "Wait no longer than this.")
@pass_session
def enqueue(
    session: Session,
    /,
    task: str,
    words: Sequence[str],
    path: str | None,
    *,
    file: BinaryIO | None,
    wait: bool,
    timeout: timedelta | None,
    **options: Any,
) -> int:
    """Store a job, for a worker to run, and print its id.

    An ARGUMENT is name=value; with --app it may also be a value alone. A value is read as JSON if it is JSON, else it
    is text: height=1080 is a number, source=in.mov is text, and tag='"42"' is the text 42. With --app the task's
    annotations decide, so text that looks like a number stays text where text is wanted.

    Without --app nothing is checked, and a task that no worker knows waits until one does. The options that the task
    was declared with (queue, retries, at_most_once ...) are not known then: only those given here count.

    With --from, each line of a file is a JSON object with the arguments of one job, and up to 1,000 are stored together
    or not at all. In --id, {name} stands for the argument of that name and {line} for the number of the line: with such
    ids a file can be sent again after a failure. The ids are printed, on a terminal only their number.

    With --wait the result is printed, as JSON; exit code 1 if the job failed or was cancelled, 5 if it has not ended
    within --timeout. Of many jobs the id and state of each are printed. An app with a URL or namespace of its own uses
    those.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout says how long to --wait; give both.")
    _ = session.output.mode  # what is wrong with it is said before anything is stored
    pattern = options.pop("id") if file else None
    made, app = _task(session, path, task, _given(options))
    if file is None:
        return _enqueue_one(session, app, made, Arguments.of(words), checked=bool(path), wait=wait, timeout=timeout)
    if words:
        raise click.UsageError(f"--from has the arguments, so {words[0]!r} cannot be one.")
    ids = _enqueue_many(session, Batch(app, made, bool(path), pattern), file, quiet=wait)
    return wait_for(session, app.store, ids, timeout) if wait and ids else 0


def _given(options: dict[str, Any]) -> Given:
    """Return options as tasks take them, without those that were not given."""
    options["at"] = _moment(options["at"])
    span = options["unique_for"]
    options["unique_for"] = f"{span}s" if span and span[-1].isdigit() else span
    return {name: value for name, value in options.items() if value is not None}  # type: ignore[return-value]


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time like 2024-07-01T02:00+02:00", param_hint="--at") from None
    return value if value.tzinfo else value.astimezone()


def _task(session: Session, path: str | None, name: str, given: Given) -> tuple[AnyTask, Holdfast]:
    """Return the task with the options of this call, and its app; without an app, a task that is a name only."""
    if path:
        session.share_address()
        app = import_app(path)
        made = find_task(app, name).options(**given)
        note_new_server(app)
        return made, app
    check_task(name)
    if sys.stderr.isatty():
        note(
            f"without --app (or HOLDFAST_APP) the options of {name} are not known: its queue, retries, at_most_once ..."
        )
    chosen = Options().but(**given)
    return named_task(session.new_app, name, chosen), session.new_app


def _enqueue_one(
    session: Session,
    app: Holdfast,
    task: AnyTask,
    arguments: Arguments,
    *,
    checked: bool,
    wait: bool,
    timeout: timedelta | None,
) -> int:
    if checked:
        call = call_of_words(task, arguments)
    elif arguments.positional:
        raise click.UsageError(
            f"{arguments.positional[0]!r} has no name: write name=value, or give --app for the task's signature."
        )
    else:
        call = unchecked_call(task, {name: json_or_text(word) for name, word in arguments.named.items()})
    job = app.enqueue(call)
    return _wait(session, app, job.id, timeout) if wait else _say(session, job.id, job.created)


def _enqueue_many(session: Session, batch: Batch, file: BinaryIO, *, quiet: bool) -> list[str]:
    """Store a job for each line, and print their ids; how many they are, if that is enough."""
    columns = [Column("ID", lambda row: row["id"])]
    known, ids = 0, []
    for job in store(batch, file):
        ids.append(job.id)
        known += not job.created
        if not quiet and session.output.mode != "table":
            session.output.stream({"id": job.id, "created": job.created}, columns)
    if quiet or session.output.mode == "table":
        note(f"{len(ids) - known:,} jobs were stored")
    if known:
        note(f"{known:,} jobs were there already")
    return ids


def _say(session: Session, id: str, created: bool) -> int:
    if session.output.mode == "json":
        session.output.json({"id": id, "created": created})
    else:
        write(id)
    if not created:
        note(f"job {id} is there already; nothing was stored")
    return 0


def _wait(session: Session, app: Holdfast, id: str, timeout: timedelta | None) -> int:
    """Wait for a job. Its result goes to the standard output, so its id is said elsewhere."""
    note(f"job {id} is stored; waiting for it")
    try:
        app.result(app.get(id), timeout)
    except (errors.JobFailed, errors.JobCancelled) as error:
        if session.output.mode == "json":
            session.output.json(full_record(app.get(id)))
        complain(f"{error}; see `holdfast show {id}`", error.code, id=id)
        return REFUSED
    job = app.get(id)
    if session.output.mode == "json":
        session.output.json(full_record(job))
    else:
        write(json_text(decoded(job.result_bytes)))
    return 0
