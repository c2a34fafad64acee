"""`holdfast web`: serve the dashboard and the API with uvicorn."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from holdfast.errors import Invalid
from holdfast.web.application import Application
from holdfast.web.background import background_of
from holdfast.web.security.accounts import Accounts
from holdfast.web.security.auth_file import Entries, read_entries
from holdfast.web.security.proxies import Proxies
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site

if TYPE_CHECKING:
    from holdfast.app import Holdfast

MAX_CONNECTIONS = 1000
INSECURE = (
    "Plain http: whoever can watch the network between you and this server can read your password, act in your name and"
    " see what you see."
)

_ROOT_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)*", re.ASCII)


def make_site(
    jobs: Holdfast, address: str, *, auth: Path | None = None, proxies: Iterable[str] = (),
    insecure_http: bool = False, redact: Iterable[str] = (),
) -> Site:  # fmt: skip
    """Return the site of a server at an address.

    Raises:
        Invalid: somebody else could use it without authentication, or a setting is wrong.
    """
    on_loopback, trusted = ipaddress.ip_address(address).is_loopback, Proxies(proxies)
    names = frozenset(name.lower() for name in redact)
    if auth is None:
        check_private(address, on_loopback=on_loopback, has_proxies=bool(trusted))
        return Site(jobs, lambda _: LOCAL, names, local_only=True, private=True)
    entries = read_entries(auth)
    check_entries(auth, entries, trusted)
    if on_loopback and trusted and not entries.hosts:
        raise Invalid(
            f"{auth} does not say under which name the proxy is reached; add it as the first line:"
            ' hosts = ["jobs.example.org"]'
        )
    return Site(
        jobs,
        Accounts(auth, on_loopback=on_loopback, insecure_http=insecure_http),
        names,
        local_only=on_loopback,
        notice=INSECURE if insecure_http else "",
        hosts=frozenset(entries.hosts),
        proxies=trusted,
    )


def check_private(address: str, *, on_loopback: bool, has_proxies: bool) -> None:
    """Refuse to serve others without authentication."""
    add = "add users or tokens (`holdfast web users add NAME`), and name their file with --auth"
    if not on_loopback:
        raise Invalid(f"{address} can be reached from other machines, and nobody would have to sign in: {add}")
    if has_proxies:
        raise Invalid(f"a proxy lets others reach this server, and nobody would have to sign in: {add}")


def check_entries(path: Path, entries: Entries, proxies: Proxies) -> None:
    """Refuse a file with which nobody could sign in."""
    if entries.proxy and not proxies:
        raise Invalid(
            f"{path} has user_header, which is believed only from the addresses of your proxy: name them with"
            " --trusted-proxy"
        )
    if not (entries.users or entries.tokens or entries.proxy):
        raise Invalid(f"{path} has no users and no tokens; add one: `holdfast web users add NAME --auth {path}`")


def find_address(host: str) -> str:
    """Return the address of a host, of IPv4 if it has one.

    Raises:
        Invalid: there is no such host.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Invalid(f"there is no host {host!r}: {getattr(error, 'strerror', None) or error}") from None
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


def check_root_path(path: str) -> str:
    """Return the path below which a proxy serves the application; raise Invalid if it is malformed."""
    path = path.rstrip("/")
    if _ROOT_PATH.fullmatch(path) and not {".", ".."} & set(path.split("/")):
        return path
    raise Invalid(f"expected a path such as /jobs, got {path!r}")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes a free one. Raises OSError.

    It has the protocol, which `socket.create_server` leaves out: otherwise asyncio does not turn off Nagle's algorithm,
    and each answer on a kept connection takes 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    return listener


class Server(uvicorn.Server):
    """A server that ends streams and waits before it shuts down: a browser would keep its stream of events open."""

    def __init__(self, application: Application, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._application = application

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        background_of(self._application.site.app).end_streams()
        await super().shutdown(sockets)


def make_server(application: Application, *, root_path: str = "") -> Server:
    """Return a server of an application; `server.run(sockets=[...])` serves until a signal."""
    config = uvicorn.Config(
        application,
        root_path=root_path,
        http="h11",  # bounds the headers of a request, which others do not
        ws="none",
        proxy_headers=False,  # the application itself reads what trusted proxies say
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=64 << 10,
    )
    return Server(application, config)
