"""Operations: what will be done to all jobs that match, its progress, and the button that stops it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.client.operations import DEFAULT_STATES
from holdfast.errors import Invalid
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.filters import Filters
from holdfast.web.pages.commands import command_line
from holdfast.web.pages.job_query import Query, query_of
from holdfast.web.pages.jobs import as_job_query
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.jobs import list_jobs
from holdfast.web.resources.operations import NewOperation, list_operations, show_operation, start_operation
from holdfast.web.resources.queues import list_queues

pages = Pages()

Action = Literal["cancel", "retry", "delete", "move", "release", "fail", "tag", "untag"]
SAMPLE = 100  # jobs of a request for the tasks that are concerned
MAX_SAMPLES = 10  # requests
MAX_TASKS = 12


class Words(NamedTuple):
    """What people read of an action: what it does, to which jobs, and what stays as it is."""

    title: str  # "Retry 214 failed jobs?"
    done: str  # "Retrying"
    stays: str
    is_danger: bool = False


ACTIONS: dict[str, Words] = {
    "retry": Words(
        "Retry", "Retrying", "Budgets are reset. Checkpoints are kept, so the work continues there. Histories stay."
    ),
    "cancel": Words(
        "Cancel", "Cancelling", "Workers stop those that run. Records, checkpoints and histories stay; a retry brings "
        "a job back.", True,
    ),
    "delete": Words(
        "Delete", "Deleting", "Records, results, logs and histories are removed, and nothing brings them back. "
        "Statistics stay.", True,
    ),
    "move": Words("Move", "Moving", "Jobs that run stay where they are. Everything else about them stays."),
    "release": Words(
        "Release", "Releasing", "Attempts are stopped without using up a retry. Checkpoints stay, and other workers "
        "continue.",
    ),
    "fail": Words(
        "Fail", "Failing", "They are not retried. Records and histories stay; a retry brings one back.", True,
    ),
    "tag": Words("Tag", "Tagging", "Only their tags change."),
    "untag": Words("Untag", "Untagging", "Only their tags change."),
}  # fmt: skip


# What an action needs besides jobs, as options of the command line and as fields of the API.
_EXAMPLES: dict[str, dict[str, str]] = {"move": {"to": "QUEUE"}, "tag": {"tag": "TAG"}, "untag": {"tag": "TAG"}}
_FIELDS: dict[str, Record] = {"move": {"to": "QUEUE"}, "tag": {"tags": ["TAG"]}, "untag": {"tags": ["TAG"]}}


class PreviewQuery(Filters, frozen=True, kw_only=True, forbid_unknown_fields=True):  # type: ignore[misc, call-arg]
    """What would be done, to which jobs."""

    action: Action


@pages.get("/operations/new", role="operator")
async def preview_page(call: Call, query: PreviewQuery) -> Page:
    """What an action would do to all jobs that match filters, before it is done."""
    wanted = query_of(query)
    if not wanted:
        raise Invalid("an operation needs a filter")
    action: Action = query.action
    filters = msgspec.convert(wanted.filters, Filters, strict=False)
    counted = await start_operation(call, body=NewOperation(action=action, filter=filters, dry_run=True))
    concerned = wanted if wanted.states or action not in DEFAULT_STATES else _with_states(wanted, action)
    tasks, is_whole = await _tasks(call, concerned)
    words = ACTIONS[action]
    return Page(
        "operation_new.html", title=f"{words.title} jobs", section="Jobs", action=action, words=words, query=wanted,
        concerned=concerned, matched=counted["matched"], tasks=tasks, is_whole=is_whole,
        queues=[each["queue"] for each in (await list_queues(call)).items],
        shell=command_line(action, all=True, **{**_EXAMPLES.get(action, {}), **wanted.options()}),
        body={"action": action, "filter": _body(wanted), **_FIELDS.get(action, {})},
    )  # fmt: skip


def _with_states(wanted: Query, action: str) -> Query:
    return wanted.having(state=tuple(DEFAULT_STATES[action]))


def _body(wanted: Query) -> Record:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in wanted.filters.items()}


async def _tasks(call: Call, wanted: Query) -> tuple[list[tuple[str, int]], bool]:
    """Return how many of the first jobs that match are of each task, and whether these are all."""
    counts, cursor = Counter[str](), None
    for _ in range(MAX_SAMPLES):
        found = await list_jobs(call, query=as_job_query(wanted, fields=["id", "task"], limit=SAMPLE, cursor=cursor))
        counts.update(each["task"] or "unreadable" for each in found.items)
        cursor = found.next
        if cursor is None:
            break
    return counts.most_common(MAX_TASKS), cursor is None


@pages.get("/operations")
async def operations_page(call: Call) -> Page:
    """Operations that run, and the last that have ended."""
    found = (await list_operations(call)).items
    rows = [(each, stored_query(each["filter"]), share_of(each)) for each in found]
    return Page("operations.html", title="Operations", section="Jobs", rows=rows, actions_of=ACTIONS)


@pages.get("/operations/{operation}")
async def operation_page(call: Call, operation: str) -> Page:
    """How far an operation is, and what it did."""
    found = await show_operation(call, operation=operation)
    return Page(
        "operation.html", title=f"{ACTIONS[found['action']].done} jobs" if found["action"] in ACTIONS else "Operation",
        section="Jobs", found=found, words=ACTIONS.get(found["action"]), query=stored_query(found["filter"]),
        share=share_of(found), live_every=1,
    )  # fmt: skip


def share_of(found: Record) -> float | None:
    """Return how far an operation is, from 0 to 1."""
    if found["state"] == "done":
        return 1.0
    return min(found["looked_at"] / found["total"], 1.0) if found["total"] else None


def stored_query(filter: Record) -> Query:
    """Return the filter of an operation as a query."""
    return Query({name: _text(value) for name, value in filter.items()})


def _text(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return "true" if value is True else str(value)
