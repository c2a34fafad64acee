"""The token of a detached item: text with which any process can renew or end the item.

It identifies the lease: item, attempt, and the executor name that the lease was transferred to. So the store refuses a
stale token like any lost lease. A checksum distinguishes a truncated or mistyped token from a stale one.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from zlib import crc32

import msgspec

from holdfast.errors import Invalid
from holdfast.names import check_id, check_queue, new_id
from holdfast.store.commands import Lease

_PREFIX = "item_"  # so that no token looks like a command-line option
_TOKEN = re.compile(r"item_[A-Za-z0-9_-]{20,600}", re.ASCII)
_EXECUTOR = re.compile(r"detached/[A-Za-z0-9]+\.[0-9]+", re.ASCII)


class Token(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a token."""

    queue: str
    id: str
    attempt: int
    created: int
    executor: str

    def __str__(self) -> str:
        data = msgspec.msgpack.encode(self)
        return _PREFIX + urlsafe_b64encode(crc32(data).to_bytes(4) + data).decode().rstrip("=")

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
    shown = repr(text if len(repr(text)) <= 50 else f"{text!s:.40}...")
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise Invalid(
            f"expected the token of an item, as returned by item.detach() or `holdfast items claim`, got {shown}"
        )
    try:
        data = urlsafe_b64decode(text.removeprefix(_PREFIX) + "==")
        token = msgspec.msgpack.decode(data[4:], type=Token)
    except (ValueError, msgspec.MsgspecError):
        token = None
    if token is None or crc32(data[4:]).to_bytes(4) != data[:4] or not _EXECUTOR.fullmatch(token.executor):
        raise Invalid(f"the token {shown} is damaged: it was truncated or changed")
    check_queue(token.queue)
    check_id(token.id)
    return token
