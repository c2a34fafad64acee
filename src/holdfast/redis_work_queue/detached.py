"""Detached items of a shared queue: no process holds them; their token is the right to renew and end them."""

from __future__ import annotations

from typing import Literal, Protocol

from holdfast import errors
from holdfast.names import new_id
from holdfast.redis_work_queue.names import to_text
from holdfast.redis_work_queue.shared_item import end
from holdfast.redis_work_queue.token import SharedToken, read_token
from holdfast.store import Steps, Stores, commands


class Queue(Stores, Protocol):
    """The items of a shared queue."""

    prefix: bytes


def renew(items: Queue, token: str, /) -> Steps[None]:
    """Renew the lease of a detached item.

    Raises:
        LeaseLost: it has ended, or another program may have claimed it.
        Invalid: the token is malformed, or of another queue.
    """
    held = _token_of(items, token)
    renewed = yield commands.work_queue_renew(held.prefix, [(held.session, held.id)], lease=held.lease)
    if not renewed[0]:
        raise _lost(held)


def complete(items: Queue, token: str, /) -> Steps[bool]:
    """Complete a detached item. See `SharedItem.complete`.

    Raises:
        LeaseLost: it has already ended, or another program may have claimed it.
        Invalid: the token is malformed, or of another queue.
    """
    return (yield from _end(items, token, "complete"))


def release(items: Queue, token: str, /) -> Steps[bool]:
    """Put a detached item back into the queue, as the next one.

    Raises:
        LeaseLost: it has already ended, or another program may have claimed it.
        Invalid: the token is malformed, or of another queue.
    """
    return (yield from _end(items, token, "release"))


def _end(items: Queue, token: str, how: Literal["complete", "release"]) -> Steps[bool]:
    held = _token_of(items, token)
    if not (yield from end(held, how, new_id())):
        raise _lost(held)
    return True


def _token_of(items: Queue, text: str) -> SharedToken:
    token = read_token(text)
    if token.prefix != items.prefix:
        raise errors.Invalid(
            f"the token belongs to an item with the prefix {to_text(token.prefix)!r}, not {to_text(items.prefix)!r}"
        )
    return token


def _lost(token: SharedToken) -> errors.LeaseLost:
    return errors.LeaseLost(
        f"item {to_text(token.id)} is no longer held by this token: it has ended, or another program may have it"
    )
