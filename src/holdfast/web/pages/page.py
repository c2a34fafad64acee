"""Pages: functions that return a template and what it shows.

@pages.get("/queues")
async def queues_page(call: Call) -> Page:
    return Page("queues.html", title="Queues", queues=await list_queues(call))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

import msgspec
from starlette.responses import HTMLResponse, Response

from holdfast.web.api import read_query
from holdfast.web.call import Call
from holdfast.web.flash import REFRESH, clear_flash
from holdfast.web.memo import shared
from holdfast.web.pages.rendering import render
from holdfast.web.paths import decode_name
from holdfast.web.routing import Match, Method, Role, Route, RouteTable
from holdfast.web.security.users import LOCAL
from holdfast.web.theme import read_theme

LIVE_FOR = 1.0  # seconds, as an open page waits between two requests

PageFunction = Callable[..., Awaitable["Page | Response"]]


class Page:
    """A template and its variables. `title` is the title of the page."""

    def __init__(self, template: str, *, title: str, status: int = 200, **variables: Any) -> None:
        self.template, self.title, self.status, self.variables = template, title, status, variables


class Pages(RouteTable[Route[PageFunction]]):
    """The pages of one noun. Parameters of a page are the names of its path, and `query`, a msgspec struct."""

    def get(self, path: str, *, role: Role = "viewer") -> Callable[[PageFunction], PageFunction]:
        return self._declare("GET", path, role)

    def post(self, path: str, *, role: Role = "viewer") -> Callable[[PageFunction], PageFunction]:
        """Declare a form that concerns the browser alone. All others post to the API."""
        return self._declare("POST", path, role)

    def _declare(self, method: Method, path: str, role: Role) -> Callable[[PageFunction], PageFunction]:
        def declare(function: PageFunction) -> PageFunction:
            self.add(Route(method, path, role, function))
            return function

        return declare


async def answer_page(call: Call, match: Match) -> Response:
    """Answer a request for a page."""
    function = match.route.handler
    parameters: dict[str, Any] = {name: decode_name(segment) for name, segment in match.segments.items()}
    kind = get_type_hints(function).get("query")
    if kind is not None:
        parameters["query"] = read_query(call.request, kind, of_form=True)
    if REFRESH in call.request.headers and (found := await _share(call, function, parameters)):
        return found
    page = await function(call, **parameters)
    return page if isinstance(page, Response) else respond(call, page)


async def _share(call: Call, function: PageFunction, parameters: dict[str, Any]) -> Response | None:
    """Answer a request by which an open page follows the store; all who look at it with the same rights share it.

    It names nobody, since the frame of a page, which names the user, stays as it is. Return None if the page is
    elsewhere.
    """
    request = call.request
    if call.user != LOCAL:
        call.user = msgspec.structs.replace(call.user, name="")

    async def make() -> tuple[str, int] | None:
        page = await function(call, **parameters)
        return None if isinstance(page, Response) else (_content(call, page), page.status)

    key = ("page", str(request.url), call.url(""), call.user, read_theme(request))
    found = await shared(call, key, LIVE_FOR, make)
    return HTMLResponse(*found) if found else None


def respond(call: Call, page: Page) -> Response:
    """Render a page. A message of the action that led to it is shown once."""
    response = HTMLResponse(_content(call, page), page.status)
    clear_flash(call.request, response)
    return response


def _content(call: Call, page: Page) -> str:
    return render(call, page.template, title=page.title, **page.variables)
