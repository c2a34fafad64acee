"""`holdfast jobs` and `holdfast count`: list and count jobs by queue and state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_queue, complete_states
from holdfast.cli.errors import print_note
from holdfast.cli.options import limit_option
from holdfast.cli.output import Output
from holdfast.cli.progress import progress_line, progress_record
from holdfast.cli.selection import count_jobs, read_states, select_jobs
from holdfast.cli.suggestions import find, find_queue
from holdfast.cli.table import Record, Table, column, field
from holdfast.cli.watch import HEADER_LINES, View, Watched, watch, watch_option
from holdfast.job.job import Job
from holdfast.store.commands import Queue

TERMINAL_LIMIT = 50  # jobs, unless --limit is given
WATCHED_LIMIT = 1000  # jobs that --watch compares in a pipe, unless --limit is given

_SCHEDULED_ID = re.compile(r"([\w.:-]+)@\d{13}(-now)?", re.ASCII)


def _schedule(job: Job[Any]) -> str | None:
    """Return the schedule that enqueued a job: such ids consist of its name and a time."""
    match = _SCHEDULED_ID.fullmatch(job.id)
    return match[1] if match else None


def _unless_unreadable(name: str) -> Any:
    return lambda job: None if job.unreadable else getattr(job, name)


def _keep_seconds(job: Job[Any]) -> float | None:
    return None if isinstance(job.keep, bool) else job.keep.total_seconds()


JOBS = Table(
    "job",
    column("id", "id of the job", whole=True),
    column("task", "name of the task"),
    column("queue", "name of the queue"),
    column(
        "state", "scheduled, waiting, blocked, throttled, running, succeeded, failed, cancelled or unreadable",
        show=lambda record, _: "cancelling" if record["cancelling"] else record["state"], coloured=True, whole=True,
    ),
    field("cancelling", "whether its worker is stopping it"),
    field("priority", "-256 to 255; lower runs first"),
    column("attempt", "number of the latest attempt, 0 before the first", title="TRY", right=True, whole=True),
    field("created_at", "when it was enqueued", _unless_unreadable("created_at")),
    column("since", "when it entered its state", _unless_unreadable("since"), right=True, whole=True),
    field("due_at", "when it is due, if it is scheduled"),
    field("claimed_at", "when the latest attempt was claimed"),
    field("lease_ends_at", "when it is lost, unless its worker renews the lease", volatile=True),
    column(
        "progress", "reported progress: fraction (0 to 1), message, done and total (items of `each`), counts, "
        "per_second (rates of the counts), estimated_end", progress_record, show=progress_line,
    ),
    field("executor", "executor of the latest attempt"),
    column(
        "worker", "worker of that executor",
        show=lambda record, _: record["worker"] if record["state"] == "running" else "",
    ),
    field("node", "machine of that worker"),
    field("pid", "process of the latest attempt; the executor's if the job has no process of its own yet"),
    field("group", "group of its failure"),
    field("fingerprint", "fingerprint of its failure; see `failures show`"),
    field(
        "final_reason",
        "why it failed for good: exhausted, not_retryable, declared, refused, at_most_once, deadline or operator",
    ),
    field("waits_for", "number of jobs it waits for, if it is blocked"),
    field("limits", "its limits, some with a key"),
    field("throttled_by", "limit it waits for, if it is throttled"),
    field("batch", "batch that it belongs to, or at whose end it runs; empty if none"),
    field("share", "its share of the queue"),
    field("tags", "its tags"),
    field("scope", "its scope, a path; empty if it has none"),
    field("tracked", "whether it is tracked: see `track`"),
    field("deadline", "latest start of an attempt; after that the job fails"),
    field("schedule", "schedule that enqueued it, if any", _schedule),
    field("unique", "its unique key, if any"),
    field("keep", "whether its record is retained when it has ended", lambda job: bool(job.keep)),
    field("keep_seconds", "how long, if it has a time of its own and not that of its queue", _keep_seconds),
    field("expires_at", "when the record of an ended job is removed, at the latest"),
    field("at_most_once", "whether it runs at most once and is never retried"),
    field("unreadable", "why its record cannot be read; then only its id is known"),
)  # fmt: skip
COUNT = Table("job", field("count", "number of jobs"))


_queue = click.option("-Q", "--queue", shell_complete=complete_queue, help="Only jobs of this queue.")
_state = click.option(
    "-s", "--state", multiple=True, metavar="STATE", shell_complete=complete_states,
    help="Only jobs in this state, or several: a,b; pending: all that have not ended.",
)  # fmt: skip


@command(
    "jobs", "holdfast jobs -s failed -Q mail", "holdfast jobs --state pending --oldest -n 10",
    "holdfast jobs --state failed | holdfast retry", output=JOBS,
)  # fmt: skip
@_queue
@_state
@limit_option(f"Maximum number of jobs. Default: {TERMINAL_LIMIT} on a terminal, all in a pipe.")
@click.option("--newest/--oldest", default=True, help="Order by last change, newest (default) or oldest first.")
@watch_option(f"Refresh until Ctrl-C; in a pipe, print jobs that change, of the latest {WATCHED_LIMIT:,}.")
@pass_client
def jobs(
    client: Client, queue: str | None, state: Sequence[str], limit: int | None, *, newest: bool, watching: bool
) -> None:  # fmt: skip
    """List jobs, most recently changed first.

    States are scheduled, waiting, blocked, throttled, running, succeeded, failed and cancelled; pending stands for the
    first five. Jobs of one queue in one state are listed in the order of the queue. PROGRESS shows the group of a
    failed job.
    """
    states, output = read_states(state), client.output
    maximum = limit or _default_limit(output, watching)

    def load() -> tuple[Iterable[Record], list[Queue]]:
        known = {each.name: each for each in client.app.queues()}
        queues = [find("queue", known, queue)] if queue else list(known.values())
        return map(JOBS.record, select_jobs(client.app, queues, states, newest=newest, limit=maximum)), queues

    if watching:
        watch(output, Watched(lambda: View(list(load()[0])), lambda view: output.table(view.records, JOBS), JOBS))
        return
    found, queues = load()
    output.list(found, JOBS)
    total = count_jobs(queues, states)
    if limit is None and maximum is not None and total > maximum:
        print_note(f"{maximum:,} of {total:,} jobs; --limit shows more, a pipe gets all")


def _default_limit(output: Output, watching: bool) -> int | None:
    """Return what fits on a screen or can be read; a pipe gets all."""
    if not output.on_terminal:
        return WATCHED_LIMIT if watching else None
    return max(1, output.console.height - HEADER_LINES) if watching else TERMINAL_LIMIT


@command("count", "holdfast count --state pending", "holdfast count -Q mail -s failed,cancelled", output=COUNT)
@_queue
@_state
@pass_client
def count(client: Client, queue: str | None, state: Sequence[str]) -> None:
    """Count jobs: all of them, or those of a queue or in some states."""
    states = read_states(state)
    queues = [find_queue(client.app, queue)] if queue else client.app.queues()
    client.output.value({"count": count_jobs(queues, states)}, "count")
