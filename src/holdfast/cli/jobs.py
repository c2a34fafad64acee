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
from holdfast.cli.selection import count_jobs, select_jobs
from holdfast.cli.suggestions import find_queue
from holdfast.cli.watch import HEADER_LINES, View, Watched, watch, watch_option
from holdfast.client.finding import find
from holdfast.client.queries import ROW_FIELDS
from holdfast.constants import DEFAULT_PAGE
from holdfast.job.job import STATES, Job
from holdfast.records.jobs import COUNT, JOBS
from holdfast.records.table import Record, Table

TERMINAL_LIMIT = 50  # jobs, unless --limit is given
WATCHED_LIMIT = 1000  # jobs that --watch compares in a pipe, unless --limit is given


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
    table, maximum = _table_of(fields), limit or _default_limit(client.output, watching)
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


def _table_of(fields: list[str] | None) -> Table:
    """Return the table of all columns, or of the fields that were named."""
    return JOBS if fields is None else JOBS.narrowed(fields)


def _print_page(client: Client, selection: Selection, limit: int, cursor: str | None) -> None:
    fields = selection.fields if selection.is_narrow else None
    page = client.app.page(cursor, limit=limit, newest=selection.newest, fields=fields, **selection.filters)
    records = page.rows if fields else [selection.record(job) for job in page.rows]
    if client.output.mode == "json":
        client.output.json({"jobs": records, "cursor": page.cursor})
        return
    client.output.list(records, _table_of(selection.fields))
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
