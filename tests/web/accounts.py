"""A file of users and tokens for tests, and requests with them."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.web.security.auth_edit import set_entry
from holdfast.web.security.passwords import hash_token, new_token

PASSWORD = "correct horse battery"  # noqa: S105


def quick_password(password: str = PASSWORD) -> str:
    """Return a password as it is stored, with parameters that take no time."""
    salt = b"salt-of-a-test"
    found = hashlib.scrypt(password.encode(), salt=salt, n=16, r=8, p=1, dklen=32)
    return ":".join(("scrypt", "4", "8", "1", b64encode(salt).decode(), b64encode(found).decode()))


class AuthFile:
    """A file that the test writes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "auth.toml"

    def add_user(self, name: str, role: str = "viewer", **rights: object) -> None:
        set_entry(self.path, "users", name, {"role": role, "password": quick_password(), **rights})

    def add_token(self, name: str, role: str = "viewer", *, days: int = 1, **rights: object) -> Mapping[str, str]:
        """Add a token, and return the headers of requests with it."""
        token = new_token()
        expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
        set_entry(self.path, "tokens", name, {"role": role, "hash": hash_token(token), "expires": expires, **rights})
        return bearer(token)

    def add_text(self, text: str) -> None:
        """Add text before the first table."""
        known = self.path.read_text() if self.path.exists() else ""
        self.path.touch(0o600)
        self.path.write_text(f"{text}\n{known}")


def bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}
