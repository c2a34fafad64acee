"""The token of a detached item of a shared queue. See `items.token`."""

from __future__ import annotations

import msgspec

from holdfast.items.token import decode_token, encode_token

PREFIX = "shared_"
MAX_LENGTH = 1 << 20  # its id and its prefix may be long


class SharedToken(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a token."""

    queue: str
    prefix: bytes
    id: bytes
    session: str
    lease: int  # milliseconds

    def __str__(self) -> str:
        return encode_token(PREFIX, self)


def read_token(text: str) -> SharedToken:
    """Read a token.

    Raises:
        Invalid: it is malformed or damaged.
    """
    return decode_token(PREFIX, text, SharedToken, max_length=MAX_LENGTH)
