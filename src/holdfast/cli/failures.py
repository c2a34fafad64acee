"""`holdfast failures`: failed jobs by group, fingerprint, task or queue, and what is known about a fingerprint."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import cast, get_args

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_fingerprint, complete_queue
from holdfast.cli.errors import print_note
from holdfast.cli.options import limit_option
from holdfast.cli.output import Fact, Output
from holdfast.cli.suggestions import find_queue
from holdfast.job.failures import FailuresBy
from holdfast.records.failures import FAILURE_DETAILS, FAILURES, FINGERPRINTS, retry_command
from holdfast.records.table import Record
from holdfast.text import pluralize

SHOWN = 50


@click.group(
    "failures", cls=Group, default="list",
    examples=(
        "holdfast failures", "holdfast failures --by fingerprint", "holdfast failures show 9f86d081884c7d65",
    ),
)  # fmt: skip
def failures() -> None:
    """Show failed jobs by what they have in common.

    Without a command, failures are listed by group.
    """


@command(
    "list", "holdfast failures", "holdfast failures --by fingerprint -Q mail",
    "holdfast failures --json | jq -r '.[0].retry'", output=FINGERPRINTS,
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(get_args(FailuresBy)), default="group", show_default=True,
    help="What the jobs have in common.",
)  # fmt: skip
@click.option(
    "-Q", "--queue", metavar="NAME", shell_complete=complete_queue, help="Only the failed jobs of this queue."
)
@limit_option("Maximum number of entries.", default=SHOWN)
@pass_client
def list_failures(client: Client, by: str, queue: str | None, limit: int) -> None:
    """List groups, fingerprints, tasks or queues of failed jobs.

    Those with the latest failure come first; queues are sorted by name. The group of a failure is the class of its
    exception, or what the task gave it, or timeout, stalled, memory, crashed, lost, deadline and so on. Failures with
    the same fingerprint also came from the same place in the code; `failures show` has the traceback.
    """
    kind = cast(FailuresBy, by)
    if queue is not None:
        if by == "queue":
            raise click.UsageError("--by queue and --queue cannot be combined.")
        find_queue(client.app, queue)
    found = list(islice(client.app.failures(by=kind, queue=queue, limit=limit + 1), limit + 1))
    records = [FINGERPRINTS.record(each, retry=retry_command(each, queue)) for each in found[:limit]]
    client.output.list(records, FINGERPRINTS if by == "fingerprint" else FAILURES)
    if len(found) > limit:
        print_note(f"shown are the first {limit}; --limit shows more")
    if records and client.output.on_terminal:
        print_note(f"to retry {pluralize(records[0]['count'], 'job')} of the first: `{records[0]['retry']}`")


@command(
    "show", "holdfast failures show 9f86d081884c7d65",
    "holdfast failures show 9f86d081884c7d65 --json | jq -r .traceback", output=FAILURE_DETAILS, in_columns=False,
)  # fmt: skip
@click.argument("fingerprint", shell_complete=complete_fingerprint)
@pass_client
def show(client: Client, fingerprint: str) -> None:
    """Show what is known about a fingerprint, with the traceback of an example.

    Jobs show their fingerprint in `show`. Exit code 3 if no error with this fingerprint is known.
    """
    record = FAILURE_DETAILS.record(client.app.failure(fingerprint))
    if client.output.mode == "json":
        client.output.json(record)
    else:
        client.output.facts(_describe(record, client.output))


def _describe(record: Record, output: Output) -> Iterator[Fact]:
    yield Fact("fingerprint", record["name"])
    for label in ("type", "place", "message", "task", "revision"):
        if record[label]:
            yield Fact(label, record[label])
    yield Fact("failed jobs", record["count"])
    if record["errors"]:
        yield Fact("errors", record["errors"])
    for label in ("first_seen", "last_seen"):
        if record[label]:
            yield Fact(label.replace("_", " "), output.when(record[label]))
    if record["example"]:
        yield Fact("example", record["example"])
        yield Fact("retry", record["retry"])
    for note in record["notes"]:
        yield Fact("note", note)
    if record["traceback"]:
        job, attempt = record["traceback_of"]
        yield Fact("traceback", f"of attempt {attempt} of job {job}\n{record['traceback'].rstrip()}")


for each in (list_failures, show):
    failures.add_command(each)
