"""The page of all jobs: which of them, by a query that is text and chips; and what each is waiting for."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.web.call import Call
from holdfast.web.filters import Filters
from holdfast.web.pages.job_query import Query, parse, query_of
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resource import Listed
from holdfast.web.resources.job_views import IdsQuery, show_jobs
from holdfast.web.resources.jobs import JobQuery, list_jobs
from holdfast.web.resources.queues import list_queues

pages = Pages()

SHOWN = 50  # jobs of a page


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
        except Invalid as error:
            wrong = str(error)
    rows = await with_details(call, found.items)
    queues = {each["queue"]: each for each in (await list_queues(call)).items}
    return Page(
        "jobs.html", title="Jobs", section="Jobs", query=wanted, text=text, wrong=wrong, found=found, rows=rows,
        queues=queues, cursor=query.cursor,
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


async def with_details(call: Call, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the jobs of a page with everything about each; one that was deleted meanwhile as it was."""
    if not records:
        return []
    found = await show_jobs(call, query=IdsQuery([each["id"] for each in records]))
    known = {each["id"]: each for each in found.items}
    return [known.get(each["id"], each) for each in records]
