"""The ASGI application: finds the route and the user of a request, and sends the answer.

proxy, guard (Host) ──▶ route ──▶ user ──▶ guard (Origin), rights ──▶ resource or page ──▶ audit, headers
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Literal

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from holdfast.app import Holdfast
from holdfast.errors import Invalid, JobExists
from holdfast.store import acting_as
from holdfast.text import printable
from holdfast.web import api
from holdfast.web.background import background_of
from holdfast.web.call import Call
from holdfast.web.memo import forget_shared
from holdfast.web.pages.errors import error_page
from holdfast.web.pages.page import answer_page
from holdfast.web.paths import path_of
from holdfast.web.problems import Problem, problem_of
from holdfast.web.resource import API, ResourceRoute
from holdfast.web.resources.job_actions import TAKEN
from holdfast.web.routes import ROUTES
from holdfast.web.routing import Match
from holdfast.web.security.audit import audit
from holdfast.web.security.guard import check_direct, check_host, check_origin
from holdfast.web.security.headers import add_headers
from holdfast.web.security.streams import Streams, while_allowed
from holdfast.web.security.users import LOCAL, NOBODY, Authenticate, User
from holdfast.web.site import Site
from holdfast.web.static import answer_static

log = logging.getLogger("holdfast.web")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LIVE = f"{API}/health/live"
FORM_METHODS = ("PUT", "PATCH", "DELETE")  # that a form may name as `_method`


def app(
    jobs: Holdfast, *, auth: Authenticate | Literal["open"] | None = None, redact: Iterable[str] = ()
) -> Application:
    """Return the dashboard and the REST API as an ASGI application, to be mounted under any path.

        application.mount("/jobs", holdfast.web.app(jobs, auth=user_of))

    `auth` is a function from the scope of a request to a `User`, or None if nobody is signed in; or "open", which gives
    everybody all rights. Without it, all requests but `/health/live` are forbidden. Values of fields that `redact`
    names are never shown.

    Raises:
        Invalid: something is not what it must be.
    """
    if not isinstance(jobs, Holdfast):
        raise Invalid(f"expected a Holdfast app, got {jobs!r}")
    if isinstance(redact, str):
        raise Invalid(f"redact is {redact!r}; expected a list of names")
    authenticate: Authenticate | None = (lambda _: LOCAL) if auth == "open" else auth
    if authenticate is not None and not callable(authenticate):
        raise Invalid(f'auth is {auth!r}; expected a function from the ASGI scope to a User or None, or "open"')
    return Application(Site(jobs, authenticate, frozenset(name.lower() for name in redact)))


class Application:
    """An ASGI application for one site."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._streams = Streams()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            request = Request(self.site.proxies.believed(scope), receive)
            response = await self._answer(Call(self.site, request, NOBODY))
            add_headers(request, response)
            await response(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
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

    async def _answer(self, call: Call) -> Response:
        """Answer a request; every error becomes an answer, too."""
        request, path = call.request, path_of(call.request.scope)
        match = None
        try:
            check_host(request, self.site.hosts, local_only=self.site.local_only)
            if self.site.private:
                check_direct(request)
            found = answer_static(request, path)
            if found:
                return found
            match = ROUTES.find(await _method_of(call), path)
            response = await self._answer_route(call, match, path)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            problem = problem_of(_without_other_queues(error, call.user))
            if problem is None:
                log.exception("%s %s failed", request.method, printable(path))
                problem = Problem(500, "ERROR", "an unexpected error; the log of the server has it")
            call.audited["code"] = problem.code
            response = _refuse(call, path, problem)
        audit(call, request.method, match, response.status_code)
        return response

    async def _answer_route(self, call: Call, match: Match, path: str) -> Response:
        if self.site.authenticate is None and path != LIVE:
            raise Problem(403, "FORBIDDEN", "this application was mounted without `auth`")
        if match.route.role != "public":
            call.user = await self._find_user(call.request)
        check_origin(call.request, call.user)
        call.check_route(match.route.method, match.route.path.removeprefix(API), match.route.role)
        with acting_as(call.user.name):
            if isinstance(match.route, ResourceRoute):
                response = await api.answer(call, match)
                if match.route.method != "GET":
                    forget_shared(self.site.app)
            else:
                response = await answer_page(call, match)
        if isinstance(response, StreamingResponse):
            self._streams.check(call.user.name)
            allowed = while_allowed(response.body_iterator, lambda: self._is_same_user(call))
            response.body_iterator = self._streams.counted(call.user.name, allowed)
        for finish in call.finishing:
            finish(response)
        return response

    async def _find_user(self, request: Request) -> User:
        user = await self._authenticate(request)
        if user is None:
            raise Problem(401, "UNAUTHENTICATED", "sign in, or send a valid token", {"WWW-Authenticate": "Bearer"})
        return user

    async def _authenticate(self, request: Request) -> User | None:
        if self.site.authenticate is None:
            return None
        found = self.site.authenticate(request.scope)
        user = await found if inspect.isawaitable(found) else found
        if user is not None and not isinstance(user, User):
            raise TypeError(f"`auth` must return a holdfast.web.User or None, not {type(user).__name__}")
        return user

    async def _is_same_user(self, call: Call) -> bool:
        """Return whether the rights of a request are still those with which it began."""
        if call.user is NOBODY:
            return True
        try:
            return await self._authenticate(call.request) == call.user
        except Problem:
            return False


def _without_other_queues(error: Exception, user: User) -> Exception:
    """Return an error that names no job to users who may not see all: it may be in another queue."""
    return JobExists(TAKEN) if isinstance(error, JobExists) and not user.has_all_queues else error


async def _method_of(call: Call) -> str:
    """Return the method of a request. A form may name another than POST as `_method`: forms know no other."""
    if call.request.method != "POST":
        return call.request.method
    named = (await api.read_form_of(call)).get("_method")
    return named if named in FORM_METHODS else "POST"


def _refuse(call: Call, path: str, problem: Problem) -> Response:
    """Answer with a problem: as a page for people, else as JSON. Details of the server are only for users."""
    request = call.request
    if call.user is NOBODY and problem.status >= 500 and problem.code not in ("USERS", "BUSY"):
        problem = Problem(problem.status, problem.code, "this cannot be answered now", problem.headers)
    is_page = "text/html" in request.headers.get("accept", "") and (
        not path.startswith(f"{API}/") or api.is_form(request)
    )
    if is_page:
        return error_page(call, problem)
    content = msgspec.json.encode(problem.details())
    return Response(content, problem.status, problem.headers, "application/problem+json")
