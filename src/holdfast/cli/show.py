"""`holdfast show` and `holdfast peek`: everything about one job, or about the next jobs of a queue."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids, complete_queue
from holdfast.cli.describe import describe
from holdfast.cli.errors import print_note
from holdfast.cli.exit_codes import INTERRUPTED
from holdfast.cli.options import limit_option
from holdfast.cli.suggestions import find_queue, suggesting_ids
from holdfast.cli.watch import View, Watched, watch, watch_option
from holdfast.constants import MAX_BATCH
from holdfast.job.explanation import Explanation
from holdfast.job.job import Job
from holdfast.job.usage import JobUsage
from holdfast.records.jobs import JOB_DETAILS, details

MAX_UNREADABLE = 20  # records that `peek` skips


@command(
    "show", "holdfast show 0QwErTyUiOpAsDfG", "holdfast show 0QwErTyUiOpAsDfG -w",
    "holdfast show 0QwErTyUiOpAsDfG --json | jq '.attempts[].because'", output=JOB_DETAILS, in_columns=False,
)  # fmt: skip
@click.argument("id", shell_complete=complete_ids)
@watch_option("Refresh until the job has ended; in a pipe, print each change.")
@pass_client
def show(client: Client, id: str, watching: bool) -> int:
    """Show everything about a job, and why it is not running.

    Below the state is why the job is not running, as `why` says it: other jobs and how they ended, a limit without a
    free slot, a paused queue, missing workers, jobs that come first ...

    The history has everything that happened to the job, in order of time: when, what, in which attempt, why, and who
    did it. An attempt ends with an outcome: succeeded, advanced, error, crash, lost, released, snoozed, unknown or
    cancelled. A terminal shows the beginning of long values; pipes and --json get all.

    With --watch the command ends when the job has ended. In a pipe it prints the columns of `jobs`, or JSON objects.
    """
    output, job = client.output, _get(client, id)
    if watching and not _watch(client, id):
        return INTERRUPTED
    if watching and not output.on_terminal:
        return 0
    job = _get(client, id) if watching else job
    record = details(job, _usage(client, job), _explanation(client, job))
    if output.mode == "json":
        output.json(record)
    else:
        output.facts(describe(record, output))
    return 0


def _get(client: Client, id: str) -> Job[Any]:
    with suggesting_ids(client.app, id):
        return client.app.get(id)


def _usage(client: Client, job: Job[Any]) -> JobUsage | None:
    return None if job.unreadable else client.app.usage(job.id)


def _explanation(client: Client, job: Job[Any]) -> Explanation | None:
    """Return why a job is not running; None if it has ended, or was deleted meanwhile."""
    if job.is_final or job.unreadable:
        return None
    return client.app.explain_many([job.id])[0]


def _watch(client: Client, id: str) -> bool:
    output = client.output

    def load() -> View:
        job = client.app.get(id)
        usage = _usage(client, job) if output.on_terminal else None
        explanation = _explanation(client, job) if output.on_terminal else None
        return View([details(job, usage, explanation)], final=job.is_final or job.unreadable != "")

    def draw(view: View) -> Any:
        return output.grid(describe(view.records[0], output))

    return watch(output, Watched(load, draw, JOB_DETAILS))


@command(
    "peek", "holdfast peek mail", "holdfast peek mail -n 10 --json | jq '.[].arguments'", output=JOB_DETAILS,
    in_columns=False,
)  # fmt: skip
@click.argument("queue", shell_complete=complete_queue)
@limit_option("Maximum number of jobs, up to 1,000.", default=1, maximum=MAX_BATCH)
@pass_client
def peek(client: Client, queue: str, limit: int) -> None:
    """Show the next jobs of a queue without claiming them.

    In a pipe, each is described as by `show`. Jobs whose records cannot be read are skipped.
    """
    find_queue(client.app, queue)
    ids, unreadable = _next_ids(client, queue, limit)
    records = [details(job) for job in (client.app.get_many(ids) if ids else []) if job]
    if client.output.mode == "json":
        client.output.list(records, JOB_DETAILS)
    for record in records if client.output.mode != "json" else []:
        client.output.facts(describe(record, client.output))
    if unreadable:
        print_note(f"skipped jobs whose records are missing or cannot be read: {', '.join(unreadable)}")
    elif not records:
        print_note(f"queue {queue} has no waiting job")


def _next_ids(client: Client, queue: str, limit: int) -> tuple[list[str], list[str]]:
    """Return the ids of the next jobs, and those of up to `MAX_UNREADABLE` jobs among them that cannot be read."""
    readable: list[str] = []
    unreadable: list[str] = []
    for job in client.app.list(queue=queue, state="waiting", limit=limit + MAX_UNREADABLE):
        (unreadable if job.unreadable else readable).append(job.id)
        if len(readable) == limit or len(unreadable) == MAX_UNREADABLE:
            break
    return readable, unreadable
