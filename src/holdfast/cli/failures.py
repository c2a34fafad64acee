"""`holdfast failures`: failed jobs by group, fingerprint, task or queue, and what is known about a fingerprint."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast, get_args

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_fingerprint, complete_queue
from holdfast.cli.errors import print_note
from holdfast.cli.options import limit_option
from holdfast.cli.output import Fact, Output
from holdfast.cli.suggestions import find_queue
from holdfast.cli.table import Record, Table, column, field
from holdfast.job.failures import FailureGroup, FailuresBy
from holdfast.text import pluralize

SHOWN = 50

_FILTERS = {"group": "--group", "fingerprint": "--fingerprint", "task": "--task", "queue": "-Q"}


def retry_command(group: FailureGroup, queue: str | None = None) -> str:
    """Return the command that retries the failed jobs of a group."""
    words = ["holdfast", "retry", "--all", _FILTERS[group.by], group.name]
    return shlex.join([*words, "-Q", queue] if queue else words)


def _or_none(name: str) -> Any:
    return lambda group: getattr(group, name) or None


FAILURES = Table(
    "failure",
    column("name", "the group, fingerprint, task or queue", whole=True),
    column("count", "number of failed jobs", right=True, whole=True),
    column(
        "first_seen", "when the first of these jobs failed; of a fingerprint, when the error was first seen",
        title="FIRST SEEN", right=True,
    ),
    column("last_seen", "when the last one failed; of a fingerprint, when the error was last seen", right=True),
    column("example", "id of the job that failed last"),
    field("by", "group, fingerprint, task or queue"),
    field("retry", "command that retries these jobs", retry_command),
)  # fmt: skip
FINGERPRINTS = FAILURES.extended(
    column("type", "of a fingerprint: type of the error", _or_none("type")),
    column("place", "of a fingerprint: innermost function of user code, as module:function", _or_none("place")),
    column("message", "of a fingerprint: message of an example", _or_none("message"), wraps=True),
    field("task", "of a fingerprint: task of the job that had the error first", _or_none("task")),
    field("revision", "of a fingerprint: revision of the app when the error was first seen", _or_none("revision")),
    field("errors", "of a fingerprint: how often the error was seen, also before a retry", _or_none("errors")),
)  # fmt: skip
FAILURE_DETAILS = FINGERPRINTS.extended(
    field("notes", "notes of the example's exception"),
    field("traceback", "traceback of the example"),
    field(
        "traceback_of", "the example: id of its job, which may no longer exist, and number of the attempt",
        lambda found: list(found.traceback_of) if found.traceback_of else None,
    ),
)  # fmt: skip


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
