"""A claimed item of a shared queue: its payload, and the right to end it."""

from __future__ import annotations

import logging
import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self

from holdfast import errors
from holdfast.items.item import RENEW_AFTER
from holdfast.names import new_id
from holdfast.redis_work_queue.names import to_bytes, to_text
from holdfast.redis_work_queue.token import SharedToken
from holdfast.store import Steps, Stores, client_method, commands

if TYPE_CHECKING:
    from holdfast.store import AsyncStore, Store

log = logging.getLogger("holdfast.items")


class SharedLease(NamedTuple):
    """The lease of a session on an item."""

    session: str
    id: str


class Owner(Stores, Protocol):
    """The `SharedItems` that an item was claimed from."""

    queue: str
    prefix: bytes

    def forget(self, item: SharedItem) -> None: ...


class SharedItem:
    """An item of a shared queue that this program holds.

    Heartbeats set `is_lost`: another program may have the item, so stop.

    Used in `with`, it is completed at the end of the block. An exception leaves it as the protocol demands: its lease
    is no longer renewed, and when it has expired, the next clean puts the item back into the queue.
    """

    def __init__(self, owner: Owner, id: bytes, payload: bytes, session: str, lease: int) -> None:
        self.id: str = to_text(id)
        self.payload: bytes = payload
        self.queue: str = owner.queue
        self.lease: float = lease / 1000  # seconds
        self.is_lost: bool = False  # another program may have claimed it
        self.held = SharedLease(session, self.id)
        self._owner = owner
        self._ending = threading.Lock()  # held by the caller that ends or detaches it; released only if that fails
        self._was_released_at_exit = False  # released at the end of `with items`, not of its own block
        self._tokens: dict[tuple[int, str], str] = {}  # by process and call: a repeated call gets the same reply
        self.was_renewed(time.monotonic())

    def __repr__(self) -> str:
        return f"<SharedItem {self.id!r} of {self.queue}>"

    @property
    def store(self) -> Store:
        return self._owner.store

    @property
    def async_store(self) -> AsyncStore:
        return self._owner.async_store

    def was_renewed(self, at: float) -> None:
        self.renew_at = at + self.lease * RENEW_AFTER

    def _renew(self) -> Steps[None]:
        """Renew the lease for its full duration.

        Raises:
            LeaseLost: another program may have claimed the item, or it has ended.
        """
        began = time.monotonic()
        token = self._token()
        renewed = yield commands.work_queue_renew(token.prefix, [(token.session, token.id)], lease=token.lease)
        if not renewed[0]:
            self.is_lost = True
            self._owner.forget(self)
            raise errors.LeaseLost(f"item {self.id} is no longer held: it has ended, or another program may have it")
        self.was_renewed(began)

    renew, arenew = client_method(_renew)

    def _complete(self) -> Steps[bool]:
        """Complete the item: delete it from the queue. Return False if it has ended, or the lease was lost.

        True to one caller, among all programs that use Holdfast or follow the protocol's document. After
        StoreUnavailable it is unknown whether the item was completed: call again within ten minutes.
        """
        return (yield from self._end("complete"))

    complete, acomplete = client_method(_complete)

    def _release(self) -> Steps[bool]:
        """Put the item back into the queue, as the next one. Return False if it has ended, or the lease was lost."""
        return (yield from self._end("release"))

    release, arelease = client_method(_release)

    def _detach(self) -> Steps[str]:
        """Detach the item from this program: return a token with which any process can renew or end it.

        The lease starts again, and only `items.renew(token)` renews it.

        Raises:
            LeaseLost: another program may have claimed the item, or it has ended.
        """
        if not self._ending.acquire(blocking=False):
            raise errors.LeaseLost(f"item {self.id} cannot be detached: it has ended, or was already detached")
        try:
            yield from self._renew()
        except BaseException:
            self._ending.release()
            raise
        self._owner.forget(self)
        return str(self._token())

    detach, adetach = client_method(_detach)

    def _token(self) -> SharedToken:
        id = to_bytes(self.id, "an id")
        return SharedToken(self.queue, self._owner.prefix, id, self.held.session, round(self.lease * 1000))

    def _end(self, how: Literal["complete", "release"]) -> Steps[bool]:
        if not self._ending.acquire(blocking=False):
            return False
        caller = os.getpid(), how
        try:
            is_ended = yield from end(self._token(), how, self._tokens.setdefault(caller, new_id()))
        except BaseException:
            self._ending.release()
            raise
        self.is_lost = self.is_lost or not is_ended
        self._owner.forget(self)
        return is_ended

    def _release_at_exit(self) -> Steps[None]:
        """Release the item at the end of `with items`; a thread that still works on it has lost it."""
        self._was_released_at_exit = yield from self._release()
        self.is_lost = self.is_lost or self._was_released_at_exit

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
        elif error is None:
            if not (yield from self._complete()):
                raise errors.LeaseLost(
                    f"item {self.id} was not completed: its lease was lost, and another program may have claimed it"
                )
        elif isinstance(error, Exception):
            self._owner.forget(self)
            log.warning("item %s of %s failed; it can be claimed again %g s later", self.id, self.queue, self.lease)
        else:
            yield from self._try_to_release()

    leave, aleave = client_method(_leave)

    def _try_to_release(self) -> Steps[None]:
        """Release the item after an interruption, such as Ctrl-C."""
        try:
            yield from self._release()
        except errors.HoldfastError as refusal:
            log.warning("item %s could not be released (%s); its lease expires", self.id, refusal)

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


def end(held: SharedToken, how: Literal["complete", "release"], token: str) -> Steps[bool]:
    """Complete or release an item. A repetition with the same `token` gets the same reply."""
    command = commands.work_queue_complete if how == "complete" else commands.work_queue_release
    is_ended: bool = yield command(held.prefix, held.id, held.session, token=token)
    return is_ended
