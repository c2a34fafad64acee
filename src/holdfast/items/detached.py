"""Detached items: no process holds them; their token is the right to renew and end them. See `items.token`."""

from __future__ import annotations

from typing import Protocol

from holdfast import errors
from holdfast.items import outcomes
from holdfast.items.outcomes import Buffer, as_bytes
from holdfast.items.token import Token, read_token
from holdfast.job.outcome import Outcome
from holdfast.store import Steps, Stores, commands, new_token
from holdfast.units import Duration


class Queue(Stores, Protocol):
    """The items of a queue."""

    queue: str


def renew(items: Queue, token: str, /, data: Buffer | None = None) -> Steps[bool]:
    """Renew the lease of a detached item, and save up to 256 KiB of `data` for the next attempt.

    Return whether the item was cancelled: then stop, and release it, which ends it.

    Raises:
        LeaseLost: it has ended, or another program may have claimed it; nothing was saved.
        Invalid: the token is malformed, or of another queue.
    """
    held = _token_of(items, token)
    saved = None if data is None else as_bytes(data, "data")
    try:
        is_cancelled: bool = yield commands.save(held.held, saved, created=held.created, renew=True)
    except errors.LeaseLost:
        raise _lost(held) from None
    return is_cancelled


def complete(items: Queue, token: str, /, result: Buffer = b"") -> Steps[bool]:
    """Complete a detached item with a result. Return True to exactly one caller, ever.

    After StoreUnavailable it is unknown whether the item was completed; check `jobs.get(id).state`.

    Raises:
        LeaseLost: it has already ended, or another program may have claimed it.
        TooBig: the result is over 1 MiB; the item is still held.
        Invalid: the token is malformed, or of another queue.
    """
    return (yield from _end(_token_of(items, token), outcomes.success(result)))


def fail(
    items: Queue, token: str, message: str, /, *, final: bool = False, delay: Duration | None = None
) -> Steps[bool]:
    """Fail a detached item: it is retried while it has retries left, unless `final` is given.

    Raises:
        LeaseLost: it has already ended, or another program may have claimed it.
        Invalid: the token is malformed, or of another queue.
    """
    return (yield from _end(_token_of(items, token), outcomes.failure(message, final=final, delay=delay)))


def release(
    items: Queue, token: str, /, *, delay: Duration = 0, reason: str = "released", unstarted: bool = False
) -> Steps[bool]:
    """Requeue a detached item without counting an attempt. See `Item.release`.

    Raises:
        LeaseLost: it has already ended, or another program may have claimed it.
        Invalid: the token is malformed, or of another queue.
    """
    outcome = outcomes.release(reason, delay=delay)
    return (yield from _end(_token_of(items, token), outcome, unstarted=unstarted))


def _token_of(items: Queue, text: str) -> Token:
    token = read_token(text)
    if token.queue != items.queue:
        raise errors.Invalid(f"the token belongs to an item of queue {token.queue}, not {items.queue}")
    return token


def _end(token: Token, outcome: Outcome, *, unstarted: bool = False) -> Steps[bool]:
    if not (yield from outcomes.end(token.held, token.created, outcome, token=new_token(), unstarted=unstarted)):
        raise _lost(token)
    return True


def _lost(token: Token) -> errors.LeaseLost:
    return errors.LeaseLost(
        f"item {token.id} is no longer held by this token: it has ended, or its lease expired, and another may have it"
    )
