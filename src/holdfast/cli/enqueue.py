"""Storing jobs from the command line, with the help of the app's signature or without, one or very many."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, BinaryIO

import click

from holdfast import Holdfast, errors
from holdfast.cli.arguments import call_options, choose_task, make_call, read_moment
from holdfast.cli.batch import Batch, store
from holdfast.cli.complaints import complain, note
from holdfast.cli.completers import complete_ids, complete_task
from holdfast.cli.exits import REFUSED
from holdfast.cli.fields import ENQUEUED
from holdfast.cli.lookup import note_undefined_limits, saying_which
from holdfast.cli.many import optional_ids
from holdfast.cli.output import Column, write
from holdfast.cli.programs import program_call, program_options, take_program_options
from holdfast.cli.prospects import warn_if_nobody_runs
from holdfast.cli.records import decoded, full_record
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.cli.text import json_text
from holdfast.cli.waiting import wait_for
from holdfast.job.errors import JobCancelled, JobFailed
from holdfast.task.task import BoundCall

ON_FAILED = click.Choice(["block", "cancel", "run"])


@command(
    "enqueue",
    "holdfast enqueue tasks.transcode source=in.mov height=1080",
    "holdfast enqueue tasks.transcode in.mov --app tasks --wait --timeout 1h",
    "holdfast enqueue tasks.send --from people.jsonl --id 'mail-{address}'",
    "holdfast jobs --queue map --state pending | holdfast enqueue tasks.reduce --after - --on-failed run",
    "holdfast enqueue --exec --run-timeout 6h --memory 2G -- ffmpeg -i in.mov out.mp4",
    fields=ENQUEUED,
)
@click.argument("task", required=False, metavar="TASK", shell_complete=complete_task)
@click.argument("words", nargs=-1, metavar="[ARGUMENT...]")
@call_options
@click.option(
    "--from", "file", type=click.File("rb"), metavar="FILE", envvar="HOLDFAST_ENQUEUE_FROM",
    help="A job for each line, a JSON object with its arguments; - is the standard input.",
)  # fmt: skip
@click.option("--id", help="Id of the job. While one of that id is kept, no second is stored. With --from, a pattern.")
@click.option("--on-exists", type=click.Choice(["return", "error", "replace"]), help="What to do then.")
@click.option("--unique", metavar="KEY", help="While a job of this key is there, no second is stored.")
@click.option("--unique-for", metavar="SPAN", help="For how long: queued, pending, kept, or a duration.")
@duration_option("--debounce", "Run it after this time without another call; the last call counts.")
@duration_option("--delay", "Run it after this time: 30s, 1h30m.")
@click.option(
    "--at", metavar="ISO", callback=read_moment,
    help="Run it at this time: 2024-07-01T02:00+02:00; without a zone, local time.",
)  # fmt: skip
@click.option(
    "--after", multiple=True, metavar="ID", shell_complete=complete_ids,
    help="Run it when this job has ended; may be given several times; - reads ids from the standard input.",
)  # fmt: skip
@click.option(
    "--on-failed", type=ON_FAILED, help="If one of those fails or is cancelled: stay blocked, be cancelled, or run."
)
@program_options
@click.option("--wait", is_flag=True, help="Wait until it has ended, and print its result.")
@duration_option("--timeout", "Wait no longer than this.")
@pass_session
def enqueue(
    session: Session,
    /,
    task: str | None,
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

    With --after the job is blocked until all of those have succeeded; `depend` changes that later. A job with --limit
    takes a slot of each limit while it runs, or waits for one: see `limits`.

    With --exec the words after -- are a program and its arguments, that a worker with --allow-exec runs: no shell reads
    them. What it prints is the log of the job, which fails if its exit code is not 0.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout says how long to --wait; give both.")
    task = _named(task, is_program=options["exec"])
    _check(options, words, file)
    _ = session.output.mode  # what is wrong with it is said before anything is stored
    if about := take_program_options(options):
        program, app = program_call(session, path, [task, *words], about, _as_tasks_take_them(options))
        return _store(session, app, program, wait, timeout)
    pattern = options.pop("id") if file else None
    made, app = choose_task(session, path, task, _as_tasks_take_them(options))
    if file is None:
        return _store(session, app, make_call(made, words, checked=bool(path)), wait, timeout)
    ids = _enqueue_many(session, Batch(app, made, bool(path), pattern), file, quiet=wait)
    warn_if_nobody_runs(app, made.name, made.chosen.queue)
    return wait_for(session, app.store, ids, timeout) if wait and ids else 0


def _named(task: str | None, *, is_program: bool) -> str:
    if task is not None:
        return task
    program = "say which program, after --: holdfast enqueue --exec -- ffmpeg -i in.mov out.mp4"
    raise click.UsageError(program if is_program else "say which TASK.")


def _check(options: dict[str, Any], words: Sequence[str], file: BinaryIO | None) -> None:
    """Refuse what does not go together."""
    if file is not None and options["exec"]:
        raise click.UsageError("--from has the arguments of tasks; a program has its own: give one of them.")
    if options["on_failed"] and not options["after"]:
        raise click.UsageError("--on-failed is about the jobs of --after; give both.")
    if file is not None and file.fileno() == 0 and "-" in options["after"]:
        raise click.UsageError("--from and --after both read the standard input; give one of them a file, or ids.")
    if file is not None and words:
        raise click.UsageError(f"--from has the arguments, so {words[0]!r} cannot be one.")


def _as_tasks_take_them(options: dict[str, Any]) -> dict[str, Any]:
    span = options["unique_for"]
    return {
        **options,
        "unique_for": f"{span}s" if span and span[-1].isdigit() else span,
        "after": optional_ids(options["after"]) or None,
    }


def _store(session: Session, app: Holdfast, call: BoundCall[Any], wait: bool, timeout: timedelta | None) -> int:
    with saying_which(app, *(call.chosen.after or ())):
        job = app.enqueue(call)
    if not (job.ran_inline or job.in_outbox):
        note_undefined_limits(app, call.chosen.limits or ())
        warn_if_nobody_runs(app, call.name, call.chosen.queue)
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
    note_undefined_limits(batch.app, batch.task.chosen.limits or ())
    return ids


def _say(session: Session, id: str, created: bool) -> int:
    session.output.value({"id": id, "created": created}, "id")
    if not created:
        note(f"job {id} is there already; nothing was stored")
    return 0


def _wait(session: Session, app: Holdfast, id: str, timeout: timedelta | None) -> int:
    """Wait for a job. Its result goes to the standard output, so its id is said elsewhere."""
    note(f"job {id} is stored; waiting for it")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", errors.ResultTypeWarning)
            app.result(app.get(id), timeout)
    except (JobFailed, JobCancelled) as error:
        if session.output.mode == "json":
            session.output.json(full_record(app.get(id)))
        complain(f"{error}; see `holdfast show {id}`", error.code, id=id)
        return REFUSED
    for each in caught:
        note(str(each.message))
    job = app.get(id)
    if session.output.mode == "json":
        session.output.json(full_record(job))
    else:
        write(json_text(decoded(job.result_bytes)))
    return 0
