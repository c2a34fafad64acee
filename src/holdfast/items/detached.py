"""Items that no process holds: whoever has the token of one renews it and ends it. See `item_token` and `Items`."""

from __future__ import annotations

from typing import Protocol

from holdfast import errors
from holdfast.items import outcomes
from holdfast.items.outcomes import Buffer, as_bytes
from holdfast.items.token import Token, read_token
from holdfast.job.outcome import Outcome
from holdfast.names import new_id
from holdfast.store import Steps, Stores, commands
from holdfast.units import Duration


class Queue(Stores, Protocol):
    """The items of a queue."""

    queue: str


def renew(items: Queue, token: str, /, data: Buffer | None = None) -> Steps[bool]:
    """Prolong the lease of a detached item by its whole length, and keep `data` for the next attempt, up to 256 KiB.

    Returns whether somebody has cancelled the item: then stop, and release it, which ends it.

    Raises:
        LeaseLost: it has ended, or its lease was lost: another may have the item. Nothing was saved.
        Invalid: this is no token, or one of another queue.
    """
    held = _token_of(items, token)
    kept = None if data is None else as_bytes(data, "data")
    try:
        is_cancelled: bool = yield commands.save(held.held, kept, created=held.created, renew=True)
    except errors.LeaseLost:
        raise _lost(held) from None
    return is_cancelled


def complete(items: Queue, token: str, /, result: Buffer = b"") -> Steps[bool]:
    """End a detached item with a result. Returns True, and that to exactly one caller, ever.

    If it raises StoreUnavailable, whether it was completed is unknown; `jobs.get(id).state` says so.

    Raises:
        LeaseLost: it has ended already, or its lease was lost: another may have the item.
        TooBig: the result has more than 1 MiB. The item is still held.
        Invalid: this is no token, or one of another queue.
    """
    return (yield from _end(_token_of(items, token), outcomes.success(result)))


def fail(items: Queue, token: str, words: str, /, *, final: bool = False, delay: Duration | None = None) -> Steps[bool]:
    """Say that a detached item could not be done: it is tried again as its retries allow, unless this is `final`.

    Raises:
        LeaseLost: it has ended already, or its lease was lost: another may have the item.
        Invalid: this is no token, or one of another queue.
    """
    return (yield from _end(_token_of(items, token), outcomes.failure(words, final=final, delay=delay)))


def release(
    items: Queue, token: str, /, *, delay: Duration = 0, reason: str = "released", unstarted: bool = False
) -> Steps[bool]:
    """Give a detached item back, uncharged: it goes to its old place, or comes after a delay. See `Item.release`.

    Raises:
        LeaseLost: it has ended already, or its lease was lost: another may have the item.
        Invalid: this is no token, or one of another queue.
    """
    outcome = outcomes.release(reason, delay=delay)
    return (yield from _end(_token_of(items, token), outcome, unstarted=unstarted))


def _token_of(items: Queue, text: str) -> Token:
    token = read_token(text)
    if token.queue != items.queue:
        raise errors.Invalid(f"the token is of an item of queue {token.queue}, not of {items.queue}")
    return token


def _end(token: Token, outcome: Outcome, *, unstarted: bool = False) -> Steps[bool]:
    if not (yield from outcomes.end(token.held, token.created, outcome, token=new_id(), unstarted=unstarted)):
        raise _lost(token)
    return True


def _lost(token: Token) -> errors.LeaseLost:
    return errors.LeaseLost(
        f"item {token.id} is not held by this token any more: it has ended, or its lease has, and another may have it"
    )
