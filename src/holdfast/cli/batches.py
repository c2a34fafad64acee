"""`holdfast batches`: named groups of jobs, with progress, wait and cancel."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import click

from holdfast.cli.bulk import progress_bar
from holdfast.cli.calls import app_option, choose_task, make_call
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_batch
from holdfast.cli.errors import print_note
from holdfast.cli.exit_codes import INTERRUPTED, REFUSED
from holdfast.cli.options import duration_option, limit_option, yes_option
from holdfast.cli.output import STYLES, Fact, Output
from holdfast.cli.watch import View, Watched, show_list, watch, watch_option
from holdfast.client.batches import STATES, Batch, BatchStatus
from holdfast.client.results import deadline_after
from holdfast.constants import MAX_DURATION, MIN_KEEP
from holdfast.errors import BatchNotFound, ResultTimeout
from holdfast.records.batches import BATCHES, CANCELLED, CLOSED, DELETED, OPENED, batch_progress
from holdfast.records.table import Record
from holdfast.task.task import BoundCall
from holdfast.text import did_you_mean, pluralize

CALLBACK_OPTIONS = {  # by the argument of `jobs.batch`
    "then": "Task to enqueue once all jobs of the batch have ended, with its arguments: 'tasks.report day=monday'.",
    "on_success": "Task to enqueue then, if all jobs succeeded.",
    "on_failure": "Task to enqueue then, if a job failed or was cancelled.",
}
MAX_NAMES = 100  # among which a similar name is looked for


@click.group(
    "batches", cls=Group, default="list",
    examples=(
        "holdfast batches", "holdfast batches open import-7 --then tasks.report",
        "holdfast batches close import-7", "holdfast batches wait import-7 --timeout 1h",
    ),
)  # fmt: skip
def batches() -> None:
    """Group jobs, and see, await or cancel them together.

    Without a command, batches are listed. Jobs are added with `enqueue --batch NAME` while the batch is open, and by
    its own jobs while they run. It is done when it is closed and all its jobs have ended; then its callbacks are
    enqueued, once.
    """


_name = click.argument("name", shell_complete=complete_batch)


@command(
    "list", "holdfast batches", "holdfast batches --state open --json | jq -r '.[].batch'", output=BATCHES,
)  # fmt: skip
@click.option("-s", "--state", type=click.Choice(STATES), help="Only batches in this state.")
@limit_option("Maximum number of batches.", default=50)
@watch_option("Refresh until Ctrl-C; in a pipe, print the batches that change.")
@pass_client
def list_batches(client: Client, state: Any, limit: int, watching: bool) -> None:
    """List batches, newest first.

    An old batch that is still open may have lost its producer: `batches close` or `batches cancel` ends it.
    """
    more = False

    def load() -> list[Record]:
        nonlocal more
        found = list(islice(client.app.batches(state=state), limit + 1))
        more = len(found) > limit
        return BATCHES.records(found[:limit])

    show_list(client.output, load, BATCHES, watching=watching)
    if more:
        print_note(f"shown are the newest {limit}; --limit shows more")


@command("show", "holdfast batches show import-7", "holdfast batches show import-7 --watch", output=BATCHES)
@_name
@watch_option("Refresh until the batch is done; in a pipe, print each change.")
@pass_client
def show(client: Client, name: str, watching: bool) -> int:
    """Show how far a batch is.

    Exit code 3 if the batch does not exist. With --watch the command ends when the batch is done.
    """
    output, batch = client.output, client.app.batch(name)
    status = _status(client, batch)
    if watching:

        def load() -> View:
            now = batch.status()
            return View([BATCHES.record(now)], final=now.is_done)

        if not watch(output, Watched(load, lambda view: output.grid(_describe(view.records[0], output)), BATCHES)):
            return INTERRUPTED
        if not output.on_terminal:
            return 0
        status = batch.status()
    record = BATCHES.record(status)
    if output.mode == "json":
        output.json(record)
    else:
        output.facts(_describe(record, output))
    return 0


def _status(client: Client, batch: Batch) -> BatchStatus:
    """Return the status of a batch, or suggest a similar name."""
    try:
        return batch.status()
    except BatchNotFound as error:
        names = [each.name for each in client.app.batches(limit=MAX_NAMES)]
        raise BatchNotFound(f"{error}{did_you_mean(batch.name, names)}") from None


def _describe(record: Record, output: Output) -> Iterator[Fact]:
    yield Fact("batch", record["batch"])
    yield Fact("state", record["state"], STYLES.get(record["state"], ""))
    if record["state"] == "open":
        yield Fact("open", "jobs can be added; `holdfast batches close` ends that")
    yield Fact("jobs", f"{record['total'] - record['pending']:,} of {record['total']:,} have ended")
    if progress := batch_progress(record, output):
        yield Fact("progress", progress)
    for name in ("succeeded", "failed", "cancelled"):
        if record[name]:
            yield Fact(name, f"{record[name]:,}", STYLES[name])
    for name in ("created_at", "closed_at", "cancelled_at", "done_at", "expires_at"):
        if record[name]:
            label = "cancel requested" if name == "cancelled_at" else name.removesuffix("_at")
            yield Fact(label, output.when(record[name]))
    for each in record["callbacks"]:
        yield Fact(f"on {each['on']}", f"{each['task']}, job {each['id']}")


def _callback_options(function: Any) -> Any:
    for name, help in reversed(CALLBACK_OPTIONS.items()):
        function = click.option(f"--{name.replace('_', '-')}", metavar="'TASK [ARGUMENT...]'", help=help)(function)
    return function


def _call(client: Client, path: str | None, text: str | None) -> BoundCall[Any] | None:
    """Read a task and its arguments, as `enqueue` does, from one word of the shell."""
    if text is None:
        return None
    try:
        task, *words = shlex.split(text)
    except ValueError:
        raise click.UsageError(f"expected 'TASK [ARGUMENT...]', got {text!r}.") from None
    return make_call(choose_task(client, path, task, {})[0], words, checked=bool(path))


@command(
    "open", "holdfast batches open import-7", "holdfast batches open import-7 --then 'report day=monday' --app tasks",
    output=OPENED,
)  # fmt: skip
@_name
@_callback_options
@app_option
@duration_option(
    "--keep", help="How long the batch is kept after it is done. Default: 7 days.", minimum=MIN_KEEP,
    maximum=MAX_DURATION,
)  # fmt: skip
@pass_client
def open_batch(client: Client, /, name: str, path: str | None, keep: timedelta | None, **callbacks: str | None) -> None:
    """Open a batch, or continue one that is open.

    Options that are given again replace those of the open batch. Exit code 1 if the batch is closed or done.
    """
    calls = {on: _call(client, path, text) for on, text in callbacks.items()}
    app = client.app if path else client.app_starting_server
    created = app.batch(name, keep=keep, **calls).open()
    client.output.value({"batch": name, "created": created}, "batch")
    if not created:
        print_note(f"batch {name} was open already")


@command("close", "holdfast batches close import-7", output=CLOSED)
@_name
@pass_client
def close(client: Client, name: str) -> None:
    """Close a batch: only its own jobs can add more.

    Once all its jobs have ended, it is done. Exit code 3 if the batch does not exist.
    """
    batch = client.app.batch(name)
    _status(client, batch)
    changed = batch.close()
    client.output.one({"batch": name, "state": batch.status().state, "changed": changed}, CLOSED)


@command("cancel", "holdfast batches cancel import-7 --reason 'wrong file' --yes", output=CANCELLED)
@_name
@click.option("--reason", default="", help="Reason, for the history of the jobs.")
@yes_option()
@pass_client
def cancel(client: Client, name: str, reason: str, yes: bool) -> None:
    """Close a batch, and cancel all its jobs that have not ended.

    Running jobs are stopped by their workers. Callbacks of the batch are enqueued when the last one has stopped. Exit
    code 3 if the batch does not exist.
    """
    batch = client.app.batch(name)
    status = _status(client, batch)
    if not yes:
        question = f"cancel batch {name}: {pluralize(status.pending, 'job')}"
        if not sys.stdin or not sys.stdin.isatty():
            raise click.UsageError(f"{question}. Confirm with --yes.")
        click.confirm(f"{question}. Continue?", abort=True, err=True)
    counts = batch.cancel(reason=reason)
    record = {"batch": name, "state": batch.status().state}
    client.output.one(record | {each: counts.get(each, 0) for each in ("cancelled", "cancelling")}, CANCELLED)


@command("wait", "holdfast batches wait import-7 --timeout 1h", output=BATCHES)
@_name
@duration_option("--timeout", help="Stop waiting after this time.")
@pass_client
def wait(client: Client, name: str, timeout: timedelta | None) -> int:
    """Wait until a batch is done, and print how its jobs ended.

    Exit code 1 if one of its jobs failed or was cancelled, 3 if the batch does not exist, 5 if --timeout elapses first.
    A terminal shows the progress meanwhile.
    """
    batch = client.app.batch(name)
    status = _status(client, batch)
    if status.state == "open":
        print_note(f"batch {name} is open: it cannot be done before it is closed")
    status = _wait_with_bar(batch, status, timeout) if sys.stderr.isatty() else batch.wait(timeout)
    client.output.one(BATCHES.record(status), BATCHES)
    return REFUSED if status.failed or status.cancelled else 0


def _wait_with_bar(batch: Batch, status: BatchStatus, timeout: timedelta | None) -> BatchStatus:
    """Wait for a batch, and look once a second how far it is."""
    deadline = deadline_after(timeout)
    with progress_bar("wait", status.total, minimum=1) as advance:
        advance(status.ended)
        while not status.is_done:
            before = status.ended
            try:
                status = batch.wait(_next_second(deadline))
            except ResultTimeout:
                if deadline is not None and _left(deadline) <= 0:
                    raise
                status = batch.status()
            advance(status.ended - before)
    return status


def _left(deadline: float) -> float:
    return deadline - time.monotonic()


def _next_second(deadline: float | None) -> float:
    return 1.0 if deadline is None else max(0.0, min(1.0, _left(deadline)))


@command("delete", "holdfast batches delete import-7", output=DELETED)
@_name
@pass_client
def delete(client: Client, name: str) -> None:
    """Delete a batch that is done; its jobs stay.

    Exit code 1 if the batch is not done, 3 if it does not exist.
    """
    batch = client.app.batch(name)
    _status(client, batch)
    batch.delete()
    client.output.one({"batch": name, "deleted": True}, DELETED)


for each in (list_batches, show, open_batch, close, cancel, wait, delete):
    batches.add_command(each)
