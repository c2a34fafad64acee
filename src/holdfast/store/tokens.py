"""Tokens: a call with the same token takes effect once; see `lua/call.lua`.

A client repeats a call whose reply was lost with the same token. So can the client of a client, if it names a key:
then the tokens, and the ids of new jobs, follow from the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

from holdfast.names import new_id

_LENGTH = 32  # characters

_derived: ContextVar[Iterator[str] | None] = ContextVar("derived tokens", default=None)


@contextmanager
def repeatable(key: str | None) -> Iterator[None]:
    """Derive the tokens of the calls that are made meanwhile from a key, if there is one.

    The same calls again with the same key change nothing, and have the same replies.
    """
    token = _derived.set(None if key is None else _derive(key))
    try:
        yield
    finally:
        _derived.reset(token)


def _derive(key: str) -> Iterator[str]:
    for number in count():
        yield hashlib.blake2b(f"{number}\n{key}".encode("utf-8", "replace"), digest_size=_LENGTH // 2).hexdigest()


def is_repeatable() -> bool:
    return _derived.get() is not None


def new_token() -> str:
    """Return a new token, or the next one of the key."""
    derived = _derived.get()
    return new_id() if derived is None else next(derived)
