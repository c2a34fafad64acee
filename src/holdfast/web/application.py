"""The ASGI application: finds the route and the user of a request, and sends the answer.

guard (Host, Origin) ──▶ route ──▶ user ──▶ resource or page ──▶ headers
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holdfast.store import acting_as
from holdfast.web import api
from holdfast.web.background import background_of
from holdfast.web.call import Call
from holdfast.web.pages.errors import error_page
from holdfast.web.pages.page import answer_page
from holdfast.web.problems import Problem, problem_of
from holdfast.web.resource import API, ResourceRoute
from holdfast.web.routes import ROUTES
from holdfast.web.routing import Match
from holdfast.web.security.guard import check_host, check_origin
from holdfast.web.security.headers import add_headers
from holdfast.web.security.users import LOCAL, NOBODY, Authenticate, User
from holdfast.web.site import Site
from holdfast.web.static import answer_static

if TYPE_CHECKING:
    from holdfast.app import Holdfast

log = logging.getLogger("holdfast.web")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LIVE = f"{API}/health/live"


def app(
    jobs: Holdfast, *, auth: Authenticate | Literal["open"] | None = None, redact: Iterable[str] = ()
) -> Application:
    """Return the dashboard and the REST API as an ASGI application, to be mounted under any path.

        application.mount("/jobs", holdfast.web.app(jobs, auth=user_of))

    `auth` is a function from the scope of a request to a `User`, or None if nobody is signed in; or "open", which gives
    everybody all rights. Without it, all requests but `/health/live` are forbidden. Values of fields that `redact`
    names are never shown.
    """
    authenticate: Authenticate | None = (lambda _: LOCAL) if auth == "open" else auth
    return Application(Site(jobs, authenticate, frozenset(name.lower() for name in redact)))


class Application:
    """An ASGI application for one site."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            request = Request(scope, receive)
            response = await self._answer(request)
            add_headers(request, response)
            await response(scope, receive, send)
        else:
            raise RuntimeError(f"Holdfast answers http requests, not {scope['type']}")

    async def _live(self, receive: Receive, send: Send) -> None:
        """Answer the events of the server that runs this application alone; a mounted one gets none."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await background_of(self.site.app).stop()
                await self.site.app.aclose()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _answer(self, request: Request) -> Response:
        path = path_of(request)
        user = NOBODY
        try:
            if self.site.local_only:
                check_host(request)
            found = answer_static(request, path)
            if found:
                return found
            method = await _method_of(request)
            match = ROUTES.find(method, path)
            user = await self._find_user(request, match)
            if method not in ("GET", "HEAD"):
                check_origin(request, user)
            call = Call(self.site, request, user)
            call.check_role(match.route.role)
            with acting_as(user.name):
                if isinstance(match.route, ResourceRoute):
                    return await api.answer(call, match)
                return await answer_page(call, match)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                log.exception("%s %s failed", request.method, path)
                problem = Problem(500, "ERROR", "an unexpected error; the log of the server has it")
            return _refuse(self.site, request, path, user, problem)

    async def _find_user(self, request: Request, match: Match) -> User:
        if match.route.role == "public":
            return NOBODY
        if self.site.authenticate is None:
            raise Problem(403, "FORBIDDEN", "this application was mounted without `auth`")
        found = self.site.authenticate(request.scope)
        user = await found if inspect.isawaitable(found) else found
        if user is None:
            raise Problem(401, "UNAUTHENTICATED", "sign in, or send a valid token", {"WWW-Authenticate": "Bearer"})
        return user


def path_of(request: Request) -> str:
    """Return the path below the place where the application is mounted."""
    path: str = request.scope["path"]
    root: str = request.scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and (path == root or path.startswith(f"{root}/")) else path


async def _method_of(request: Request) -> str:
    """Return the method of a request. A form may name another than POST as `_method`: forms know no other."""
    if request.method == "POST" and api.is_form(request):
        return str(api.read_form(await api.read_body(request)).get("_method") or "POST")[:20]
    return request.method


def _refuse(site: Site, request: Request, path: str, user: User, problem: Problem) -> Response:
    """Answer with a problem: as a page for people, else as JSON."""
    is_page = "text/html" in request.headers.get("accept", "") and (
        not path.startswith(f"{API}/") or api.is_form(request)
    )
    if is_page:
        return error_page(Call(site, request, user), problem)
    content = msgspec.json.encode(problem.details())
    return Response(content, problem.status, problem.headers, "application/problem+json")
