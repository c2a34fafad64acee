"""A claimed item: its payload, and the right to end it."""

from __future__ import annotations

import logging
import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from holdfast import errors
from holdfast.items import outcomes
from holdfast.items.outcomes import Buffer, as_bytes
from holdfast.items.token import Token, new_executor
from holdfast.job.outcome import Outcome, Release, outcome_of
from holdfast.names import new_id
from holdfast.store import Steps, Stores, client_method, commands
from holdfast.store.commands import ClaimedJob, Lease
from holdfast.units import Duration

if TYPE_CHECKING:
    from holdfast.store import AsyncStore, Store

RENEW_AFTER = 1 / 4  # of the duration of a lease

log = logging.getLogger("holdfast.items")


class Owner(Stores, Protocol):
    """The `Items` that an item was claimed from."""

    def forget(self, item: Item) -> None: ...


class Item:
    """An item that this program holds.

    `data` is what `renew` saved last, in this attempt or an earlier one. Heartbeats set `is_lost` and `is_cancelled`:
    then stop, and `release` a cancelled item.

    Used in `with`, it ends with the block: completed, or failed with the exception that left the block. An item without
    references is no longer renewed.
    """

    def __init__(self, owner: Owner, claimed: ClaimedJob, executor: str) -> None:
        self.id: str = claimed.id
        self.payload: bytes = claimed.payload
        self.data: bytes = claimed.checkpoint
        self.attempt: int = claimed.attempt
        self.queue: str = claimed.queue
        self.is_lost: bool = False  # another program may have claimed it
        self.is_cancelled: bool = False
        self.held = Lease(executor, claimed.id, claimed.attempt)
        self.lease: float = claimed.lease / 1000  # seconds
        self.created = claimed.created  # according to the claim
        self._owner = owner
        self._ending = threading.Lock()  # held by the caller that ends or detaches it; released only if that fails
        self._was_released_at_exit = False  # released at the end of `with items`, not of its own block
        self._detached: Token | None = None  # of a detachment that succeeded, or may have
        self._tokens: dict[tuple[int, type[Outcome]], str] = {}
        self.was_renewed(time.monotonic())

    def __repr__(self) -> str:
        return f"<Item {self.id} attempt {self.attempt}>"

    @property
    def store(self) -> Store:
        return self._owner.store

    @property
    def async_store(self) -> AsyncStore:
        return self._owner.async_store

    def was_renewed(self, at: float) -> None:
        self.renew_at = at + self.lease * RENEW_AFTER

    def _renew(self, data: Buffer | None = None) -> Steps[None]:
        """Renew the lease for its full duration, and save up to 256 KiB of `data` for the next attempt.

        Raises:
            LeaseLost: another program may have claimed the item; nothing was saved.
        """
        saved = None if data is None else as_bytes(data, "data")
        began = time.monotonic()
        try:
            is_cancelled = yield commands.save(self.held, saved, created=self.created, renew=True)
        except errors.LeaseLost:
            self.is_lost = True
            self._owner.forget(self)
            raise
        self.was_renewed(began)
        self.is_cancelled = self.is_cancelled or is_cancelled
        self.data = self.data if saved is None else saved

    renew, arenew = client_method(_renew)

    def _complete(self, result: Buffer = b"") -> Steps[bool]:
        """Complete the item with a result. Return True to exactly one caller, ever; False if the lease was lost.

        After StoreUnavailable it is unknown whether the item was completed: call again within ten minutes.

        Raises:
            TooBig: the result is over 1 MiB; the item is still held.
        """
        return (yield from self._end(outcomes.success(result)))

    complete, acomplete = client_method(_complete)

    def _fail(self, message: str, *, final: bool = False, delay: Duration | None = None) -> Steps[bool]:
        """Fail the item: it is retried while it has retries left, unless `final` is given."""
        return (yield from self._end(outcomes.failure(message, final=final, delay=delay)))

    fail, afail = client_method(_fail)

    def _release(self, *, delay: Duration = 0, reason: str = "released", unstarted: bool = False) -> Steps[bool]:
        """Requeue the item without counting an attempt: at its former position, or after a delay.

        An item with `at_most_once` fails instead, unless work on it has not begun (`unstarted`). A cancelled item ends.
        """
        return (yield from self._end(outcomes.release(reason, delay=delay), unstarted=unstarted))

    release, arelease = client_method(_release)

    def _release_at_exit(self) -> Steps[None]:
        """Release the item at the end of `with items`; a thread that still works on it has lost it."""
        self._was_released_at_exit = yield from self._release(reason="the program left `with items`")
        self.is_lost = self.is_lost or self._was_released_at_exit

    def _end(self, outcome: Outcome, *, unstarted: bool = False) -> Steps[bool]:
        if not self._ending.acquire(blocking=False):
            return False
        try:
            return (yield from self._report_end(outcome, unstarted))
        except BaseException:
            self._ending.release()
            raise

    def _report_end(self, outcome: Outcome, unstarted: bool) -> Steps[bool]:
        """Report the outcome to the store. If the same process repeats it, the reply is the same."""
        caller = os.getpid(), type(outcome)
        token = self._tokens.setdefault(caller, new_id())
        try:
            is_ended = yield from outcomes.end(self.held, self.created, outcome, token=token, unstarted=unstarted)
        except errors.StoreUnavailable:
            raise
        except errors.HoldfastError:
            del self._tokens[caller]  # it was refused: the next report is a new one
            raise
        self.is_lost = not is_ended
        self._owner.forget(self)
        return is_ended

    def _detach(self) -> Steps[str]:
        """Detach the item from this program: return a token with which any process can renew or end it.

        token = item.detach()
        items.complete(token, b"sent")           # in any process, before the lease expires

        The lease starts again, and only `items.renew(token)` renews it: this program no longer holds the item.

        Raises:
            LeaseLost: another program may have claimed the item, or it has ended here.
        """
        if not self._ending.acquire(blocking=False):
            raise errors.LeaseLost(f"item {self.id} cannot be detached: it has ended, or was already detached")
        token = self._detached or Token(self.queue, self.id, self.attempt, self.created, new_executor())
        self._detached = token  # so that a repetition uses the same token
        try:
            yield commands.detach(self.held, token.executor, created=self.created)
        except BaseException as error:
            self._ending.release()
            self.is_lost = self.is_lost or isinstance(error, errors.LeaseLost)
            raise
        self._owner.forget(self)
        return str(token)

    detach, adetach = client_method(_detach)

    def was_ended(self) -> None:
        """Note that the app's own Lua has ended the item."""
        self._ending.acquire(blocking=False)
        self._owner.forget(self)

    # In `with`

    def _leave(self, error: BaseException | None) -> Steps[None]:
        """End the item at the end of its block, unless it was ended there.

        Raises:
            LeaseLost: the block succeeded, but the lease was lost.
        """
        if self._ending.locked():
            if self._was_released_at_exit and error is None:
                raise errors.LeaseLost(
                    f"item {self.id} was not completed: `with items` ended before its block, and released it"
                )
            return
        if error is None:
            if not (yield from self._complete()):
                raise errors.LeaseLost(
                    f"item {self.id} was not completed: its lease was lost, and another program may have claimed it"
                )
            return
        try:
            yield from self._end(_outcome_of(error))
        except errors.HoldfastError as refusal:
            log.warning(
                "the failure of item %s could not be stored (%s); it is requeued when its lease expires",
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
        if not isinstance(error, GeneratorExit):  # the coroutine is being closed: nothing can be awaited
            await self.aleave(error)


def _outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of a block that raised: an interruption is not a failure."""
    return outcome_of(error) if isinstance(error, Exception) else Release(f"interrupted by {type(error).__name__}")


class NoItem:
    """The result of a claim that got no item: it is false, and `with` gives None."""

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "<no item>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"no item was claimed, so it has no {name}; check `if item:` first")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


NO_ITEM = NoItem()
