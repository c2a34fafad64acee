"""`holdfast jobs` and `holdfast count`: list and count the jobs that match filters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.errors import print_note
from holdfast.cli.filters import filter_options, given_filters
from holdfast.cli.options import limit_option
from holdfast.cli.output import Output
from holdfast.cli.progress import progress_line
from holdfast.cli.selection import count_jobs, select_jobs
from holdfast.cli.suggestions import find_queue
from holdfast.cli.table import Record, Table, column, field
from holdfast.cli.watch import HEADER_LINES, View, Watched, watch, watch_option
from holdfast.client.finding import find
from holdfast.client.queries import ROW_FIELDS
from holdfast.constants import DEFAULT_PAGE
from holdfast.job.as_dict import BRIEF
from holdfast.job.job import STATES, Job

TERMINAL_LIMIT = 50  # jobs, unless --limit is given
WATCHED_LIMIT = 1000  # jobs that --watch compares in a pipe, unless --limit is given

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
    field("created_at", "when it was enqueued"),
    column("since", "when it entered its state", right=True, whole=True),
    field("updated_at", "when its state, queue, priority, dependencies or notes last changed"),
    field("due_at", "when it is due, if it is scheduled"),
    field("claimed_at", "when the latest attempt was claimed"),
    field("heartbeat_at", "when the lease was last renewed, if it is running; null: unknown", volatile=True),
    field("stalled", "whether its lease has ended, and no worker has requeued it yet"),
    field("lease_ends_at", "when it is lost, unless its worker renews the lease", volatile=True),
    column(
        "progress", "reported progress: fraction (0 to 1), message, done and total (items of `each`), counts, "
        "per_second (rates of the counts), estimated_end", show=progress_line,
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
    field("schedule", "schedule that enqueued it, if any"),
    field("unique", "its unique key, if any"),
    field("keep", "whether its record is retained when it has ended"),
    field("keep_seconds", "how long, if it has a time of its own and not that of its queue"),
    field("expires_at", "when the record of an ended job is removed, at the latest"),
    field("at_most_once", "whether it runs at most once and is never retried"),
    field("unreadable", "why its record cannot be read; then only its id is known"),
    readers=BRIEF,
)  # fmt: skip
COUNT = Table("job", field("count", "number of jobs"))


def _read_fields(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
    """Read names of JSON fields, separated by commas."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        find("field", JOBS.help, name)
    return names


def _complete_fields(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    before, comma, _last = incomplete.rpartition(",")
    offered = [f"{before}{comma}{name}" for name in JOBS.help if name not in before.split(",")]
    return [each for each in offered if each.startswith(incomplete)]


@command(
    "jobs", "holdfast jobs -s failed -Q mail --since 1h", "holdfast jobs --state pending --oldest -n 10",
    "holdfast jobs --state failed --fields id,task,group", "holdfast jobs --state failed | holdfast retry", output=JOBS,
)  # fmt: skip
@filter_options(state="Several: a,b; pending: all that have not ended.")
@limit_option(f"Maximum number of jobs. Default: {TERMINAL_LIMIT} on a terminal, all in a pipe.")
@click.option("--newest/--oldest", default=True, help="Order by last change, newest (default) or oldest first.")
@click.option(
    "--fields", metavar="NAME,NAME", callback=_read_fields, shell_complete=_complete_fields,
    help="Only these JSON fields, as columns; cheap: " + ", ".join(ROW_FIELDS) + ".",
)  # fmt: skip
@click.option(
    "--cursor", metavar="CURSOR",
    help="Print one page, and where the next begins; `start` begins. JSON: an object of jobs and cursor.",
)  # fmt: skip
@watch_option(f"Refresh until Ctrl-C; in a pipe, print jobs that change, of the latest {WATCHED_LIMIT:,}.")
@pass_client
def jobs(
    client: Client, /, limit: int | None, *, newest: bool, fields: list[str] | None, cursor: str | None, watching: bool,
    **options: Any,
) -> None:  # fmt: skip
    """List jobs, most recently changed first.

    States are scheduled, waiting, blocked, throttled, running, succeeded, failed and cancelled; pending stands for the
    first five. Jobs of one queue in one state are listed in the order of the queue. PROGRESS shows the group of a
    failed job.
    """
    selection = Selection(given_filters(options), newest, fields)
    if cursor is not None:
        if watching:
            raise click.UsageError("--cursor and --watch cannot be combined.")
        _print_page(client, selection, limit or DEFAULT_PAGE, None if cursor == "start" else cursor)
        return
    table, maximum = table_of(fields), limit or _default_limit(client.output, watching)
    if watching:
        output = client.output
        load = lambda: View(list(selection.load(client, maximum)[0]))  # noqa: E731
        watch(output, Watched(load, lambda view: output.table(view.records, table), table))
        return
    found, total = selection.load(client, maximum)
    client.output.list(found, table)
    if limit is None and maximum is not None and total > maximum:
        print_note(f"{maximum:,} of {total:,} jobs; --limit shows more, a pipe gets all")


class Selection(NamedTuple):
    """Which jobs to list, in which order, and what of each."""

    filters: Record
    newest: bool
    fields: list[str] | None

    def load(self, client: Client, limit: int | None) -> tuple[Iterable[Record], int]:
        """Return the records, and the number of all that match."""
        app, filters = client.app, self.filters
        known = {each.name: each for each in app.queues()}
        queues = [find("queue", known, filters["queue"])] if "queue" in filters else list(known.values())
        states, more = filters.get("state") or STATES, {n: v for n, v in filters.items() if n not in ("queue", "state")}
        if self.is_narrow:
            found = app.rows(*self.fields or (), newest=self.newest, limit=limit, **filters)
            return found, app.count(**filters) if limit else 0
        if more and self.newest:  # the store merges queues and states
            jobs = app.list(newest=True, limit=limit, **filters)
        else:
            jobs = select_jobs(app, queues, states, newest=self.newest, limit=limit, more=more)
        total = 0 if limit is None else app.count(**filters) if more else count_jobs(queues, states)
        return (self.record(job) for job in jobs), total

    @property
    def is_narrow(self) -> bool:
        return self.fields is not None and set(self.fields) <= set(ROW_FIELDS)

    def record(self, job: Job[Any]) -> Record:
        record = JOBS.record(job)
        return record if self.fields is None else {name: record[name] for name in self.fields}


def table_of(fields: list[str] | None) -> Table:
    """Return the table of all columns, or of the fields that were named."""
    if fields is None:
        return JOBS
    return Table("job", *(column(name, JOBS.help[name], whole=name == "id") for name in fields))


def _print_page(client: Client, selection: Selection, limit: int, cursor: str | None) -> None:
    fields = selection.fields if selection.is_narrow else None
    page = client.app.page(cursor, limit=limit, newest=selection.newest, fields=fields, **selection.filters)
    records = page.rows if fields else [selection.record(job) for job in page.rows]
    if client.output.mode == "json":
        client.output.json({"jobs": records, "cursor": page.cursor})
        return
    client.output.list(records, table_of(selection.fields))
    if page.cursor:
        print_note(f"next page: --cursor {page.cursor}")


def _default_limit(output: Output, watching: bool) -> int | None:
    """Return what fits on a screen or can be read; a pipe gets all."""
    if not output.on_terminal:
        return WATCHED_LIMIT if watching else None
    return max(1, output.console.height - HEADER_LINES) if watching else TERMINAL_LIMIT


@command(
    "count", "holdfast count --state pending", "holdfast count -Q mail -s failed,cancelled --since 1d", output=COUNT
)  # fmt: skip
@filter_options(state="Several: a,b; pending: all that have not ended.")
@pass_client
def count(client: Client, /, **options: Any) -> None:
    """Count jobs: all of them, or those that match filters."""
    filters = given_filters(options)
    if "queue" in filters:
        find_queue(client.app, filters["queue"])
    client.output.value({"count": client.app.count(**filters)}, "count")
