"""Find a job by its id, a queue or a task: the page of the one that is meant, or a list."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from holdfast.errors import Invalid
from holdfast.names import check_id
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.job_query import parse
from holdfast.web.pages.page import Page, Pages
from holdfast.web.paths import encode_name
from holdfast.web.resource import Listed
from holdfast.web.resources.job_views import IdsQuery, list_tasks_that_ran, show_jobs
from holdfast.web.resources.jobs import JobQuery, list_jobs
from holdfast.web.resources.queues import list_queues

pages = Pages()

MAX_FOUND = 20  # of each kind


class FindQuery(msgspec.Struct, frozen=True):
    q: str = ""


class Found(msgspec.Struct):
    """What was found, of one kind: jobs are records, the others names."""

    jobs: list[Record]
    queues: list[str]
    tasks: list[str]

    def __len__(self) -> int:
        return len(self.jobs) + len(self.queues) + len(self.tasks)


@pages.get("/find")
async def find_page(call: Call, query: FindQuery) -> Page | Response:
    """Find a job, a queue or a task."""
    text = query.q.strip()
    if _is_filter(text):
        return RedirectResponse(call.url(f"/jobs?{urlencode({'q': text})}"), 303)
    found = await _find(call, text) if text else Found([], [], [])
    if len(found) == 1:
        return RedirectResponse(call.url(_address(found)), 303)
    return Page("find.html", title="Find", section="", text=text, found=found)


def _is_filter(text: str) -> bool:
    """Whether a text is a query of jobs, such as state:failed."""
    if ":" not in text:
        return False
    try:
        return set(parse(text).filters) != {"id_prefix"}
    except Invalid:
        return False


async def _find(call: Call, text: str) -> Found:
    """Return what is called exactly so; if nothing is, what has the text in its name, and jobs whose id begins so."""
    queues = [each["queue"] for each in (await list_queues(call)).items]
    tasks = sorted({each["task"] for each in (await list_tasks_that_ran(call)).items})
    exact = Found(
        await _job(call, text), [each for each in queues if each == text], [each for each in tasks if each == text]
    )
    if len(exact):
        return exact
    return Found(await _jobs(call, text), _with(text, queues), _with(text, tasks))


async def _job(call: Call, text: str) -> list[Record]:
    try:
        check_id(text)
    except Invalid:
        return []
    found: Listed = await show_jobs(call, query=IdsQuery([text]))
    return found.items


async def _jobs(call: Call, text: str) -> list[Record]:
    try:
        found: Listed = await list_jobs(call, query=JobQuery(id_prefix=text, limit=MAX_FOUND))
    except Invalid:
        return []
    return found.items


def _with(text: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if text.lower() in name.lower()][:MAX_FOUND]


def _address(found: Found) -> str:
    if found.jobs:
        return f"/jobs/{encode_name(found.jobs[0]['id'])}"
    if found.queues:
        return f"/queues/{encode_name(found.queues[0])}"
    return f"/jobs?{urlencode({'task': found.tasks[0]})}"
