"""The token of a detached item: text with which any process can renew or end the item.

It identifies the lease: item, attempt, and the executor name that the lease was transferred to. So the store refuses a
stale token like any lost lease. A checksum distinguishes a truncated or mistyped token from a stale one.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TypeVar
from zlib import crc32

import msgspec

from holdfast.errors import Invalid
from holdfast.names import check_id, check_queue, new_id
from holdfast.store.commands import Lease

T = TypeVar("T", bound=msgspec.Struct)

_PREFIX = "item_"  # so that no token looks like a command-line option
_BODY = re.compile(r"[A-Za-z0-9_-]{20,}", re.ASCII)
_EXECUTOR = re.compile(r"detached/[A-Za-z0-9]+\.[0-9]+", re.ASCII)


class Token(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a token."""

    queue: str
    id: str
    attempt: int
    created: int
    executor: str

    def __str__(self) -> str:
        return encode_token(_PREFIX, self)

    @property
    def held(self) -> Lease:
        return Lease(self.executor, self.id, self.attempt)


def new_executor() -> str:
    """Return a new executor name that belongs to no process."""
    return f"detached/{new_id()}.0"


def read_token(text: str) -> Token:
    """Read a token.

    Raises:
        Invalid: it is malformed or damaged.
    """
    token = decode_token(_PREFIX, text, Token)
    if not _EXECUTOR.fullmatch(token.executor):
        raise _damaged(text)
    check_queue(token.queue)
    check_id(token.id)
    return token


def encode_token(prefix: str, token: msgspec.Struct) -> str:
    """Write the contents of a token as text that begins with a prefix."""
    data = msgspec.msgpack.encode(token)
    return prefix + urlsafe_b64encode(crc32(data).to_bytes(4) + data).decode().rstrip("=")


def decode_token(prefix: str, text: str, kind: type[T], *, max_length: int = 600) -> T:
    """Read the contents of a token.

    Raises:
        Invalid: it is malformed or damaged.
    """
    body = text.removeprefix(prefix) if isinstance(text, str) and text.startswith(prefix) else ""
    if len(body) > max_length or not _BODY.fullmatch(body):
        raise Invalid(
            f"expected the token of an item, as returned by item.detach() or `holdfast items claim`, got {_shown(text)}"
        )
    try:
        data = urlsafe_b64decode(body + "==")
        token = msgspec.msgpack.decode(data[4:], type=kind)
    except (ValueError, msgspec.MsgspecError):
        raise _damaged(text) from None
    if crc32(data[4:]).to_bytes(4) != data[:4]:
        raise _damaged(text)
    return token


def _damaged(text: str) -> Invalid:
    return Invalid(f"the token {_shown(text)} is damaged: it was truncated or changed")


def _shown(text: str) -> str:
    return repr(text if len(repr(text)) <= 50 else f"{text!s:.40}...")
