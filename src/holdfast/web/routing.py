"""Routes: which function answers a request, found by method and path.

Resources and pages declare theirs with a `RouteTable`; the OpenAPI specification, rights and tests read the same table.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from holdfast.web.paths import encode_name
from holdfast.web.problems import Problem

Method = Literal["GET", "PUT", "POST", "PATCH", "DELETE"]
Role = Literal["public", "viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("public", "viewer", "operator", "admin")  # each may do what those before it may

H = TypeVar("H", bound=Callable[..., Awaitable[Any]])

_PARAMETER = re.compile(r"\{(\w+)\}")


class Route(Generic[H]):
    """A method, a template of a path such as `/queues/{queue}:pause`, and the function that answers it."""

    def __init__(self, method: Method, path: str, role: Role, handler: H) -> None:
        self.method, self.path, self.role, self.handler = method, path, role, handler

    def __repr__(self) -> str:
        return f"<{self.method} {self.path}>"

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """An expression for the whole path. A parameter ends before `/` and `:`, which names have only if encoded."""
        parts = _PARAMETER.split(self.path)
        return re.compile(
            "".join(f"(?P<{part}>[^/:]+)" if place % 2 else re.escape(part) for place, part in enumerate(parts))
        )

    def url(self, **names: str) -> str:
        """Return the path for these names, below the place where the application is mounted."""
        return _PARAMETER.sub(lambda found: encode_name(names[found[1]]), self.path)


R = TypeVar("R", bound=Route[Any])


class Match(NamedTuple):
    route: Route[Any]
    segments: dict[str, str]  # by parameter, as they are in the path


class RouteTable(Generic[R]):
    """Routes in the order of their declaration."""

    def __init__(self, routes: Iterable[R] = ()) -> None:
        self.routes = list(routes)

    def __iter__(self) -> Iterator[R]:
        return iter(self.routes)

    def add(self, route: R) -> None:
        self.routes.append(route)

    def find(self, method: str, path: str) -> Match:
        """Return the route of a request; raise 404 or 405 if there is none. HEAD is answered as GET."""
        wanted = "GET" if method == "HEAD" else method
        allowed = set[str]()
        for route in self.routes:
            found = route.pattern.fullmatch(path)
            if found and route.method == wanted:
                return Match(route, found.groupdict())
            if found:
                allowed.add(route.method)
        if not allowed:
            raise Problem(404, "NOTFOUND", f"there is nothing at {path[:200]}")
        allow = ", ".join(sorted(allowed | ({"HEAD"} if "GET" in allowed else set())))
        raise Problem(405, "METHOD", f"{method[:20]} is not possible here; possible: {allow}", {"Allow": allow})
