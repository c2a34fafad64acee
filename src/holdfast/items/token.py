"""The token of a detached item: text that any process may keep, print and use to renew the item or to end it.

It names the lease, that is the item, its attempt, and the executor to which the lease was handed over. So the store
refuses a token whose lease was lost as it refuses any other. A checksum tells a token that was cut or mistyped from one
that is stale.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from zlib import crc32

import msgspec

from holdfast.errors import Invalid
from holdfast.names import check_id, check_queue, new_id
from holdfast.store.commands import Lease

_PREFIX = "item_"  # so that no token begins with a dash, as an option does
_TOKEN = re.compile(r"item_[A-Za-z0-9_-]{20,600}", re.ASCII)
_EXECUTOR = re.compile(r"detached/[A-Za-z0-9]+\.[0-9]+", re.ASCII)


class Token(msgspec.Struct, frozen=True, array_like=True):
    """What a token says."""

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
    """Return the name of an executor that nobody has, and that is no process."""
    return f"detached/{new_id()}.0"


def read_token(text: str) -> Token:
    """Return what a token says.

    Raises:
        Invalid: it is none, or it is not whole.
    """
    shown = repr(text if len(repr(text)) <= 50 else f"{text!s:.40}...")
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise Invalid(f"{shown} is no token of an item; it is what item.detach() returned, or `holdfast items claim`")
    try:
        data = urlsafe_b64decode(text.removeprefix(_PREFIX) + "==")
        token = msgspec.msgpack.decode(data[4:], type=Token)
    except (ValueError, msgspec.MsgspecError):
        token = None
    if token is None or crc32(data[4:]).to_bytes(4) != data[:4] or not _EXECUTOR.fullmatch(token.executor):
        raise Invalid(f"the token {shown} is not whole: it was cut, or changed")
    check_queue(token.queue)
    check_id(token.id)
    return token
