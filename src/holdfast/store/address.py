"""Where the store is: a URL, or the home of an embedded server.

    redis://[[user]:password@]host[:port][/db][?option=value&...]    or valkey://
    rediss://...                                                     the same with TLS, or valkeys://
    unix://[[user]:password@]/path[?db=1&...]                        a socket of this machine

What is wrong with a URL is said when it is given, and not with its own words: any part of it may be a password.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from holdfast import errors

KINDS = {"redis": "tcp", "valkey": "tcp", "rediss": "tls", "valkeys": "tls", "unix": "unix"}
SCHEMES = "redis://, rediss://, valkey://, valkeys:// or unix://"
ENCODE = "in a password, write % as %25, / as %2F, # as %23, ? as %3F and @ as %40"
_SECRET = ("username", "password", "ssl_password")


class Target(NamedTuple):
    """What to connect to: by `tcp`, `tls` or `unix`, and with which options of the Redis client.

    Whoever listens at a URL is trusted, for the user chose it. At the socket of an `embedded` server only `users` are.
    """

    kind: str
    options: dict[str, Any]


@dataclass(frozen=True, repr=False)
class Address:
    """Where the store is: a URL, or the home of an embedded server."""

    url: str | None
    home: Path | None
    namespace: str = "default"
    timeout: float = 5.0

    @classmethod
    def find(cls, url: str | None = None, *, namespace: str = "default", timeout: float = 5.0) -> Address:
        """Use the URL given, or HOLDFAST_URL, or the embedded server of this project.

        Raises:
            Invalid: it is no URL of a store.
        """
        url = url or os.environ.get("HOLDFAST_URL") or None
        if url is None:
            from holdfast.server.home import find_home

            return cls(None, find_home(), namespace, timeout)
        read_url(url)
        return cls(url, None, namespace, timeout)

    def __repr__(self) -> str:
        return f"<Address {self.words}, namespace {self.namespace}>"

    @property
    def key(self) -> str:
        """The one key that routes every call."""
        return f"hf:{{{self.namespace}}}:meta"

    @property
    def words(self) -> str:
        """The address as it may be shown: without a password."""
        if self.url is None:
            return f"the embedded server in {self.home}"
        parts = urlsplit(self.url)
        options = [each for each in parts.query.split("&") if unquote(each.partition("=")[0]) not in ("", *_SECRET)]
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"{where}?{'&'.join(options)}" if options else where

    def connect_to(self) -> Target:
        """Return what to connect to, starting the embedded server if it is not there."""
        if self.home is None:
            return read_url(str(self.url))
        from holdfast.server import server
        from holdfast.server.home import trusted_users

        return Target("embedded", {"path": str(server.ensure(self.home)), "users": trusted_users(self.home)})


def read_url(url: str) -> Target:
    """Read the URL of a store.

    Raises:
        Invalid: it is none.
    """
    if not isinstance(url, str):
        raise _invalid(f"it must be text such as redis://localhost:6379, not {type(url).__name__}")
    kind = KINDS.get(url.partition("://")[0].lower()) if "://" in url else None
    if kind is None:
        raise _invalid(f"it must begin with {SCHEMES}{_unknown_scheme(url)}")
    try:
        parts = _split(url)
        return Target(kind, {**_read_place(kind, parts), **_read_user(parts), **_read_options(kind, parts.query)})
    except errors.Invalid as error:
        raise errors.Invalid(f"{error}; {ENCODE}" if set(url) & set("@#") else str(error)) from None


def socket_url(path: str) -> str:
    """Return the URL of a socket, in which no character of its path means anything else."""
    return f"unix://{quote(path)}"


def mask(text: str) -> str:
    """Return text in which the passwords of URLs are not shown, be they right or wrong."""
    text = re.sub(rf"(?i)\b({'|'.join(KINDS)})://\S*@", r"\1://***@", text)
    text = re.sub(r"://[^\s:]*:\S*@", "://***@", text)  # also where the scheme is what is wrong
    return re.sub(r"(?i)([?&](?:ssl_)?password=)[^\s&'\"]+", r"\1***", text)


def _invalid(why: str) -> errors.Invalid:
    return errors.Invalid(f"invalid store URL: {why}")


def _unknown_scheme(url: str) -> str:
    """Say how a URL begins, if that is a scheme: without one it may begin with a password."""
    found = re.match(r"([a-z][a-z0-9+.-]{0,20})://", url, re.I)
    return f", not {found[1]}://" if found else ""


def _split(url: str) -> SplitResult:
    if "#" in url:
        raise _invalid("there is a # in it")
    try:
        return urlsplit(url)
    except ValueError:  # which quotes it
        raise _invalid("its host cannot be read; put an IPv6 address in brackets: redis://[::1]:6379") from None


def _read_place(kind: str, parts: SplitResult) -> dict[str, Any]:
    host = parts.netloc.rpartition("@")[2]
    if kind == "unix":
        if host or len(parts.path) < 2:
            raise _invalid("unix:// needs the absolute path of a socket: unix:///run/valkey.sock")
        return {"path": unquote(parts.path)}
    if "@" in parts.path + parts.query:
        raise _invalid("there is an @ behind its host")
    place: dict[str, Any] = {"host": _read_host(parts.hostname)} if parts.hostname else {}
    if port := _read_port(parts):
        place["port"] = port
    if database := parts.path.strip("/"):
        place["db"] = _read_whole(database, "its database, as 0 in redis://localhost:6379/0,")
    return place


def _read_host(quoted: str) -> str:
    host = unquote(quoted)
    try:
        host.encode("idna")  # as is done to look it up
    except UnicodeError:
        raise _invalid("its host is no name: each part of one, between dots, has 1 to 63 characters") from None
    return host


def _read_port(parts: SplitResult) -> int | None:
    try:
        port = parts.port
    except ValueError:  # which quotes it
        port = 0
    if port == 0:
        raise _invalid("its port must be a number from 1 to 65535")
    return port


def _read_user(parts: SplitResult) -> dict[str, Any]:
    given = {"username": parts.username, "password": parts.password}
    return {name: unquote(value) for name, value in given.items() if value}


def _read_options(kind: str, query: str) -> dict[str, Any]:
    known = _OPTIONS[kind]
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise _invalid("its options must be name=value, joined by &") from None
    read: dict[str, Any] = {}
    for name, value in given:
        if name not in (*known, *_IGNORED):
            raise _invalid(_about_option(name, kind))
        if name in known:
            read[name] = known[name](value, f"option {name}")
    return read


def _about_option(name: str, kind: str) -> str:
    if name in _OPTIONS["tls"]:
        return f"option {name} is for {'rediss:// and valkeys://' if name.startswith('ssl_') else 'a host'} only"
    shown = f" {name}" if re.fullmatch("[a-z_]{1,40}", name) else ""
    return f"there is no option{shown}; there are {', '.join(_OPTIONS[kind])}"


def _read_text(value: str, _: str) -> str:
    return value


def _read_whole(value: str, what: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", value):
        raise _invalid(f"{what} must be a number")
    return int(value)


def _read_version(value: str, what: str) -> int:
    if value not in ("769", "770", "771", "772"):
        raise _invalid(f"{what} must be 771 for TLS 1.2 or 772 for TLS 1.3")
    return int(value)


def _read_seconds(value: str, what: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise _invalid(f"{what} must be a number of seconds")
    return seconds


def _read_flag(value: str, what: str) -> bool:
    flags = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if value.lower() not in flags:
        raise _invalid(f"{what} must be true or false")
    return flags[value.lower()]


def _read_requirement(value: str, what: str) -> str:
    """Also as Python and Celery call them: CERT_NONE."""
    word = value.lower().removeprefix("cert_")
    if word not in ("none", "optional", "required"):
        raise _invalid(f"{what} must be none, optional or required")
    return word


_ANYWHERE: dict[str, Callable[[str, str], Any]] = {
    "db": _read_whole, "username": _read_text, "password": _read_text, "client_name": _read_text,
    "socket_timeout": _read_seconds, "socket_connect_timeout": _read_seconds,
}  # fmt: skip
_OF_TCP = {**_ANYWHERE, "socket_keepalive": _read_flag}
_OF_TLS = {
    **_OF_TCP,
    "ssl_ca_certs": _read_text, "ssl_ca_path": _read_text, "ssl_ca_data": _read_text, "ssl_certfile": _read_text,
    "ssl_keyfile": _read_text, "ssl_password": _read_text, "ssl_cert_reqs": _read_requirement,
    "ssl_check_hostname": _read_flag, "ssl_min_version": _read_version, "ssl_ciphers": _read_text,
}  # fmt: skip
_OPTIONS = {"unix": _ANYWHERE, "tcp": _OF_TCP, "tls": _OF_TLS}
# URLs made for other programs have these. They make no difference here.
_IGNORED = (
    "protocol", "decode_responses", "encoding", "encoding_errors", "health_check_interval", "max_connections",
    "retry_on_timeout", "retry_on_error", "timeout",
)  # fmt: skip
