"""Requests of every route, for tests of rules that all of them keep. Routes that are added later are tested, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from holdfast import Holdfast
from holdfast.web.resource import ResourceRoute
from holdfast.web.routes import ROUTES
from holdfast.web.routing import ROLES, Role, Route
from tests.web.serving import Web

QUEUE, JOB, CANARY = "mail", "job-1", "canary"
NAMES = {"queue": QUEUE, "id": JOB}  # what the names in paths stand for; others name nothing
SAFE = ("GET",)

AnyRoute = Route[Any]


def every_route() -> list[AnyRoute]:
    """Return all routes, those that delete at the end."""
    return sorted(ROUTES, key=lambda route: (route.method == "DELETE", route.method not in SAFE))


def unsafe_routes() -> list[AnyRoute]:
    return [route for route in every_route() if route.method not in SAFE]


def needs(route: AnyRoute, role: Role) -> bool:
    return ROLES.index(route.role) >= ROLES.index(role)


def scope_of(route: AnyRoute) -> str | None:
    """Return whose rights a resource needs; None: it is a page, which calls resources."""
    return route.handler.scope if isinstance(route, ResourceRoute) else None


def is_page(route: AnyRoute) -> bool:
    return not isinstance(route, ResourceRoute)


def ask(web: Web, route: AnyRoute, headers: Mapping[str, str] | None = None, **names: str) -> tuple[int, str]:
    """Make a request, and return the status and the answer; of answers that have no end only the status."""
    known = {**NAMES, **names}
    path = route.url(**{name: known.get(name, "thing") for name in route.parameters})
    body: dict[str, Any] = {} if route.method in SAFE else {"content": b"{}"}
    kind = {} if route.method in SAFE else {"Content-Type": "application/json"}
    with web.client.stream(route.method, path, headers={**kind, **(headers or {})}, **body) as response:
        return response.status_code, read_beginning(response)


def read_beginning(response: httpx.Response) -> str:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        return ""
    return response.read().decode(errors="replace")


def put_canary(jobs: Holdfast) -> None:
    """Store a job whose task, arguments, tag and fields say `canary`, in a queue of its own."""
    task = jobs.task(name=f"{CANARY}.task")(_canary)
    options = task.bind(word=CANARY).options(queue=QUEUE, id=JOB, tags=[CANARY], fields={CANARY: CANARY})
    jobs.enqueue(options)


def _canary(word: str) -> None: ...
