"""The page of all jobs: which of them, by a query that is text and chips; and what each is waiting for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.filters import Filters
from holdfast.web.pages.commands import command_line
from holdfast.web.pages.formats import number
from holdfast.web.pages.job_query import SHORT, Query, Term, parse, query_of
from holdfast.web.pages.job_rows import make_row
from holdfast.web.pages.page import Page, Pages
from holdfast.web.pages.rendering import STATES
from holdfast.web.problems import Problem
from holdfast.web.resource import Listed
from holdfast.web.resources.job_views import IdsQuery, list_tasks_that_ran, show_jobs
from holdfast.web.resources.jobs import JobQuery, list_jobs
from holdfast.web.resources.queues import list_queues

pages = Pages()

SHOWN = 50  # jobs of a page
ADDED = {  # filters that can be added as chips
    "queue": "Queue", "task": "Task", "tag": "Tag", "since": "Entered its state in the last …, or since a time",
    "group": "Group of its failure", "worker": "Worker on which it runs", "id": "Its id begins with",
}  # fmt: skip
FINAL = frozenset({"succeeded", "failed", "cancelled"})


class ListQuery(Filters, frozen=True, kw_only=True, forbid_unknown_fields=True):  # type: ignore[misc, call-arg]
    """Which jobs: as text, or else filter by filter; and which page of them."""

    q: str | None = None
    cursor: str | None = None
    all: bool = False  # all matches are selected, not only those of a page


@pages.get("/jobs")
async def jobs_page(call: Call, query: ListQuery) -> Page:
    """Jobs that match filters."""
    wanted, text, wrong = read(query)
    found = Listed(items=[])
    if not wrong:
        try:
            found = await list_jobs(call, query=as_job_query(wanted, cursor=query.cursor, limit=SHOWN))
        except (Invalid, Problem) as error:
            wrong = str(error)
    queues = {each["queue"]: each for each in (await list_queues(call)).items}
    matched = _matched(found, query.cursor)
    address = partial(_address, call)
    return Page(
        "jobs.html", title="Jobs", section="Jobs", query=wanted, text=text, wrong=wrong, found=found,
        rows=[make_row(each) for each in await with_details(call, found.items)], queues=queues,
        tasks=sorted({each["task"] for each in (await list_tasks_that_ran(call)).items}), matched=matched,
        all=query.all,
        cursor=query.cursor, tabs=_tabs(wanted, queues, address), chips=_chips(wanted, address),
        addable=[(name, help) for name, help in ADDED.items() if _filter_of(name) not in wanted.filters],
        filter_of={name: _filter_of(name) for name in ADDED}, bulk=actions_on(wanted), list_url=address(wanted),
        all_url=address(wanted, all="true"), next_url=address(wanted, cursor=found.next) if found.next else None,
        extent=_extent(found, matched, query.cursor), live_events=_events(wanted),
        shells=[command_line(name, **wanted.options()) for name in ("jobs", "export")],
    )  # fmt: skip


def read(query: Any) -> tuple[Query, str, str]:
    """Return what is asked for, the same as text, and what is wrong with the text."""
    if query.q is None:
        wanted = query_of(query)
        return wanted, wanted.text, ""
    try:
        wanted = parse(query.q)
    except Invalid as error:
        return Query({}), query.q, str(error)
    return wanted, wanted.text, ""


def as_job_query(wanted: Query, **more: Any) -> Any:
    return msgspec.convert({**wanted.filters, **more}, JobQuery, strict=False)


async def with_details(call: Call, records: list[Record]) -> list[Record]:
    """Return the jobs of a page with everything about each; one that was deleted meanwhile as it was."""
    if not records:
        return []
    found = await show_jobs(call, query=IdsQuery([each["id"] for each in records]))
    known = {each["id"]: each for each in found.items}
    return [known.get(each["id"], each) for each in records]


def actions_on(wanted: Query) -> list[str]:
    """Return what can be done to all jobs that match, the most probable action last."""
    states = set(wanted.states)
    ended, pending = bool(states & FINAL) or not states, bool(states - FINAL) or not states
    found = ["tag"]
    if pending:
        found += ["release"] if states == {"running"} else ["move"] if "running" not in states else []
        found += ["cancel"]
    if ended:
        found += ["delete", "retry"]
    return found


# Links


def _address(call: Call, wanted: Query, **more: str) -> str:
    query = wanted.address(**more)
    return call.url("/jobs") + (f"?{query}" if query else "")


def _filter_of(word: str) -> str:
    return next((name for name, short in SHORT.items() if short == word), word)


def _chips(wanted: Query, address: Callable[..., str]) -> list[tuple[Term, str]]:
    """Return the parts of a query, and the address without each. A single state is a tab, not a chip."""
    is_tab = len(wanted.states) == 1 and wanted.states[0] in STATES
    return [
        (term, address(wanted.having(**{term.name: None})))
        for term in wanted.terms()
        if not (term.name == "state" and is_tab)
    ]


def _tabs(wanted: Query, queues: dict[str, Record], address: Callable[..., str]) -> list[tuple[Any, ...]]:
    """Return a tab for each state, with the number of its jobs if the query has no other filters than indexes have."""
    counts = _counts(wanted, queues)
    tabs: list[tuple[Any, ...]] = [("All", address(wanted.having(state=None)), not wanted.states)]
    for state in STATES:
        count = counts.get(state)
        is_current = wanted.states == (state,)
        tabs.append((state.capitalize(), address(wanted.having(state=(state,))), is_current, count, state))
    return tabs


def _counts(wanted: Query, queues: dict[str, Record]) -> dict[str, int]:
    if wanted.filters.keys() - {"state", "queue"}:
        return {}
    names = wanted.filters.get("queue") or tuple(queues)
    shown = [queues[name] for name in names if name in queues]
    return {state: sum(each[state] for each in shown) for state in STATES}


def _matched(found: Listed, cursor: str | None) -> int | None:
    """Return the number of all matches, if an index has it, or this page has all of them."""
    if found.matched is None and found.next is None and cursor is None:
        return len(found.items)
    return found.matched


def _extent(found: Listed, matched: int | None, cursor: str | None) -> str:
    """Say how much of the list a page is."""
    shown = f"{number(len(found.items))} {'job' if len(found.items) == 1 else 'jobs'}"
    if matched is not None and not (cursor is None and matched == len(found.items)):
        return f"{shown} of {number(matched)}."
    if found.next is None:
        return f"{shown}."
    looked = f", looked at {number(found.looked_at)}" if (found.looked_at or 0) > len(found.items) else ""
    return f"{shown}{looked}. The list goes on."


def _events(wanted: Query) -> str:
    """Return which events concern a list."""
    queues: Iterable[str] = wanted.filters.get("queue", ())
    names = list(queues)
    return Query({"queue": tuple(names)}).address() if len(names) == 1 else ""
