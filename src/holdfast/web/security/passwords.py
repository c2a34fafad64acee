"""Passwords and tokens: what is stored of them, and whether a given one is the same.

A password is stored as `scrypt:LOG2N:R:P:SALT:HASH`. A token has 256 random bits, so its SHA-256 is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import unicodedata
from base64 import b64decode, b64encode
from functools import cache

from holdfast.errors import Invalid

LOG2N, R, P = 15, 8, 3  # 32 MiB and about 0.2 s
MAX_LOG2N, MAX_R, MAX_P = 20, 16, 16
MIN_PASSWORD, MAX_PASSWORD = 10, 1000  # characters
TOKEN_PREFIX = "hft_"  # noqa: S105 - the beginning of every token, so that scanners of leaked secrets can find them


def check_password(password: str) -> str:
    """Return a password that somebody chose; raise Invalid if it is too short or too long."""
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise Invalid(f"the password has {len(password)} characters; expected {MIN_PASSWORD} to {MAX_PASSWORD:,}")
    return password


def hash_password(password: str) -> str:
    salt = os.urandom(16)
    parts = (salt, _scrypt(password, salt, LOG2N, R, P))
    return ":".join(("scrypt", str(LOG2N), str(R), str(P), *(b64encode(part).decode() for part in parts)))


def check_stored_password(stored: str) -> str:
    """Return a stored password; raise Invalid if it is malformed."""
    _read(stored)
    return stored


def is_password(stored: str | None, password: str) -> bool:
    """Return whether a password is the stored one. It takes as long if there is none."""
    log2n, r, p, salt, expected = _read(any_password() if stored is None else stored)
    return hmac.compare_digest(_scrypt(password, salt, log2n, r, p), expected) and stored is not None


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@cache
def any_password() -> str:
    """Return a stored password that nobody has, to be compared with where there is none."""
    return hash_password(secrets.token_urlsafe())


def _read(stored: str) -> tuple[int, int, int, bytes, bytes]:
    kind, *rest = stored.split(":")
    try:
        log2n, r, p = map(int, rest[:3])
        salt, expected = (b64decode(part, validate=True) for part in rest[3:])
    except ValueError:
        log2n = r = p = 0
        salt = expected = b""
    within = 0 < log2n <= MAX_LOG2N and 0 < r <= MAX_R and 0 < p <= MAX_P
    if kind != "scrypt" or not within or len(salt) < 8 or len(expected) != 32:
        raise Invalid("a password is not one that `holdfast web users` has stored")
    return log2n, r, p, salt, expected


def _scrypt(password: str, salt: bytes, log2n: int, r: int, p: int) -> bytes:
    text = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    memory = (128 * r << log2n) + (1 << 20)
    return hashlib.scrypt(text, salt=salt, n=1 << log2n, r=r, p=p, maxmem=2 * memory, dklen=32)
