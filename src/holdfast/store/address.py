"""The address of the store: a URL, or the home of an embedded server.

    redis://[[user]:password@]host[:port][/db][?option=value&...]    or valkey://
    rediss://...                                                     the same with TLS, or valkeys://
    unix://[[user]:password@]/path[?db=1&...]                        a socket on this machine
    redis+sentinel://[...@]host[:port],host[:port]/service[/db]      the primary that Sentinels name
    redis+cluster://[...@]host[:port],host[:port]                    the node of a cluster that has the namespace

An invalid URL is refused as soon as it is given, by a message that never quotes it: any part may be a password.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from holdfast import errors
from holdfast.names import DEFAULT_NAMESPACE

KINDS = {"redis": "tcp", "valkey": "tcp", "rediss": "tls", "valkeys": "tls", "unix": "unix"}
TOPOLOGIES = {"sentinel": 26379, "cluster": 6379}  # that a scheme names after a plus, with the port of their seeds
SCHEMES = "redis://, rediss://, valkey://, valkeys:// or unix://, or redis+sentinel:// or redis+cluster://"
MAX_SEEDS = 100
ENCODE = "in a password, write % as %25, / as %2F, # as %23, ? as %3F and @ as %40"
_SECRET = ("username", "password", "ssl_password", "sentinel_username", "sentinel_password")


class Topology(NamedTuple):
    """Servers that know where the primary is: Sentinels, or nodes of a cluster. `access` is for Sentinels only."""

    name: str  # sentinel or cluster
    seeds: tuple[tuple[str, int], ...]
    service: str
    access: dict[str, str]


class Target(NamedTuple):
    """What to connect to: its kind (`tcp`, `tls`, `unix`, `embedded`), and the options for the Redis client.

    A server at a URL is trusted, because the user chose the URL. At the socket of an embedded server only processes of
    `users` are. With a topology, the options have no host and port.
    """

    kind: str
    options: dict[str, Any]
    topology: Topology | None = None


@dataclass(frozen=True, repr=False)
class Address:
    """The address of the store: a URL, or the home of an embedded server."""

    url: str | None
    home: Path | None
    namespace: str = DEFAULT_NAMESPACE
    timeout: float = 5.0

    @classmethod
    def find(cls, url: str | None = None, *, namespace: str = DEFAULT_NAMESPACE, timeout: float = 5.0) -> Address:
        """Use the given URL, HOLDFAST_URL, or the embedded server of this project.

        Raises:
            Invalid: it is not a valid URL of a store.
        """
        url = url or os.environ.get("HOLDFAST_URL") or None
        if url is None:
            from holdfast.server.home import find_home

            return cls(None, find_home(), namespace, timeout)
        read_url(url)
        return cls(url, None, namespace, timeout)

    def __repr__(self) -> str:
        return f"<Address {self.display}, namespace {self.namespace}>"

    @property
    def key(self) -> str:
        """The one key that every call names, so that a cluster routes it."""
        return f"hf:{{{self.namespace}}}:meta"

    @property
    def topology(self) -> str:
        """What finds the server: `sentinel`, `cluster`, or nothing."""
        return (self.url or "").partition("://")[0].lower().partition("+")[2]

    @property
    def display(self) -> str:
        """The address for messages, without a password."""
        if self.url is None:
            return f"the embedded server in {self.home}"
        parts = urlsplit(self.url)
        options = [each for each in parts.query.split("&") if unquote(each.partition("=")[0]) not in ("", *_SECRET)]
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"{where}?{'&'.join(options)}" if options else where

    def connect_to(self) -> Target:
        """Return what to connect to; an embedded server is started unless it runs."""
        if self.home is None:
            return read_url(str(self.url))
        from holdfast.server import server
        from holdfast.server.home import trusted_users

        return Target("embedded", {"path": str(server.ensure(self.home)), "users": trusted_users(self.home)})


def read_url(url: str) -> Target:
    """Parse the URL of a store.

    Raises:
        Invalid: it is not a valid URL of a store.
    """
    if not isinstance(url, str):
        raise _invalid(f"it must be text such as redis://localhost:6379, not {type(url).__name__}")
    scheme, separator, _ = url.partition("://")
    base, plus, topology = scheme.lower().partition("+")
    kind = KINDS.get(base) if separator else None
    if kind is None or (plus and (kind == "unix" or topology not in TOPOLOGIES)):
        raise _invalid(f"it must begin with {SCHEMES}{_unknown_scheme(url)}")
    try:
        parts = _split(url)
        if not topology:
            return Target(
                kind, {**_read_location(kind, parts), **_read_user(parts), **_read_options(kind, parts.query)}
            )
        seeds, service, database = _read_seeds(parts, topology)
        options = _read_options(kind, parts.query, topology)
        access = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
        known = {name: value for name, value in access.items() if value}
        return Target(kind, {**database, **_read_user(parts), **options}, Topology(topology, seeds, service, known))
    except errors.Invalid as error:
        raise errors.Invalid(f"{error}; {ENCODE}" if set(url) & set("@#") else str(error)) from None


def socket_url(path: str) -> str:
    """Return the URL of a socket, with the special characters of its path escaped."""
    return f"unix://{quote(path)}"


def mask(text: str) -> str:
    """Hide the passwords of URLs in a text, whether the URLs are valid or not."""
    text = re.sub(rf"(?i)\b((?:{'|'.join(KINDS)})(?:\+[a-z]+)?)://\S*@", r"\1://***@", text)
    text = re.sub(r"://[^\s:]*:\S*@", "://***@", text)  # also with an unknown scheme
    return re.sub(r"(?i)([?&](?:ssl_|sentinel_)?password=)[^\s&'\"]+", r"\1***", text)


def _invalid(why: str) -> errors.Invalid:
    return errors.Invalid(f"invalid store URL: {why}")


def _unknown_scheme(url: str) -> str:
    """Quote the scheme of a URL; a URL without one may begin with a password."""
    found = re.match(r"([a-z][a-z0-9+.-]{0,20})://", url, re.I)
    return f", not {found[1]}://" if found else ""


def _split(url: str) -> SplitResult:
    if "#" in url:
        raise _invalid("it contains a #")
    try:
        return urlsplit(url)
    except ValueError:  # its message quotes the URL
        raise _invalid("its host cannot be parsed; put an IPv6 address in brackets: redis://[::1]:6379") from None


def _read_location(kind: str, parts: SplitResult) -> dict[str, Any]:
    host = parts.netloc.rpartition("@")[2]
    if kind == "unix":
        if host or len(parts.path) < 2:
            raise _invalid("unix:// needs the absolute path of a socket: unix:///run/valkey.sock")
        return {"path": unquote(parts.path)}
    if "@" in parts.path + parts.query:
        raise _invalid("it contains an @ after its host")
    location: dict[str, Any] = {"host": _read_host(parts.hostname)} if parts.hostname else {}
    if port := _read_port(parts):
        location["port"] = port
    if database := parts.path.strip("/"):
        location["db"] = _read_whole(database, "its database, as 0 in redis://localhost:6379/0,")
    return location


def _read_seeds(parts: SplitResult, topology: str) -> tuple[tuple[tuple[str, int], ...], str, dict[str, Any]]:
    """Return the seeds of a topology, the name of the service that Sentinels watch, and the database."""
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if "@" in parts.path + parts.query:
        raise _invalid("it contains an @ after its hosts")
    if len(hosts) > MAX_SEEDS:
        raise _invalid(f"it has {len(hosts)} hosts (limit {MAX_SEEDS})")
    seeds = []
    for host in hosts:
        seed = _split(f"//{host}")
        if not seed.hostname:
            raise _invalid(
                f"it must name hosts, separated by commas: redis+{topology}://host1,host2{_EXAMPLES[topology]}"
            )
        seeds.append((_read_host(seed.hostname), _read_port(seed) or TOPOLOGIES[topology]))
    service, _, database = parts.path.strip("/").partition("/")
    if topology == "cluster":
        if parts.path.strip("/") not in ("", "0"):
            raise _invalid("a cluster has one database, 0, so nothing may follow its hosts")
        return tuple(seeds), "", {}
    if not service:
        raise _invalid(
            f"it must name the service that the Sentinels watch: redis+sentinel://host1,host2{_EXAMPLES[topology]}"
        )
    found = {"db": _read_whole(database, "its database, as 0 in /service/0,")} if database else {}
    return tuple(seeds), unquote(service), found


_EXAMPLES = {"sentinel": "/mymaster", "cluster": ""}


def _read_host(quoted: str) -> str:
    host = unquote(quoted)
    try:
        host.encode("idna")  # as a name lookup does
    except UnicodeError:
        raise _invalid("its host must be a name with 1 to 63 characters between dots") from None
    return host


def _read_port(parts: SplitResult) -> int | None:
    try:
        port = parts.port
    except ValueError:  # its message quotes the URL
        port = 0
    if port == 0:
        raise _invalid("its port must be a number from 1 to 65535")
    return port


def _read_user(parts: SplitResult) -> dict[str, Any]:
    given = {"username": parts.username, "password": parts.password}
    return {name: unquote(value) for name, value in given.items() if value}


def _read_options(kind: str, query: str, topology: str = "") -> dict[str, Any]:
    known = {**_OPTIONS[kind], **_TOPOLOGY_OPTIONS.get(topology, {})}
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise _invalid("its options must be name=value, joined by &") from None
    read: dict[str, Any] = {}
    for name, value in given:
        if name not in (*known, *_IGNORED):
            raise _invalid(_describe_unknown_option(name, known))
        if name in known:
            read[name] = known[name](value, f"option {name}")
    return read


def _describe_unknown_option(name: str, known: Iterable[str]) -> str:
    if name in _OPTIONS["tls"]:
        return f"option {name} needs {'rediss:// or valkeys://' if name.startswith('ssl_') else 'a host'}"
    shown = f" {name}" if re.fullmatch("[a-z_]{1,40}", name) else ""
    return f"unknown option{shown}; expected {', '.join(known)}"


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
    """Also accept the names that Python and Celery use: CERT_NONE."""
    requirement = value.lower().removeprefix("cert_")
    if requirement not in ("none", "optional", "required"):
        raise _invalid(f"{what} must be none, optional or required")
    return requirement


_COMMON_OPTIONS: dict[str, Callable[[str, str], Any]] = {
    "db": _read_whole, "username": _read_text, "password": _read_text, "client_name": _read_text,
    "socket_timeout": _read_seconds, "socket_connect_timeout": _read_seconds,
}  # fmt: skip
_TCP_OPTIONS = {**_COMMON_OPTIONS, "socket_keepalive": _read_flag}
_TLS_OPTIONS = {
    **_TCP_OPTIONS,
    "ssl_ca_certs": _read_text, "ssl_ca_path": _read_text, "ssl_ca_data": _read_text, "ssl_certfile": _read_text,
    "ssl_keyfile": _read_text, "ssl_password": _read_text, "ssl_cert_reqs": _read_requirement,
    "ssl_check_hostname": _read_flag, "ssl_min_version": _read_version, "ssl_ciphers": _read_text,
}  # fmt: skip
_TOPOLOGY_OPTIONS = {"sentinel": {"sentinel_username": _read_text, "sentinel_password": _read_text}}
_OPTIONS = {"unix": _COMMON_OPTIONS, "tcp": _TCP_OPTIONS, "tls": _TLS_OPTIONS}
# Options of URLs that were written for other programs; they have no effect here.
_IGNORED = (
    "protocol", "decode_responses", "encoding", "encoding_errors", "health_check_interval", "max_connections",
    "retry_on_timeout", "retry_on_error", "timeout",
)  # fmt: skip
