"""Requests that a page of another site makes in the name of a user are refused: forged requests, DNS rebinding."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

from holdfast.web.problems import Problem
from holdfast.web.security.users import User


def check_host(request: Request) -> None:
    """Refuse a Host that is not local, which a page of another site sends after its name was bound to this machine."""
    if not is_local(host_of(request.headers.get("host", ""))):
        raise Problem(421, "HOST", "this server answers only to localhost, 127.0.0.1 and [::1]")


def host_of(netloc: str) -> str:
    """Return the name in a Host header, without the port."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_origin(request: Request, _: User) -> None:
    """Refuse an unsafe request of another site. A bearer token exempts it: no browser adds one by itself."""
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        allowed = site == "same-origin"
    elif origin is not None:
        allowed = urlsplit(origin).netloc == request.headers.get("host")
    else:  # no browser: they send Origin with each unsafe request
        allowed = "cookie" not in request.headers
    if not allowed:
        raise Problem(403, "ORIGIN", "the request comes from a page of another site")
