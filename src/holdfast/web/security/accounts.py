"""Accounts: finds the user of a request by a token, by the header of a trusted proxy, or by the cookie of a session.

In this order: a request with a token of ours is judged by it alone. Cookies count where nobody can read them on their
way: over https, and on loopback.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import Invalid
from holdfast.web.paths import Scope, root_of
from holdfast.web.problems import Problem
from holdfast.web.security.attempts import Attempts, network_of
from holdfast.web.security.auth_file import AuthFile, Entries
from holdfast.web.security.passwords import TOKEN_PREFIX, hash_token, is_password
from holdfast.web.security.proxies import PROXIED
from holdfast.web.security.sessions import Session, Sessions, read_session
from holdfast.web.security.users import User

log = logging.getLogger("holdfast.web")

THREADS, MAX_WAITING = 2, 16  # that compute passwords: 32 MiB each
MAX_NAME = 200  # characters of the name that a proxy reports


class Accounts:
    """The users and tokens of a file, as the `auth` of an application."""

    def __init__(
        self,
        path: Path,
        *,
        on_loopback: bool = False,
        insecure_http: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`on_loopback`: the server can only be reached from this machine. `now` returns seconds since 1970."""
        self._file = AuthFile(path)
        self._on_loopback, self._insecure_http, self._now = on_loopback, insecure_http, now
        self._sessions = Sessions(now)
        self._clients = Attempts(10, interval=30)
        self._names = Attempts(50, interval=20)
        self._threads = ThreadPoolExecutor(THREADS, "holdfast-passwords")
        self._waiting = 0

    def __call__(self, scope: Scope) -> User | None:
        """Return the user of a request; None: it has no valid credentials."""
        entries, request = self.entries(), Request(scope)
        token = _token_of(request)
        if token is not None:
            return self._user_of_token(entries, token)
        if entries.proxy and scope.get(PROXIED):
            named = request.headers.getlist(entries.proxy.user_header)
            if named not in ([], [""]):
                return _user_of_proxy(entries, named)
        session = self._session_of(request, entries)
        return entries.users[session.name].user(session.name, "session") if session else None

    def entries(self) -> Entries:
        try:
            return self._file.entries()
        except Invalid as error:
            log.error("nobody can sign in: %s", error)
            raise Problem(503, "USERS", "the file of users cannot be read; the log of the server says why") from None

    def _user_of_token(self, entries: Entries, token: str) -> User | None:
        name, entry = entries.tokens_by_hash.get(hash_token(token), ("", None))
        return entry.user(name, "token", entry.scope) if entry and not entry.is_expired(self._now()) else None

    # Signing in

    def may_sign_in(self, scope: Scope) -> bool:
        """Return whether nobody can read passwords and cookies on their way, or this was chosen."""
        return scope["scheme"] == "https" or self._insecure_http or (self._on_loopback and not scope.get(PROXIED))

    async def sign_in(self, request: Request, name: str, password: str) -> tuple[User, Session]:
        """Return the user with this name and password, and a new session; raise Problem if there is none."""
        if not self.may_sign_in(request.scope):
            raise Problem(403, "INSECURE", "passwords are accepted only over https; programs may send a token")
        client = network_of(request.client.host) if request.client else ""
        for attempts, key in ((self._clients, client), (self._names, name)):
            if wait := attempts.take(key):
                headers = {"Retry-After": str(int(wait) + 1)}
                raise Problem(429, "ATTEMPTS", f"too many attempts; wait {int(wait) + 1} seconds", headers)
        entry = self.entries().users.get(name)
        if not await self._is_password(entry.password if entry else None, password) or not entry:
            raise Problem(401, "UNAUTHENTICATED", "the name or the password is wrong")
        self._clients.give_back(client)
        self._names.give_back(name)
        seconds = self.entries().session_seconds
        session = self._sessions.new(name, self._file.signing_key(), entry.password or "", seconds)
        return entry.user(name, "session"), session

    async def _is_password(self, stored: str | None, password: str) -> bool:
        if self._waiting >= MAX_WAITING:
            raise Problem(503, "BUSY", "too many people sign in at once; try again", {"Retry-After": "2"})
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, is_password, stored, password)
        finally:
            self._waiting -= 1

    def sign_out(self, request: Request) -> None:
        """End the session of a request, if it has one."""
        session = self._session_of(request, self.entries())
        if session:
            self._sessions.sign_out(session)

    def _session_of(self, request: Request, entries: Entries) -> Session | None:
        cookie = request.cookies.get(_cookie_name(request))
        session = read_session(cookie) if cookie and self.may_sign_in(request.scope) else None
        entry = entries.users.get(session.name) if session else None
        if not session or not entry or not entry.password:
            return None
        return session if self._sessions.is_valid(session, self._file.signing_key(), entry.password) else None

    def set_cookie(self, request: Request, response: Response, session: Session) -> None:
        response.set_cookie(
            _cookie_name(request), session.text, max_age=session.expires - int(self._now()), path=_cookie_path(request),
            secure=_is_secure(request), httponly=True, samesite="strict",
        )  # fmt: skip

    def delete_cookie(self, request: Request, response: Response) -> None:
        response.delete_cookie(
            _cookie_name(request), path=_cookie_path(request), secure=_is_secure(request), httponly=True,
            samesite="strict",
        )  # fmt: skip


def _token_of(request: Request) -> str | None:
    """Return the token of a request; None if it has none of ours: a proxy may pass on what it uses itself."""
    sent = request.headers.getlist("authorization")
    for each in sent:
        kind, _, token = each.partition(" ")
        if kind.lower() == "bearer" and token.strip().startswith(TOKEN_PREFIX):
            return token.strip() if len(sent) == 1 else ""
    return None


def _user_of_proxy(entries: Entries, named: list[str]) -> User:
    name = named[0].strip()
    if len(named) > 1 or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise Problem(403, "FORBIDDEN", "the proxy names no user, or several")
    entry = entries.users.get(name)
    if entry:
        return entry.user(name, "proxy")
    if entries.proxy and entries.proxy.rights and name not in entries.tokens:
        return entries.proxy.rights.user(name, "proxy")
    raise Problem(403, "FORBIDDEN", "the proxy names a user without rights here")


# Cookies


def _is_secure(request: Request) -> bool:
    return bool(request.scope["scheme"] == "https")


def _cookie_name(request: Request) -> str:
    """Return the name of the cookie. Its prefix has browsers check that only this host set it, over https.

    Cookies of another port of the same host are sent here, too, so plain http has the port in the name; and
    applications below several paths of a host have a name each.
    """
    place = re.sub("[^A-Za-z0-9]+", "-", root_of(request.scope))
    if _is_secure(request):
        return f"__Host-holdfast{place}"
    server = request.scope.get("server")
    return f"holdfast-{server[1] if server else 0}{place}"


def _cookie_path(request: Request) -> str:
    """Return the path of the cookie: browsers accept the prefix `__Host-` only with `/`."""
    return "/" if _is_secure(request) else root_of(request.scope) or "/"
