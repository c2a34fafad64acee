"""The file of users and tokens, in TOML. `holdfast web users` and `holdfast web tokens` write entries of it.

    hosts = ["jobs.example.org"]        names of this server; without them it answers to all

    [users.ada]
    role = "operator"
    queues = ["mail", "video-*"]        without it: all
    password = "scrypt:..."

    [tokens.prometheus]
    role = "viewer"
    scope = "metrics"
    hash = "..."
    expires = 2030-01-01T00:00:00Z

    [proxy]
    user_header = "X-Forwarded-User"    names the user, if the request comes from a trusted proxy
    role = "viewer"                     of users without an entry; without it they are refused

It is read again when it has changed. Only its owner may read it, or a group that root has given it to.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import tomllib
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from holdfast.errors import Invalid
from holdfast.units import milliseconds
from holdfast.web.security.guard import host_name
from holdfast.web.security.passwords import check_stored_password
from holdfast.web.security.users import Proof, User, check_queues, check_token_scope

MAX_BYTES = 1 << 20
SESSION, MIN_SESSION, MAX_SESSION = "12h", 60_000, 90 * 86_400_000  # the latter in milliseconds
GIVEN_ROLES = ("viewer", "operator", "admin")

GivenRole = Literal["viewer", "operator", "admin"]

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,60}", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9-]{1,60}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Rights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rights of a user or a token."""

    role: GivenRole
    queues: list[str] | None = None
    sees_data: bool | None = None

    def __post_init__(self) -> None:
        if self.queues is not None:
            check_queues(self.queues)

    def user(self, name: str, by: Proof, scope: str | None = None) -> User:
        queues = None if self.queues is None else tuple(self.queues)
        return User(name, self.role, queues, self.sees_data, by, scope)


class UserEntry(Rights, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A user; one without a password comes through a proxy."""

    password: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.password is not None:
            check_stored_password(self.password)


class TokenEntry(Rights, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A token, of which only the hash is stored."""

    hash: str
    scope: str | None = None
    expires: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _HASH.fullmatch(self.hash):
            raise Invalid("hash must be the SHA-256 of a token, 64 hexadecimal digits")
        check_token_scope(self.scope)

    def is_expired(self, now: float) -> bool:
        return self.expires is not None and self.expires.timestamp() <= now


class ProxyEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a trusted proxy names users, and the rights of those without an entry."""

    user_header: str
    role: GivenRole | None = None
    queues: list[str] | None = None
    sees_data: bool | None = None

    def __post_init__(self) -> None:
        if not _HEADER.fullmatch(self.user_header):
            raise Invalid(f"user_header is {self.user_header!r}; expected the name of a header")
        if self.role is None and (self.queues is not None or self.sees_data is not None):
            raise Invalid("queues and sees_data are those of users without an entry, who need a role, too")
        _ = self.rights

    @property
    def rights(self) -> Rights | None:
        if self.role is None:
            return None
        return Rights(role=self.role, queues=self.queues, sees_data=self.sees_data)


class Entries(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The content of the file."""

    hosts: list[str] = []
    key: str | None = None  # signs sessions; without it they end with the server
    session: str = SESSION  # how long one lasts
    users: dict[str, UserEntry] = {}
    tokens: dict[str, TokenEntry] = {}
    proxy: ProxyEntry | None = None

    def __post_init__(self) -> None:
        for name in (*self.users, *self.tokens):
            check_name(name)
        if both := sorted(self.users.keys() & self.tokens.keys()):
            raise Invalid(f"{both[0]} is a user and a token; logs must tell them apart")
        for host in self.hosts:
            if host_name(host) != host:
                raise Invalid(f"hosts has {host!r}; expected a name in lower case, without a port")
        if self.proxy and not self.hosts:
            raise Invalid(
                "user_header needs hosts, the names of this server: a page whose name was bound to this machine could"
                " send the header"
            )
        if self.key is not None and len(self.key) < 32:
            raise Invalid("key is too short; remove it, and the next `holdfast web users add` writes another")
        _ = self.session_seconds

    @property
    def session_seconds(self) -> int:
        return milliseconds(self.session, what="session", minimum=MIN_SESSION, maximum=MAX_SESSION) // 1000

    @cached_property
    def tokens_by_hash(self) -> Mapping[str, tuple[str, TokenEntry]]:
        return {entry.hash: (name, entry) for name, entry in self.tokens.items()}


class AuthFile:
    """The file, which is read when it is used for the first time, and again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._entries = Entries()
        self._key = secrets.token_bytes(32)

    def entries(self) -> Entries:
        """Return the entries as they are now.

        Raises:
            Invalid: the file cannot be read, is malformed, or others may read it.
        """
        seen = _version(self.path)
        if seen is None or seen != self._seen:
            self._seen = None
            self._entries = read_entries(self.path)
            self._seen = seen
        return self._entries

    def signing_key(self) -> bytes:
        key = self.entries().key
        return key.encode() if key else self._key


def read_entries(path: Path) -> Entries:
    """Read the file; raise Invalid if it is malformed or not safe."""
    try:
        with path.open("rb") as file:
            check_mode(path, os.fstat(file.fileno()))
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from None
    if len(text) > MAX_BYTES:
        raise Invalid(f"{path} has more than 1 MiB; expected a TOML file with users and tokens")
    return parse_entries(text, path)


def parse_entries(text: bytes, path: Path) -> Entries:
    try:
        found: dict[str, Any] = tomllib.loads(text.decode())
        return msgspec.convert(found, Entries)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}") from None
    except (msgspec.ValidationError, Invalid) as error:
        raise Invalid(f"{path}: {error}") from None


def check_mode(path: Path, found: os.stat_result) -> None:
    """Refuse a file that others may read or write; passwords can be guessed from what is stored of them.

    A group may read a file of root's: so systemd and Kubernetes hand out secrets.
    """
    if found.st_uid not in (0, os.geteuid()):
        raise Invalid(f"{path} belongs to another user, who could change it; it must belong to you, or to root")
    allowed = 0o740 if found.st_uid == 0 else 0o700
    if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o777 & ~allowed:
        raise Invalid(f"others may read {path} (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 {path}")


def check_name(name: str) -> str:
    """Return the name of a user or a token, or raise Invalid."""
    if _NAME.fullmatch(name):
        return name
    raise Invalid(f"the name is {name[:100]!r}; it must be 1 to 60 characters of A-Z a-z 0-9 _ . @ -")


def _version(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns
