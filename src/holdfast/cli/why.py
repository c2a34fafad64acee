"""`holdfast why`: why jobs are not running."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.bulk import read_ids
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids
from holdfast.cli.errors import print_error
from holdfast.cli.exit_codes import NOT_FOUND
from holdfast.cli.suggestions import JobIds
from holdfast.cli.watch import show_list, watch_option
from holdfast.errors import JobNotFound
from holdfast.records.explanations import EXPLANATIONS
from holdfast.records.table import Record


@command(
    "why", "holdfast why 0QwErTyUiOpAsDfG", "holdfast jobs -Q mail -s pending | holdfast why",
    "holdfast why 0QwErTyUiOpAsDfG --json | jq -r '.[].code'", output=EXPLANATIONS,
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
        return [EXPLANATIONS.record(found) for found in client.app.explain_many(wanted) if found]

    missing = [id for id, found in zip(wanted, client.app.explain_many(wanted), strict=True) if found is None]
    for id in missing:
        print_error(f"job {id} does not exist{JobIds(client.app).did_you_mean(id)}", JobNotFound.code, id=id)
    show_list(client.output, load, EXPLANATIONS, watching=watching)
    return NOT_FOUND if missing else 0
