"""A claimed item: its bytes, and the right to end it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from holdfast import commands, errors
from holdfast.commands import Claimed, Finish, Held
from holdfast.durations import Duration, milliseconds
from holdfast.failure import Failure
from holdfast.failure import encode as encode_failure
from holdfast.limits import LONGEST_WAIT, MOST_RESULT
from holdfast.names import new_id
from holdfast.outcome import Error, Outcome, Release, Succeed
from holdfast.verbs import Steps, verb

if TYPE_CHECKING:
    from holdfast.items import Items
    from holdfast.store import AsyncStore, Store

GROUP = "failed"


class Item:
    """An item that this program holds.

    `data` is what `renew` saved last, in this attempt or one before. `is_lost` and `is_cancelled` become true while
    leases are renewed: then stop, and `release` what was cancelled.
    """

    def __init__(self, items: Items, claimed: Claimed, executor: str) -> None:
        self.id: str = claimed.id
        self.payload: bytes = claimed.payload
        self.data: bytes = claimed.checkpoint  # what was saved last
        self.attempt: int = claimed.attempt
        self.queue: str = claimed.queue
        self.is_lost: bool = False  # another may have it
        self.is_cancelled: bool = False  # somebody wished so
        self.held = Held(executor, claimed.id, claimed.attempt)
        self.lease: float = claimed.lease / 1000  # seconds
        self._created = claimed.created
        self._items = items
        self._rights = ["to end it"]  # of several threads, one takes it; it is given back if that failed
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

    def _renew(self, data: bytes | None = None) -> Steps[None]:
        """Prolong the lease by its whole length, and keep `data` for the next attempt, up to 256 KiB.

        Raises:
            LeaseLost: it was lost: another may have the item. Nothing was saved.
        """
        if data is not None and not isinstance(data, bytes | bytearray | memoryview):
            raise errors.Invalid(f"data is bytes, not {type(data).__name__}; encode it first")
        kept = None if data is None else bytes(data)
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

    renew, arenew = verb(_renew)

    def _complete(self, result: bytes = b"") -> Steps[bool]:
        """End the item with a result. Returns True for exactly one caller, ever; False if the lease was lost.

        If it raises StoreUnavailable, whether it was completed is unknown: call it again, within ten minutes.

        Raises:
            TooBig: the result has more than 1 MiB. The item is still held.
        """
        if not isinstance(result, bytes | bytearray | memoryview):
            raise errors.Invalid(f"a result is bytes, not {type(result).__name__}; encode it first")
        if len(result) > MOST_RESULT:
            raise errors.TooBig(f"the result has {len(result)} bytes; {MOST_RESULT} are allowed: store it elsewhere")
        return (yield from self._end(Succeed(bytes(result))))

    complete, acomplete = verb(_complete)

    def _fail(self, words: str, *, final: bool = False, delay: Duration | None = None) -> Steps[bool]:
        """Say that it could not be done: it is tried again as its retries allow, unless this is `final`."""
        failure = Failure(type="Failed", message=str(words), group=GROUP, fingerprint=GROUP)
        wait = None if delay is None else milliseconds(delay, what="delay", most=LONGEST_WAIT)
        return (yield from self._end(Error(encode_failure(failure), GROUP, final=final, delay=wait)))

    fail, afail = verb(_fail)

    def _release(self, *, delay: Duration = 0, reason: str = "released", unstarted: bool = False) -> Steps[bool]:
        """Give the item back, uncharged: it goes to its old place, or comes after a delay.

        One that must not run twice (`at_most_once`) fails instead, unless you say that nothing was done about it
        (`unstarted`). One that was cancelled ends.
        """
        wait = milliseconds(delay, what="delay", most=LONGEST_WAIT)
        return (yield from self._end(Release(reason, wait), unstarted=unstarted))

    release, arelease = verb(_release)

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
        finish = Finish(self.id, self.attempt, outcome, os.getpid(), created=self._created, unstarted=unstarted)
        finished = yield commands.finish(self.held.executor, [finish], token=token)
        answer = finished.answers[0]
        if refusal := errors.BY_CODE.get("" if answer == "LOST" else answer):
            del self._tokens[caller]
            raise refusal(f"the store refuses this end of item {self.id}: {outcome!r}"[:500])
        self.is_lost = answer == "LOST"
        self._items.forget(self)
        return bool(answer == "OK")
