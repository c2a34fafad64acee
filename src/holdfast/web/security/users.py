"""Users: a name, a role, the queues that they may see, and whether they may see data of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from holdfast.web.routing import ROLES, Role

Scope = MutableMapping[str, Any]  # of ASGI


class User(msgspec.Struct, frozen=True):
    """Somebody who makes requests."""

    name: str
    role: Role = "viewer"
    queues: tuple[str, ...] | None = None  # names or patterns such as "mail-*"; None: all
    sees_data: bool | None = None  # payloads, results, errors, logs ...; None: operators and admins do

    def has_role(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def has_all_queues(self) -> bool:
        return self.queues is None

    def has_queue(self, queue: str) -> bool:
        return self.queues is None or any(fnmatchcase(queue, pattern) for pattern in self.queues)

    @property
    def may_see_data(self) -> bool:
        return self.has_role("operator") if self.sees_data is None else self.sees_data


# Finds the user of a request from its ASGI scope; None: the request has no valid credentials.
Authenticate = Callable[[Scope], User | Awaitable[User | None] | None]

NOBODY = User("nobody", "public", ())
LOCAL = User("local", "admin")  # of a server on loopback without users
