"""A claimed item: its bytes, and the right to end it."""

from __future__ import annotations

import logging
import os
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from holdfast import errors
from holdfast.items import outcomes
from holdfast.items.outcomes import Buffer, as_bytes
from holdfast.items.token import Token, new_executor
from holdfast.job.outcome import Outcome, Release, outcome_of
from holdfast.names import new_id
from holdfast.store import Steps, client_method, commands
from holdfast.store.commands import ClaimedJob, Lease
from holdfast.units import Duration

if TYPE_CHECKING:
    from holdfast.items.items import Items
    from holdfast.store import AsyncStore, Store

log = logging.getLogger("holdfast.items")


class Item:
    """An item that this program holds.

    `data` is what `renew` saved last, in this attempt or one before. `is_lost` and `is_cancelled` become true while
    leases are renewed: then stop, and `release` what was cancelled.

    As a `with` block it ends with the block: completed, or failed with the exception that left the block. An item that
    nothing refers to any more is not renewed.
    """

    def __init__(self, items: Items, claimed: ClaimedJob, executor: str) -> None:
        self.id: str = claimed.id
        self.payload: bytes = claimed.payload
        self.data: bytes = claimed.checkpoint  # what was saved last
        self.attempt: int = claimed.attempt
        self.queue: str = claimed.queue
        self.is_lost: bool = False  # another may have it
        self.is_cancelled: bool = False  # somebody wished so
        self.held = Lease(executor, claimed.id, claimed.attempt)
        self.lease: float = claimed.lease / 1000  # seconds
        self._created = claimed.created
        self._items = items
        self._rights = ["to end it"]  # of several threads, one takes it; it is given back if that failed
        self._was_given_back = False  # by the end of `with items`, not by its own block
        self._detached: Token | None = None  # under which it is, or may be, detached
        self._tokens: dict[tuple[int, type[Outcome]], str] = {}
        self.was_renewed(time.monotonic())

    def __repr__(self) -> str:
        return f"<Item {self.id} attempt {self.attempt}>"

    @property
    def store(self) -> Store:
        return self._items.store

    @property
    def async_store(self) -> AsyncStore:
        return self._items.async_store

    def was_renewed(self, at: float) -> None:
        self.renew_at = at + self.lease / 4

    def _renew(self, data: Buffer | None = None) -> Steps[None]:
        """Prolong the lease by its whole length, and keep `data` for the next attempt, up to 256 KiB.

        Raises:
            LeaseLost: it was lost: another may have the item. Nothing was saved.
        """
        kept = None if data is None else as_bytes(data, "data")
        began = time.monotonic()
        try:
            is_cancelled = yield commands.save(self.held, kept, created=self._created, renew=True)
        except errors.LeaseLost:
            self.is_lost = True
            self._items.forget(self)
            raise
        self.was_renewed(began)
        self.is_cancelled = self.is_cancelled or is_cancelled
        self.data = self.data if kept is None else kept

    renew, arenew = client_method(_renew)

    def _complete(self, result: Buffer = b"") -> Steps[bool]:
        """End the item with a result. Returns True for exactly one caller, ever; False if the lease was lost.

        If it raises StoreUnavailable, whether it was completed is unknown: call it again, within ten minutes.

        Raises:
            TooBig: the result has more than 1 MiB. The item is still held.
        """
        return (yield from self._end(outcomes.success(result)))

    complete, acomplete = client_method(_complete)

    def _fail(self, words: str, *, final: bool = False, delay: Duration | None = None) -> Steps[bool]:
        """Say that it could not be done: it is tried again as its retries allow, unless this is `final`."""
        return (yield from self._end(outcomes.failure(words, final=final, delay=delay)))

    fail, afail = client_method(_fail)

    def _release(self, *, delay: Duration = 0, reason: str = "released", unstarted: bool = False) -> Steps[bool]:
        """Give the item back, uncharged: it goes to its old place, or comes after a delay.

        One that must not run twice (`at_most_once`) fails instead, unless you say that nothing was done about it
        (`unstarted`). One that was cancelled ends.
        """
        return (yield from self._end(outcomes.release(reason, delay=delay), unstarted=unstarted))

    release, arelease = client_method(_release)

    def _give_back(self) -> Steps[None]:
        """Release what its program has not ended within `with items`: a thread that still works on it has lost it."""
        self._was_given_back = yield from self._release(reason="the program went on without it")
        self.is_lost = self.is_lost or self._was_given_back

    def _end(self, outcome: Outcome, *, unstarted: bool = False) -> Steps[bool]:
        try:
            right = self._rights.pop()
        except IndexError:
            return False
        try:
            return (yield from self._say_end(outcome, unstarted))
        except BaseException:
            self._rights.append(right)
            raise

    def _say_end(self, outcome: Outcome, unstarted: bool) -> Steps[bool]:
        """Tell the store. Said again by the same process, because its answer was lost, it gets the same answer."""
        caller = os.getpid(), type(outcome)
        token = self._tokens.setdefault(caller, new_id())
        try:
            is_ended = yield from outcomes.end(self.held, self._created, outcome, token=token, unstarted=unstarted)
        except errors.StoreUnavailable:
            raise
        except errors.HoldfastError:
            del self._tokens[caller]  # it was refused: another end is another call
            raise
        self.is_lost = not is_ended
        self._items.forget(self)
        return is_ended

    def _detach(self) -> Steps[str]:
        """Give the item away: returns a token, by which any process may renew it and end it.

        token = item.detach()
        items.complete(token, b"sent")           # anywhere, any time before the lease ends

        The lease begins anew, and is renewed by `items.renew(token)` only: this program holds the item no more.

        Raises:
            LeaseLost: it was lost: another may have the item. Or it has ended here.
        """
        try:
            right = self._rights.pop()
        except IndexError:
            raise errors.LeaseLost(f"item {self.id} cannot be detached: it has ended, or was detached before") from None
        token = self._detached or Token(self.queue, self.id, self.attempt, self._created, new_executor())
        self._detached = token  # a second call says the same
        try:
            yield commands.detach(self.held, token.executor, created=self._created)
        except BaseException as error:
            self._rights.append(right)
            self.is_lost = self.is_lost or isinstance(error, errors.LeaseLost)
            raise
        self._items.forget(self)
        return str(token)

    detach, adetach = client_method(_detach)

    # As a block

    def _leave(self, error: BaseException | None) -> Steps[None]:
        """End the item as its block has ended, unless it was ended there.

        Raises:
            LeaseLost: the block went well, but the lease was lost.
        """
        if not self._rights:
            if self._was_given_back and error is None:
                raise errors.LeaseLost(
                    f"item {self.id} was not completed: `with items` ended before its block, and gave it back"
                )
            return
        if error is None:
            if not (yield from self._complete()):
                raise errors.LeaseLost(
                    f"item {self.id} was not completed: its lease was lost, and another program may have it"
                )
            return
        try:
            yield from self._end(_outcome_of(error))
        except errors.HoldfastError as refusal:
            log.warning(
                "the failure of item %s could not be stored (%s); it comes back when its lease has ended",
                self.id,
                refusal,
            )

    leave, aleave = client_method(_leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self.leave(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if not isinstance(error, GeneratorExit):  # its coroutine is closed: nothing can be awaited any more
            await self.aleave(error)


def _outcome_of(error: BaseException) -> Outcome:
    """What an exception that left a block means: who is interrupted has not failed."""
    return outcome_of(error) if isinstance(error, Exception) else Release(f"interrupted by {type(error).__name__}")


class NoItem:
    """What a claim returns that got nothing: it is false, and as a `with` block it has None inside."""

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "<no item>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"no item was claimed, so there is no {name}; look first: `if item:`")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


NO_ITEM = NoItem()
