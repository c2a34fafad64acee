"""Users: a name, a role, the queues that they may see, and whether they may see data of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Literal, TypeVar

import msgspec

from holdfast.client.queue_patterns import Patterns, check_entries, check_entry
from holdfast.errors import Invalid
from holdfast.web.paths import Scope as Scope  # noqa: PLC0414 - the type of what `Authenticate` is given
from holdfast.web.routing import ROLES, Role

# What proved who makes a request. No browser adds a token by itself, so a page of another site cannot make requests
# with one; the other proofs come with every request of a browser.
Proof = Literal["token", "session", "proxy", ""]

Queues = TypeVar("Queues", bound=Sequence[str])

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
            raise Invalid(f"role is {self.role!r}; expected one of {', '.join(ROLES[1:])}")
        if self.queues is not None:
            if not isinstance(self.queues, tuple):
                raise Invalid(f"queues is {self.queues!r}; expected a tuple of names and patterns, or None for all")
            if self.queues:
                _patterns(self.queues)
        check_token_scope(self.scope)

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


def check_queues(queues: Queues) -> Queues:
    """Return names and patterns of queues, or raise Invalid."""
    for entry in queues:
        check_entry(entry)
    check_entries(queues, "queues")
    return queues


def check_token_scope(scope: str | None) -> None:
    """Raise Invalid if no token has this scope."""
    if scope is not None and scope not in SCOPES:
        raise Invalid(f"scope is {scope!r}; expected one of {', '.join(SCOPES)}")


@lru_cache(1000)
def _patterns(entries: tuple[str, ...]) -> Patterns:
    check_queues(entries)
    return Patterns({entry: 0 if entry.startswith("!") else 1 for entry in entries})


# Finds the user of a request from its ASGI scope; None: the request has no valid credentials.
Authenticate = Callable[[Scope], User | Awaitable[User | None] | None]

NOBODY = User("nobody", "public", ())
LOCAL = User("local", "admin")  # of a server on loopback without users
