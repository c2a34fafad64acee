"""`holdfast fork`: a new job that starts from what another one has saved."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.bulk import expand_ids
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids
from holdfast.cli.errors import print_note
from holdfast.cli.job_options import given_options, job_options
from holdfast.cli.suggestions import note_new_queue, note_undefined_limits, suggesting_ids
from holdfast.records.job_actions import FORKED


@command(
    "fork",
    "holdfast fork 0QwErTyUiOpAsDfG",
    "holdfast fork import-7 --id import-7-bis -Q large --memory 8G",
    "holdfast fork 0QwErTyUiOpAsDfG --from-start --delay 1h",
    output=FORKED,
)
@click.argument("id", shell_complete=complete_ids)
@click.option(
    "--from-start", is_flag=True, help="Start from the beginning, without checkpoint, progress and kept steps."
)
@click.option(
    "--id", "new", metavar="ID", help="Id of the new job; a fork with this id is stored once. Default: a new id."
)
@job_options(not_for="fork", without=["id"])
@pass_client
def fork(client: Client, /, id: str, *, from_start: bool, new: str | None, **options: Any) -> None:
    """Store a new job with the call of another, which starts from its checkpoint.

    The new job has the arguments and options of the other, its tags, scope and fields, and does not repeat its kept
    steps (`once`). It does not have its unique key, batch, dependencies, due time and deadline. Options given here
    replace those of the other; --field adds to its fields. The other job may be in any state and does not change;
    `show` names the jobs that were forked from it.

    Exit code 1 if the other has saved nothing and --from-start is not given, or if another job has the id; 3 if it does
    not exist. With --id, a second call prints the same job.
    """
    after = expand_ids(options["after"])
    given = given_options({**options, "id": new, "after": after or None})
    if queue := given.get("queue"):
        note_new_queue(client.app, queue)
    with suggesting_ids(client.app, id, *after):
        job = client.app.fork(id, from_start=from_start, **given)
    note_undefined_limits(client.app, options["limits"])
    client.output.one(FORKED.record(job), FORKED)
    if not job.created:
        print_note(f"job {job.id} already exists; nothing was stored")
