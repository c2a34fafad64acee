"""`holdfast enqueue`: enqueue a task or a program, with the app's signature or without; one job or many."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, BinaryIO

import click

from holdfast import Holdfast, errors
from holdfast.cli.bulk import expand_ids
from holdfast.cli.bulk_enqueue import Batch, enqueue_lines
from holdfast.cli.calls import (
    app_option,
    choose_task,
    make_call,
    program_call,
    program_options,
    take_program_options,
)
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_task
from holdfast.cli.errors import print_error, print_note
from holdfast.cli.exit_codes import REFUSED
from holdfast.cli.job_options import job_options
from holdfast.cli.no_worker import warn_without_worker
from holdfast.cli.options import duration_option
from holdfast.cli.output import write
from holdfast.cli.suggestions import note_undefined_limits, suggesting_ids
from holdfast.cli.wait import wait_for
from holdfast.job.as_dict import decoded
from holdfast.job.errors import JobCancelled, JobFailed
from holdfast.records.formatting import json_text
from holdfast.records.job_actions import ENQUEUED
from holdfast.records.jobs import details
from holdfast.task.task import BoundCall
from holdfast.text import pluralize


@command(
    "enqueue",
    "holdfast enqueue tasks.transcode source=in.mov height=1080",
    "holdfast enqueue tasks.transcode in.mov --app tasks --wait --timeout 1h",
    "holdfast enqueue tasks.send --from people.jsonl --id 'mail-{address}'",
    "holdfast enqueue tasks.fetch page=7 --retries 5 --retry-waits 1s,10s,1m --retry-not-on ValueError",
    "holdfast jobs -Q map -s pending | holdfast enqueue tasks.reduce --after - --on-failed run",
    "holdfast enqueue --exec --run-timeout 6h --memory 2G -- ffmpeg -i in.mov out.mp4",
    output=ENQUEUED,
)
@click.argument("task", required=False, metavar="TASK", shell_complete=complete_task)
@click.argument("words", nargs=-1, metavar="[ARGUMENT...]")
@app_option
@click.option(
    "--from",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="Enqueue a job for each line, a JSON object with its arguments; - is standard input.",
)
@job_options()
@program_options
@click.option("--wait", is_flag=True, help="Wait until it has ended, and print its result.")
@duration_option("--timeout", help="With --wait: stop waiting after this time.")
@pass_client
def enqueue(
    client: Client, /, task: str | None, words: Sequence[str], path: str | None, *,
    file: BinaryIO | None, wait: bool, timeout: timedelta | None, **options: Any,
) -> int:  # fmt: skip
    """Enqueue a job and print its id.

    An ARGUMENT is name=value, or with --app also a value alone. A value is read as JSON if it is JSON, else as text:
    height=1080 is a number, source=in.mov is text, and tag='"42"' is the text 42. With --app the annotations of the
    task decide, so text that looks like a number stays text where the task expects text.

    Without --app nothing is checked: a job whose task no worker knows waits until one does, and only the options given
    here apply, not those that the task declares (queue, retries, at_most_once ...).

    With --from, each line of a file is a JSON object with the arguments of one job; up to 1,000 jobs are stored
    together or not at all. In --id, {name} stands for the argument of that name and {line} for the number of the line,
    so that a file can be sent again after a failure. The ids are printed; a terminal shows only their number.

    With --wait the result is printed as JSON; with --wait and --from, the id and state of each job. Exit code 1 if one
    failed or was cancelled, 5 if --timeout elapses first.

    With --after the job is blocked until those jobs have succeeded; `depend` changes this later. A job with --limit
    takes a slot of each limit while it runs, or waits for one: see `limits`.

    --retries and --retry-... together replace the retry policy of the task. An exception is named as `show` prints it.

    With --exec the words after -- are a program and its arguments, run without a shell by a worker with --allow-exec.
    Its output is the log of the job, which fails if the exit code is not 0.

    An app created with its own URL or namespace uses those, not --url and --namespace.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait.")
    name = _require_task(task, is_program=options["exec"])
    _check(options, words, file)
    if process := take_program_options(options):
        program, app = program_call(client, path, [name, *words], process, _with_ids(options))
        return _enqueue_one(client, app, program, path, wait=wait, timeout=timeout)
    id_pattern = options.pop("id") if file else None
    chosen, app = choose_task(client, path, name, _with_ids(options))
    if file is None:
        call = make_call(chosen, words, checked=bool(path))
        return _enqueue_one(client, app, call, path, wait=wait, timeout=timeout)
    ids = _enqueue_many(client, Batch(app, chosen, bool(path), id_pattern), file, path, quiet=wait)
    return wait_for(client, app.store, ids, timeout) if wait and ids else 0


def _require_task(task: str | None, *, is_program: bool) -> str:
    if task is not None:
        return task
    program = "a program after --: holdfast enqueue --exec -- ffmpeg -i in.mov out.mp4"
    raise click.UsageError(f"expected {program if is_program else 'TASK, such as tasks.send.'}")


def _check(options: dict[str, Any], words: Sequence[str], file: BinaryIO | None) -> None:
    """Refuse options that contradict each other."""
    if file is not None and options["exec"]:
        raise click.UsageError(
            "--from and --exec cannot be combined: --from has arguments of a task, not of a program."
        )
    if options["on_failed"] and not options["after"]:
        raise click.UsageError("--on-failed needs --after.")
    if file is not None and file.fileno() == 0 and "-" in options["after"]:
        raise click.UsageError("--from - and --after - both read standard input; use a file, or name the ids.")
    if file is not None and words:
        raise click.UsageError(f"--from contains the arguments; remove {words[0]!r}.")


def _with_ids(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "after": expand_ids(options["after"]) or None}


def _enqueue_one(
    client: Client, app: Holdfast, call: BoundCall[Any], path: str | None, *, wait: bool, timeout: timedelta | None
) -> int:
    with suggesting_ids(app, *(call.effective_options.after or ())):
        job = app.enqueue(call)
    if not (job.ran_inline or job.in_outbox):
        note_undefined_limits(app, call.effective_options.limits or ())
        warn_without_worker(app, job.id, path)
    if wait:
        return _wait_for_result(client, app, job.id, timeout)
    client.output.value({"id": job.id, "created": job.created}, "id")
    if not job.created:
        print_note(f"job {job.id} already exists; nothing was stored")
    return 0


def _enqueue_many(client: Client, batch: Batch, file: BinaryIO, path: str | None, *, quiet: bool) -> list[str]:
    """Enqueue a job for each line, and print the ids, or their number."""
    existing, ids = 0, []
    for job in enqueue_lines(batch, file):
        ids.append(job.id)
        existing += not job.created
        if not quiet and not client.output.on_terminal:
            client.output.stream({"id": job.id, "created": job.created}, ENQUEUED)
    if quiet or client.output.on_terminal:
        print_note(f"stored {pluralize(len(ids) - existing, 'job')}")
    if existing:
        print_note(f"already existed: {pluralize(existing, 'job')}")
    note_undefined_limits(batch.app, batch.task.effective_options.limits or ())
    warn_without_worker(batch.app, ids[-1] if ids else None, path)
    return ids


def _wait_for_result(client: Client, app: Holdfast, id: str, timeout: timedelta | None) -> int:
    """Wait for a job and print its result; its id goes to standard error."""
    print_note(f"enqueued job {id}; waiting for its result")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", errors.ResultTypeWarning)
            app.result(app.get(id), timeout)
    except (JobFailed, JobCancelled) as error:
        if client.output.mode == "json":
            client.output.json(details(app.get(id)))
        print_error(f"{error}; see `holdfast show {id}`", error.code, id=id)
        return REFUSED
    for each in caught:
        print_note(str(each.message))
    job = app.get(id)
    if client.output.mode == "json":
        client.output.json(details(job))
    else:
        write(json_text(decoded(job.result_bytes)))
    return 0
