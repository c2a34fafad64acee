"""Queries: find and count the jobs that match a filter, in constant memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, Unpack

from holdfast.client.filters import JobFilter, read_filter
from holdfast.constants import DEFAULT_PAGE, MAX_BATCH
from holdfast.errors import Invalid
from holdfast.job.job import Job, read_job
from holdfast.store import Command, Pages, Steps, Stores, commands
from holdfast.store.commands import CountReply, ListReply
from holdfast.task.program import PROGRAM, PROGRAM_RESULT
from holdfast.task.task import Task
from holdfast.text import suggestion
from holdfast.units import utc

# What `rows` can return of a job, by its name in the store.
ROW_FIELDS = {
    "id": "id", "state": "state", "queue": "queue", "task": "task", "priority": "priority", "created_at": "created",
    "since": "since", "attempt": "attempt", "cancelling": "cancelling", "group": "group", "worker": "worker",
}  # fmt: skip
_CONVERT: dict[str, Callable[[Any], Any]] = {"created_at": utc, "since": utc, "cancelling": bool}


class App(Stores, Protocol):
    """A client, and the tasks whose results it can read."""

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]: ...


class Page(NamedTuple):
    """A part of a list: jobs, or rows if fields were named; and the cursor of the next page, None after the last.

    `looked_at` is the number of jobs that were compared with the filters, and `matched` that of all matches, if it was
    asked for and an index has it.
    """

    rows: list[Any]
    cursor: str | None
    looked_at: int = 0
    matched: int | None = None


def read(app: App, fields: dict[str, Any]) -> Job[Any]:
    """Read the fields of a job; its result is decoded as the return type of its task."""
    name = fields.get("task", "")
    task = app.tasks.get(name)
    returns = task.signature.result if task else PROGRAM_RESULT if name == PROGRAM else None
    return read_job(fields, app, returns)  # type: ignore[arg-type] # the methods that a job calls are client methods


def list_jobs(
    self: App, *, newest: bool = False, limit: int | None = None, **filters: Unpack[JobFilter]
) -> Pages[Job[Any]]:
    """Iterate over the jobs that match all filters, reading a page at a time.

    for job in jobs.list(queue="mail", state="failed", since="1h"): ...

    Jobs are ordered by queue, then by state. With `newest`, queues are merged and the most recently changed job comes
    first; among waiting and scheduled jobs, the one that runs last.

    The jobs have no payload, result or attempts: `refresh` a job to load them, or use `export`.
    """
    found = read_filter(filters, method="list")
    return list_pages(self, partial(commands.list_jobs, newest=newest, **found), limit)


def rows(
    _: Stores, *fields: str, newest: bool = False, limit: int | None = None, **filters: Unpack[JobFilter]
) -> Pages[dict[str, Any]]:
    """Iterate over some fields of the jobs that match, as dictionaries: a third of the cost of `list`.

    for row in jobs.rows("id", "task", state="failed"): ...

    Fields are id, state, queue, task, priority, created_at, since, attempt, cancelling, group, and worker, of
    the last attempt.
    """
    read_rows, names = _row_reader(fields), [ROW_FIELDS[name] for name in fields]
    page = partial(commands.list_rows, names, newest=newest, **read_filter(filters, method="rows"))
    return _walk(page, lambda found: read_rows(found.rows), limit)


def export(self: App, *, limit: int | None = None, **filters: Unpack[JobFilter]) -> Pages[Job[Any]]:
    """Iterate over the jobs that match, with everything that is stored of each: payload, result, attempts, notes."""
    found = read_filter(filters, method="export")
    return list_pages(self, partial(commands.list_jobs, whole=True, **found), limit)


def page(
    self: App,
    cursor: str | None = None,
    *,
    limit: int = DEFAULT_PAGE,
    newest: bool = False,
    fields: Sequence[str] | None = None,
    whole: bool = False,
    count: bool = False,
    max_looked_at: int | None = None,
    **filters: Unpack[JobFilter],
) -> Steps[Page]:
    """Return a page of the jobs that match, and the cursor of the next: for lists that a web page shows.

    found = jobs.page(limit=50, state="failed", newest=True)
    later = jobs.page(found.cursor, limit=50, state="failed", newest=True)

    The rows are jobs, with everything that is stored if `whole` is given; or dictionaries with `fields`, see `rows`. A
    cursor is text, valid for the same filters and order. Jobs that come and go are neither skipped nor repeated. With
    `count`, the page has the number of all that match, if an index has it. With `max_looked_at`, the page ends after
    about that number of jobs were compared, even if it has fewer than `limit`, or none.
    """
    if limit < 1 or (fields is not None and whole):
        raise Invalid("limit must be at least 1" if limit < 1 else "fields and whole cannot be combined")
    found = read_filter(filters, method="page")
    if fields is None:
        step: Callable[..., Command[Any]] = partial(commands.list_jobs, newest=newest, whole=whole, **found)
        convert: Callable[[Any], list[Any]] = lambda reply: [read(self, each) for each in reply.jobs]  # noqa: E731
    else:
        read_rows = _row_reader(fields)
        step = partial(commands.list_rows, [ROW_FIELDS[name] for name in fields], newest=newest, **found)
        convert = lambda reply: read_rows(reply.rows)  # noqa: E731
    matched: int | None = (yield commands.indexed_count(**found)) if count else None
    entries: list[Any] = []
    looked_at = 0
    while True:
        reply = yield step(limit=min(limit - len(entries), MAX_BATCH), cursor=cursor)
        entries += convert(reply)
        cursor, looked_at = reply.cursor, looked_at + reply.looked_at
        if cursor is None or len(entries) >= limit or looked_at >= (max_looked_at or math.inf):
            return Page(entries, cursor, looked_at, matched)


def peek(self: App, queue: str, /, *, limit: int = 1) -> Steps[list[Job[Any]]]:
    """Return the waiting jobs that are claimed next from a queue, in order, without claiming them.

    Jobs may be passed over when they are claimed: those whose limits are full, and those whose deadline is over.
    """
    found: Page = yield from page(self, limit=limit, queue=queue, state="waiting")
    return found.rows


def dependents(_: Stores, id: str, /) -> Steps[list[str]]:
    """Return the ids of the jobs that are blocked until a job ends; none if the job does not exist.

    `jobs.list(waits_for=id)` iterates over the jobs.
    """
    filter, found, cursor = read_filter({"waits_for": id}, method="dependents"), list[str](), None
    while True:
        reply = yield commands.list_rows(["id"], limit=MAX_BATCH, cursor=cursor, **filter)
        found += [row[0] for row in reply.rows]
        cursor = reply.cursor
        if cursor is None:
            return found


def count(_: Stores, **filters: Unpack[JobFilter]) -> Steps[int]:
    """Count the jobs that match all filters.

    By queue and state, and by time for running and ended jobs, indexes have the number; otherwise each job is looked
    at, in many short calls.
    """
    found, total, cursor = read_filter(filters, method="count"), 0, None
    while True:
        step: CountReply = yield commands.count_step(cursor=cursor, **found)
        total, cursor = total + step.found, step.cursor
        if cursor is None:
            return total


def list_pages(self: App, page: Callable[..., Command[ListReply]], limit: int | None = None) -> Pages[Job[Any]]:
    """Read the pages of a list of jobs, up to `limit` jobs; `page` makes the command, of a page's size and cursor."""
    return _walk(page, lambda found: [read(self, fields) for fields in found.jobs], limit)


def _walk(page: Callable[..., Command[Any]], convert: Callable[[Any], list[Any]], limit: int | None) -> Pages[Any]:
    cursor, left = None, limit
    while left is None or left > 0:
        found = yield page(limit=page_size(left), cursor=cursor)
        entries = convert(found)
        yield entries
        cursor, left = found.cursor, None if left is None else left - len(entries)
        if cursor is None:
            return


def page_size(left: int | None) -> int:
    return MAX_BATCH if left is None else min(left, MAX_BATCH)


def _row_reader(fields: Sequence[str]) -> Callable[[list[list[Any]]], list[dict[str, Any]]]:
    """Return a function that makes dictionaries of rows. An unreadable job has None for all but its id."""
    for name in fields:
        if name not in ROW_FIELDS:
            raise Invalid(f"unknown field {name!r}{suggestion(name, ROW_FIELDS)}")
    if not fields:
        raise Invalid(f"expected one or more fields of {', '.join(ROW_FIELDS)}")

    def read_value(name: str, value: Any) -> Any:
        if name in _CONVERT:
            return None if value == "" else _CONVERT[name](value)
        return value if value != "" or name in ("group", "worker") else None

    return lambda rows: [
        {name: read_value(name, value) for name, value in zip(fields, row, strict=True)} for row in rows
    ]
