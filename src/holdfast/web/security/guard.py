"""Requests that a page of another site makes in the name of a user are refused: forged requests, DNS rebinding.

Three checks, each enough against one attack:

    Host             a page whose name was bound to this machine meanwhile (DNS rebinding)
    Origin           a form or a script of another site that changes something (cross-site request forgery)
    Sec-Fetch-Site   an image, a script or a frame of another site that loads something (cross-site leaks)
"""

from __future__ import annotations

import ipaddress
import re

from starlette.requests import Request

from holdfast.web.problems import Problem
from holdfast.web.security.users import User

SAFE = ("GET", "HEAD")
OF_PROXIES = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)


def check_host(request: Request, hosts: frozenset[str], *, local_only: bool) -> None:
    """Refuse a Host that is not ours, which a page of another site sends after its name was bound to this machine.

    `hosts` are names of this server. One on loopback also has the local names; another server also answers to any
    address, as no page can be bound to one, and to all names if none is listed.
    """
    host = host_of(request)
    if host in hosts or (is_local(host) if local_only else not hosts or is_address(host)):
        return
    local = ("localhost", "127.0.0.1", "[::1]") if local_only else ("its address",)
    names = ", ".join((*sorted(hosts), *local))
    raise Problem(421, "HOST", f"this server does not answer to the name in Host; it answers to {names}")


def check_direct(request: Request) -> None:
    """Refuse what a proxy or a tunnel passes on to a server where nobody signs in: others use it then."""
    if any(name in request.headers for name in OF_PROXIES):
        raise Problem(
            403,
            "PROXIED",
            "a proxy has passed on this request, and nobody signs in here: add users, and name the file with --auth",
        )


def host_of(request: Request) -> str:
    """Return the name in the Host header, without the port; empty if there is not exactly one, or it is malformed."""
    sent = request.headers.getlist("host")
    return host_name(sent[0]) if len(sent) == 1 else ""


def host_name(text: str) -> str:
    """Return the name in the value of a Host header, in lower case; empty if it is malformed."""
    found = _HOST.fullmatch(text.lower())
    return found[1].strip("[]") if found else ""


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def check_origin(request: Request, user: User) -> None:
    """Refuse requests of pages of other sites. A valid token exempts a request: no browser adds one by itself."""
    if user.by == "token":
        return
    site = request.headers.getlist("sec-fetch-site")
    if request.method in SAFE:
        allowed = site in ([], ["same-origin"], ["none"]) or _is_navigation(request)
    elif site:
        allowed = site == ["same-origin"]
    elif origin := request.headers.getlist("origin"):
        allowed = origin == [f"{request.scope['scheme']}://{request.headers.get('host', '')}".lower()]
    else:  # no browser: they send Origin with each unsafe request
        allowed = "cookie" not in request.headers
    if not allowed:
        raise Problem(403, "ORIGIN", "the request comes from a page of another site")


def _is_navigation(request: Request) -> bool:
    """Return whether a person follows a link to here: the other site's page is left, and cannot read the answer."""
    headers = request.headers
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
