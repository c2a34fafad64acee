"""Users: a name, a role, the queues that they may see, and whether they may see data of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Literal

import msgspec

from holdfast.client.queue_patterns import Patterns
from holdfast.web.paths import Scope as Scope  # noqa: PLC0414 - the type of what `Authenticate` is given
from holdfast.web.routing import ROLES, Role

# What proved who makes a request. No browser adds a token by itself, so a page of another site cannot make requests
# with one; the other proofs come with every request of a browser.
Proof = Literal["token", "session", "proxy", ""]

# What tokens with a scope are for: routes of the API and nothing else.
SCOPES: dict[str, frozenset[tuple[str, str]]] = {
    "metrics": frozenset({("GET", "/metrics"), ("GET", "/autoscale/{queue}")}),
}


class User(msgspec.Struct, frozen=True):
    """Somebody who makes requests."""

    name: str
    role: Role = "viewer"
    queues: tuple[str, ...] | None = None  # as of a worker: names, "mail-*" and "!mail-test"; None: all
    sees_data: bool | None = None  # payloads, results, errors, logs ...; None: operators and admins do
    by: Proof = ""
    scope: str | None = None  # see SCOPES; None: all routes of the role

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise TypeError(f"role is {self.role!r}; expected one of {', '.join(ROLES[1:])}")
        if not (self.queues is None or isinstance(self.queues, tuple)):
            raise TypeError(f"queues is {self.queues!r}; expected a tuple of names and patterns, or None for all")

    def has_role(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def has_all_queues(self) -> bool:
        return self.queues is None

    def has_queue(self, queue: str) -> bool:
        return self.queues is None or _patterns(self.queues).serves(queue)

    @property
    def may_see_data(self) -> bool:
        return self.has_role("operator") if self.sees_data is None else self.sees_data

    def has_scope(self, method: str, path: str) -> bool:
        """Return whether a route of the API is in the scope of the user's token."""
        return self.scope is None or (method, path) in SCOPES.get(self.scope, ())


@lru_cache(1000)
def _patterns(entries: tuple[str, ...]) -> Patterns:
    return Patterns({entry: 0 if entry.startswith("!") else 1 for entry in entries})


# Finds the user of a request from its ASGI scope; None: the request has no valid credentials.
Authenticate = Callable[[Scope], User | Awaitable[User | None] | None]

NOBODY = User("nobody", "public", ())
LOCAL = User("local", "admin")  # of a server on loopback without users
