"""Sessions: cookies that say who signed in and until when, signed with the key of the file of users.

    ID.EXPIRES.NAME.SIGNATURE

The signature covers the stored password, too: another password ends all sessions of the user. Nothing is stored but
the ids of sessions that were signed out before their end, so sessions survive a restart, and several servers may share
the file; a session that was signed out at one of them ends at the others when it expires.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import NamedTuple

MAX_SIGNED_OUT = 1_000  # of each user: nobody can have those of another forgotten


class Session(NamedTuple):
    id: str
    expires: int  # seconds since 1970
    name: str
    signature: str

    @property
    def text(self) -> str:
        return f"{self.unsigned}.{self.signature}"

    @property
    def unsigned(self) -> str:
        return f"{self.id}.{self.expires}.{urlsafe_b64encode(self.name.encode()).decode().rstrip('=')}"


class Sessions:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._signed_out: dict[str, dict[str, int]] = {}  # when they expire, by id, by user

    def new(self, name: str, key: bytes, password: str, seconds: int) -> Session:
        session = Session(secrets.token_urlsafe(16), int(self._now()) + seconds, name, "")
        return session._replace(signature=_sign(session, key, password))

    def is_valid(self, session: Session, key: bytes, password: str) -> bool:
        return (
            hmac.compare_digest(session.signature.encode(), _sign(session, key, password).encode())
            and session.expires > self._now()
            and session.id not in self._signed_out.get(session.name, ())
        )

    def sign_out(self, session: Session) -> None:
        """End a valid session."""
        now = self._now()
        found = {id: expires for id, expires in self._signed_out.get(session.name, {}).items() if expires > now}
        if len(found) >= MAX_SIGNED_OUT:  # forget the one that expires first
            del found[min(found, key=found.__getitem__)]
        self._signed_out[session.name] = {**found, session.id: session.expires}


def read_session(text: str) -> Session | None:
    """Read a cookie. Its content is trusted only after `is_valid`."""
    parts = text.split(".")
    if len(parts) != 4 or len(text) > 1000 or not text.isascii():
        return None
    id, expires, name, signature = parts
    try:
        decoded = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        session = Session(id, int(expires), decoded, signature)
    except ValueError:
        return None
    return session if session.text == text else None


def _sign(session: Session, key: bytes, password: str) -> str:
    covered = f"{session.unsigned}.{password}".encode()
    return urlsafe_b64encode(hmac.digest(key, covered, hashlib.sha256)).decode().rstrip("=")
