"""A call of a resource: the request, the app that it concerns, and the user who makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import JobNotFound
from holdfast.web.paths import root_of
from holdfast.web.problems import Problem
from holdfast.web.routing import Role
from holdfast.web.security.users import User
from holdfast.web.site import Site

if TYPE_CHECKING:
    from holdfast.app import Holdfast

T = TypeVar("T")


class Call:
    """The request that a resource or a page answers, with its user and the app."""

    def __init__(self, site: Site, request: Request, user: User) -> None:
        self.site, self.request, self.user = site, request, user
        self.form: dict[str, Any] = {}  # fields of a form that was sent
        self.audited: dict[str, Any] = {}  # more fields of the line in the audit log
        self.message = ""  # what this action did, if a form does not know that beforehand
        self.finishing: list[Callable[[Response], None]] = []  # called with the answer, to set cookies
        self.status: int | None = None  # of the answer, if it is not that of the route
        self.is_export = False  # a list is sent as lines, slice by slice, which have no place for a count
        self.headers: dict[str, str] = {}  # of the answer, besides those of all

    def respond(self, status: int, **headers: str) -> None:
        """Answer this call with another status than that of its route, and with these headers."""
        self.status = status
        self.headers |= headers

    @property
    def app(self) -> Holdfast:
        return self.site.app

    def check_role(self, role: Role) -> None:
        if not self.user.has_role(role):
            raise Problem(403, "FORBIDDEN", f"this needs the role {role}; {self.user.name} is {self.user.role}")

    def check_route(self, method: str, path: str, role: Role) -> None:
        """Raise a problem if the user may not use a route at all; `path` is its template."""
        if not self.user.has_scope(method, path):
            raise Problem(403, "FORBIDDEN", f"the token {self.user.name} is only for {self.user.scope}")
        self.check_role(role)

    def check_queue(self, queue: str) -> None:
        if not self.user.has_queue(queue):
            raise Problem(403, "FORBIDDEN", f"{self.user.name} has no rights on queue {queue}")

    def check_all_queues(self) -> None:
        if not self.user.has_all_queues:
            raise Problem(403, "FORBIDDEN", f"this concerns all queues; {self.user.name} has rights on some")

    def check_data(self) -> None:
        if not self.user.may_see_data:
            raise Problem(403, "FORBIDDEN", f"this has data of jobs, which {self.user.name} may not see")

    async def check_job(self, id: str) -> None:
        """Raise JobNotFound, as for a job that does not exist, if it is in a queue that the user may not see."""
        if not self.user.has_all_queues and not self.user.has_queue((await self.app.aget(id)).queue):
            raise JobNotFound(f"job {id} does not exist; it may have been deleted")

    def visible(self, values: Iterable[T], queue_of: Any = None) -> list[T]:
        """Return the values of queues that the user may see; `queue_of` finds the queue of a value."""
        if self.user.has_all_queues:
            return list(values)
        find = queue_of or (lambda value: value["queue"] if isinstance(value, dict) else value.queue)
        return [each for each in values if self.user.has_queue(find(each))]

    def url(self, path: str) -> str:
        """Return the address of a path of this application, wherever it is mounted."""
        return f"{root_of(self.request.scope)}{path}"
