"""`holdfast why`: why jobs are not running."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from holdfast.cli.bulk import read_ids
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids
from holdfast.cli.errors import print_error
from holdfast.cli.exit_codes import NOT_FOUND
from holdfast.cli.suggestions import JobIds
from holdfast.cli.table import Record, Table, column, field
from holdfast.cli.watch import show_list, watch_option
from holdfast.errors import JobNotFound
from holdfast.job.explanation import Explanation, Reason

WHY = Table(
    "job",
    column("id", "id of the job", whole=True),
    column("state", "state of the job", coloured=True, whole=True),
    column("text", "why it is not running, as a sentence", title="WHY", wraps=True, volatile=True),
    column("hint", "the command that would help, if any", title="DO", wraps=True),
    field("code", "the reason that matters most; see docs/why.md"),
    field("facts", "the facts of that reason, by name", volatile=True),
    field("since", "when the job entered its state"),
    field("until", "when that reason ends, if it is known", volatile=True),
    field("queue", "name of its queue"),
    field("task", "name of its task"),
    field("ready", "whether the next claim of a suitable worker takes it"),
    field("ahead", "number of jobs of its queue that start before it"),
    field(
        "also", "further reasons; of each: code, text, facts, until, hint",
        lambda found: [reason_record(each) for each in found.also],
    ),
)  # fmt: skip


def reason_record(reason: Reason) -> Record:
    return msgspec.structs.asdict(reason)


def explanation_record(found: Explanation | None) -> Record | None:
    return None if found is None else WHY.record(found)


@command(
    "why", "holdfast why 0QwErTyUiOpAsDfG", "holdfast jobs -Q mail -s pending | holdfast why",
    "holdfast why 0QwErTyUiOpAsDfG --json | jq -r '.[].code'", output=WHY,
)  # fmt: skip
@click.argument("ids", nargs=-1, metavar="[ID...]", shell_complete=complete_ids)
@watch_option("Refresh until Ctrl-C; in a pipe, print the jobs whose reason changes.")
@pass_client
def why(client: Client, ids: Sequence[str], watching: bool) -> int:
    """Say why jobs are not running, and what to do about it.

    The answer comes from the rules that hand jobs out: a delay or a retry, other jobs, a paused queue, a limit and who
    holds it, missing workers, an unknown task, or jobs that come first. A running job is described by its lease.

    Without an ID, ids are read from standard input: the first column of each line. Exit code 3 if a job does not exist.
    """
    wanted = read_ids(ids)

    def load() -> list[Record]:
        return [WHY.record(found) for found in client.app.explain_many(wanted) if found]

    missing = [id for id, found in zip(wanted, client.app.explain_many(wanted), strict=True) if found is None]
    for id in missing:
        print_error(f"job {id} does not exist{JobIds(client.app).did_you_mean(id)}", JobNotFound.code, id=id)
    show_list(client.output, load, WHY, watching=watching)
    return NOT_FOUND if missing else 0
