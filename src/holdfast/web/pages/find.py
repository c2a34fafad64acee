"""The search of all pages: leads to the job, queue, task, schedule, worker or limit of a name, or lists what has it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from holdfast.errors import Invalid, NotFound
from holdfast.web.call import Call
from holdfast.web.lists import ListQuery, WholeListQuery
from holdfast.web.pages.page import Page, Pages
from holdfast.web.paths import encode_name
from holdfast.web.problems import Problem
from holdfast.web.resources.info import list_tasks
from holdfast.web.resources.jobs import DetailsQuery, show_job
from holdfast.web.resources.limits import list_limits
from holdfast.web.resources.queues import list_queues
from holdfast.web.resources.schedules import list_schedules
from holdfast.web.resources.workers import show_worker

pages = Pages()

MAX_SHOWN = 20  # of a kind


class FindQuery(msgspec.Struct, frozen=True):
    q: Annotated[str, msgspec.Meta(max_length=500)] = ""  # an id, a name, or a part of a name


class Match(NamedTuple):
    """Something that was found."""

    kind: str
    name: str
    path: str


@pages.get("/find")
async def find_page(call: Call, query: FindQuery) -> Page | Response:
    """Go to what has this name; else list what has it in its name."""
    text = query.q.strip()
    if not text:
        return RedirectResponse(call.url("/jobs"), 303)
    if exact := await _exact(call, text):
        return RedirectResponse(call.url(exact.path), 303)
    matches = [match for match in await _named(call) if text.casefold() in match.name.casefold()]
    same = [match for match in matches if match.name == text]
    if len(same) == 1:
        return RedirectResponse(call.url(same[0].path), 303)
    by_kind = {
        kind: [match for match in matches if match.kind == kind] for kind in ("queue", "task", "schedule", "limit")
    }
    return Page("find.html", title=f"Find {text}", text=text, found=by_kind, count=len(matches), most=MAX_SHOWN)


async def _exact(call: Call, text: str) -> Match | None:
    """Return the job or the worker with this id."""
    if await _or_nothing(show_job(call, id=text, query=DetailsQuery(usage=False))):
        return Match("job", text, f"/jobs/{encode_name(text)}")
    if await _or_nothing(show_worker(call, worker=text)):
        return Match("worker", text, f"/workers/{encode_name(text)}")
    return None


async def _named(call: Call) -> list[Match]:
    """Return all that has a name, as far as the user may see it."""
    found = [
        Match(kind, record[kind], f"/{kind}s/{encode_name(record[kind])}")
        for kind, reply in (
            ("queue", list_queues(call, query=WholeListQuery())),
            ("schedule", list_schedules(call, query=ListQuery(limit=1000))),
            ("limit", list_limits(call, query=ListQuery(limit=1000))),
        )
        for record in await _items(reply)
    ]
    tasks = await _items(list_tasks(call, query=ListQuery(limit=1000)))
    return [*found, *(Match("task", each["task"], f"/jobs?{urlencode({'task': each['task']})}") for each in tasks)]


async def _items(reply: Awaitable[Any]) -> list[dict[str, Any]]:
    found = await _or_nothing(reply)
    return found.items if found else []


async def _or_nothing(reply: Awaitable[Any]) -> Any:
    """Return a reply; None if there is no such thing, or if the user may not see it."""
    try:
        return await reply
    except (NotFound, Invalid):
        return None
    except Problem as problem:
        if problem.status in (403, 404, 422):
            return None
        raise
