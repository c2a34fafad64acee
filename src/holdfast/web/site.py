"""The parts of one web application: the app, how users are found, and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.web.security.accounts import Accounts
from holdfast.web.security.proxies import Proxies
from holdfast.web.security.users import Authenticate

if TYPE_CHECKING:
    from holdfast.app import Holdfast


class Site(NamedTuple):
    """One web application."""

    app: Holdfast
    authenticate: Authenticate | None = None  # None: everything but /health/live is forbidden
    redact: frozenset[str] = frozenset()  # names of fields whose values are never shown, in lower case
    local_only: bool = False  # requests must name a local host, or one of `hosts`
    private: bool = False  # nobody signs in, so requests that a proxy passes on are refused
    notice: str = ""  # a warning on every page
    hosts: frozenset[str] = frozenset()  # names of this server, in lower case
    proxies: Proxies = Proxies()  # whose headers are believed

    @property
    def accounts(self) -> Accounts | None:
        """Users who sign in here; None: somebody else authenticates them, or nobody."""
        return self.authenticate if isinstance(self.authenticate, Accounts) else None
