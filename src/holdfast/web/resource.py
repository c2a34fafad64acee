"""Resources: functions that answer calls of the API, and that pages call for what they show.

    @routes.post("/queues/{queue}:pause", role="operator", reply=PAUSED, client="pause")
    async def pause_queue(call: Call, queue: str, body: Pause) -> Record: ...

Parameters are the names of the path, `query` and `body` (msgspec structs). Calling a resource checks the rights of the
user and hides what the user may not see, so a page can do nothing that the API forbids.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_type_hints

import msgspec

from holdfast.records.table import Record, Table
from holdfast.web.call import Call
from holdfast.web.routing import Method, Role, Route, RouteTable
from holdfast.web.security.redaction import redacted

API = "/api/v1"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
REPEATABLE = {"Idempotency-Key": "any text: for ten minutes, the same request with the same key takes effect only once"}

# Whose rights a resource needs: those on the queue in its path, on the queue of the job in its path, on all queues; or
# it shows only what the user may see.
Scope = Literal["queue", "job", "all", "visible", "none"]


def about(description: str, **bounds: Any) -> msgspec.Meta:
    """Return what the specification says of a field or a parameter: `Annotated[int, about("the page", ge=1)]`."""
    return msgspec.Meta(description=description, **bounds)


class ListOf(NamedTuple):
    """A reply: records of this table. `partial`: of some of its fields, if the query names them."""

    table: Table
    partial: bool = False
    stream: str | None = None  # the media type in which it can be followed, if it can


class Stream(NamedTuple):
    """A reply that is sent as it is made, or that is not JSON. Nothing in it is hidden, so one with data of jobs is
    only for users who may see that.
    """

    media_type: str
    has_data: bool = True


Reply = Table | ListOf | Stream | type | None  # None: no content


class Listed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A page of a list."""

    items: list[Record]
    next: str | None = None  # the cursor of the next page
    looked_at: int | None = None  # number of jobs that were compared with the filter
    matched: int | None = None  # number of all matches, if an index has it


class Chunks(NamedTuple):
    """The content of a Stream."""

    media_type: str
    chunks: AsyncIterator[bytes]


class Resource:
    """A function of the API with its rights, callable as `await resource(call, **parameters)`."""

    def __init__(self, function: Callable[..., Awaitable[Any]], reply: Reply, role: Role, scope: Scope) -> None:
        self.function, self.reply, self.role, self.scope = function, reply, role, scope
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        hints = get_type_hints(function, include_extras=True)
        self.query: type | None = hints.get("query")
        self.body: type | None = hints.get("body")
        _call, *names = inspect.signature(function).parameters
        self.names = [name for name in names if name not in ("query", "body")]

    def __repr__(self) -> str:
        return f"<resource {self.__name__}>"

    async def __call__(self, call: Call, **parameters: Any) -> Any:
        await self.check(call, parameters)
        return await self.run(call, parameters)

    async def check(self, call: Call, parameters: dict[str, Any]) -> None:
        """Raise a problem unless the user has the rights; of the parameters, only names of the path are looked at."""
        call.check_role(self.role)
        if isinstance(self.reply, Stream) and self.reply.has_data:
            call.check_data()
        if self.scope == "queue":
            call.check_queue(parameters["queue"])
        elif self.scope == "job":
            await call.check_job(parameters["id"])
        elif self.scope == "all":
            call.check_all_queues()

    async def run(self, call: Call, parameters: dict[str, Any]) -> Any:
        """Call the function for a user who has the rights, and hide what the user may not see."""
        for name, kind in (("query", self.query), ("body", self.body)):
            if kind is not None and parameters.get(name) is None:
                parameters[name] = kind()  # if nothing is required
        reply = await self.function(call, **parameters)
        table = self.reply.table if isinstance(self.reply, ListOf) else self.reply
        return redacted(reply, table if isinstance(table, Table) else None, call.user, call.site.redact)


class ResourceRoute(Route[Resource]):
    """A route of the API. `client` are the client methods that it is the face of; `statuses` are those of success, the
    usual one first; `headers` are those of requests that it reads, with what they mean.
    """

    def __init__(
        self, method: Method, path: str, resource: Resource, *, client: tuple[str, ...], statuses: tuple[int, ...],
        headers: Mapping[str, str],
    ) -> None:  # fmt: skip
        super().__init__(method, path, resource.role, resource)
        self.client, self.statuses, self.headers = client, statuses, headers
        if self.parameters != resource.names:
            raise TypeError(f"{path} has other parameters than {resource.__name__}")

    @property
    def status(self) -> int:
        return self.statuses[0]


class Resources(RouteTable[ResourceRoute]):
    """The routes of one noun."""

    def get(self, path: str, **options: Any) -> Callable[[Callable[..., Awaitable[Any]]], Resource]:
        return self._declare("GET", path, **options)

    def put(self, path: str, **options: Any) -> Callable[[Callable[..., Awaitable[Any]]], Resource]:
        return self._declare("PUT", path, **options)

    def post(self, path: str, **options: Any) -> Callable[[Callable[..., Awaitable[Any]]], Resource]:
        return self._declare("POST", path, **options)

    def patch(self, path: str, **options: Any) -> Callable[[Callable[..., Awaitable[Any]]], Resource]:
        return self._declare("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> Callable[[Callable[..., Awaitable[Any]]], Resource]:
        return self._declare("DELETE", path, **options)

    def _declare(
        self,
        method: Method,
        path: str,
        *,
        reply: Reply = None,
        role: Role | None = None,
        scope: Scope | None = None,
        client: str | tuple[str, ...] = (),
        status: int | tuple[int, ...] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        repeatable: bool = True,
        base: str = API,
    ) -> Callable[[Callable[..., Awaitable[Any]]], Resource]:
        """Declare a resource. Unless given, reading takes a viewer and acting an operator, and the rights are those on
        the queue in the path, or else on all queues. `status` is that of success, or several: see `Call.respond`.
        `repeatable`: a POST with an Idempotency-Key takes effect once. `base` is what the path begins with, if that is
        fixed elsewhere.
        """
        needed: Role = role or ("viewer" if method == "GET" else "operator")
        concerned: Scope = scope or ("queue" if "{queue}" in path else "all")

        def declare(function: Callable[..., Awaitable[Any]]) -> Resource:
            resource = Resource(function, reply, needed, concerned)
            methods = (client,) if isinstance(client, str) else client
            usual = status or (204 if reply is None else 200)
            statuses = (usual,) if isinstance(usual, int) else usual
            known = {**REPEATABLE, **headers} if method == "POST" and repeatable else headers
            self.add(ResourceRoute(method, base + path, resource, client=methods, statuses=statuses, headers=known))
            return resource

        return declare
