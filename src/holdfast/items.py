"""Four calls for those who want no tasks and no worker: put, claim, renew, complete, on any bytes.

    with jobs.items("mail") as items:            # leases are renewed while in here
        items.put(b"any bytes", id="order-17")
        item = items.claim(wait="10s")
        ...
        item.complete(b"sent")                   # True for exactly one caller, ever

Each call has an async equal whose name begins with `a`, and `async with` does what `with` does.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Self, Unpack

import msgspec

from holdfast import commands, errors
from holdfast.commands import Claimed, Finish, Held, NewJob
from holdfast.durations import Duration, milliseconds
from holdfast.failure import Failure
from holdfast.failure import encode as encode_failure
from holdfast.job import Job, read_job
from holdfast.names import check_id, check_queue, new_id
from holdfast.outcome import Error, Outcome, Release, Succeed
from holdfast.seat import Seat, Seats
from holdfast.task import Given, Options
from holdfast.verbs import Pop, Steps, verb

if TYPE_CHECKING:
    import asyncio

    from holdfast.client import Holdfast
    from holdfast.store import AsyncStore, Store

TASK = "raw"  # what a job without a task has in its place
SIGN_EVERY = 10.0  # seconds, at most, between signs of life
AWAY = 0.5  # seconds until the next try, while the store is away
GROUP = "failed"


class Item:
    """A claimed item: its id and bytes, and the right to complete it.

    `data` is what `renew` saved last, in this attempt or one before.
    """

    def __init__(self, items: Items, claimed: Claimed, executor: str) -> None:
        self.id = claimed.id
        self.payload = claimed.payload
        self.data = claimed.checkpoint
        self.attempt = claimed.attempt
        self.queue = claimed.queue
        self.is_lost = False
        self.is_cancelled = False
        self.held = Held(executor, claimed.id, claimed.attempt)
        self.lease = claimed.lease / 1000
        self._created = claimed.created
        self._items = items
        self._ending = threading.Lock()
        self._has_ended = False
        self._token, self._token_pid = new_id(), os.getpid()

    def __repr__(self) -> str:
        return f"<Item {self.id} attempt {self.attempt}>"

    @property
    def store(self) -> Store:
        return self._items.store

    @property
    def async_store(self) -> AsyncStore:
        return self._items.async_store

    def _renew(self, data: bytes | None = None) -> Steps[None]:
        """Prolong the lease by its whole length, and keep `data` for the next attempt.

        Raises:
            LeaseLost: it was lost: another may have the item. Nothing was saved.
        """
        command = commands.save(self.held, data, created=self._created, renew=True)
        self.is_cancelled = (yield command) or self.is_cancelled
        self.data = self.data if data is None else data

    renew, arenew = verb(_renew)

    def _complete(self, result: bytes = b"") -> Steps[bool]:
        """End the item with a result. Returns True for exactly one caller, ever.

        If it raises StoreUnavailable, whether it was completed is unknown: call it again.
        """
        return (yield from self._end(Succeed(result)))

    complete, acomplete = verb(_complete)

    def _fail(self, words: str, *, final: bool = False, delay: Duration | None = None) -> Steps[bool]:
        """Say that it could not be done: it is tried again as its retries allow, unless this is `final`."""
        failure = Failure(type="Failed", message=words, group=GROUP, fingerprint=GROUP)
        wait = None if delay is None else milliseconds(delay, what="delay")
        return (yield from self._end(Error(encode_failure(failure), GROUP, final=final, delay=wait)))

    fail, afail = verb(_fail)

    def _release(self, *, delay: Duration = 0, reason: str = "released") -> Steps[bool]:
        """Give the item back, uncharged: it goes to its old place, or comes after a delay."""
        return (yield from self._end(Release(reason, milliseconds(delay, what="delay"))))

    release, arelease = verb(_release)

    def _end(self, outcome: Outcome) -> Steps[bool]:
        with self._ending:  # of several threads, one is to be told True
            if self._has_ended:
                return False
            self._has_ended = True
        if self._token_pid != os.getpid():  # a forked copy is another caller
            self._token, self._token_pid = new_id(), os.getpid()
        finish = Finish(self.id, self.attempt, outcome, os.getpid(), created=self._created)
        try:
            finished = yield commands.finish(self.held.executor, [finish], token=self._token)
            answer = finished.answers[0]
            if answer in ("TOOBIG", "INVALID"):
                raise errors.BY_CODE[answer](f"the outcome of item {self.id} is refused; store it elsewhere")
        except BaseException:
            self._has_ended = False
            raise
        self._items.forget(self)
        return bool(answer == "OK")


class Items:
    """The items of a queue. Threads may share it; a forked process gets an identity of its own."""

    def __init__(self, app: Holdfast, queue: str) -> None:
        self._app = app
        self._queue = check_queue(queue)
        self._seats = Seats()
        self._held: dict[Held, Item] = {}
        self._upkeep: threading.Thread | asyncio.Task[None] | None = None
        self._pause = 0.0  # seconds between renewals
        self._renew_sooner: Callable[[], object] = lambda: None
        self._over = threading.Event()

    @property
    def store(self) -> Store:
        return self._app.store

    @property
    def async_store(self) -> AsyncStore:
        return self._app.async_store

    def _put(self, payload: bytes, /, **options: Unpack[Given]) -> Steps[Job[bytes]]:
        """Store an item. If one of its `id`, or with its `unique` key, is there, that one is returned.

        `options` are those of tasks: id, delay, at, priority, retries, unique, keep, at_most_once and so on.

        Raises:
            TooBig: it has more than 1 MiB.
        """
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise errors.Invalid(f"an item is bytes, not {type(payload).__name__}; encode it first")
        chosen = Options().but(**options)
        new = _new_item(bytes(payload), self._queue, chosen)
        stored = yield commands.enqueue([new], exists=chosen.on_exists or "return")
        found = yield commands.get(stored.ids)
        if found[0] is None:
            raise errors.JobExists(f"item {stored.ids[0]} was done before, and is not there any more")
        job: Job[bytes] = msgspec.structs.replace(read_job(found[0], self._app), created=stored.created[0])
        return job

    put, aput = verb(_put)

    def _value(self, id: str, /) -> Steps[bytes]:
        """Return the bytes of an item, claimed or not.

        Raises:
            JobNotFound: there is none of this id.
        """
        found = yield commands.get([check_id(id)])
        if found[0] is None:
            raise errors.JobNotFound(f"there is no item {id}; it may have been completed and removed")
        payload: bytes = found[0]["payload"]
        return payload

    value, avalue = verb(_value)

    def _claim(self, *, wait: Duration | None = 0, lease: Duration | None = None) -> Steps[Item | None]:
        """Take the next item, under a lease. Waits so long for one; None: for ever. Returns None if there was none."""
        items = yield from self._claim_many(1, wait=wait, lease=lease)
        return items[0] if items else None

    claim, aclaim = verb(_claim)

    def _claim_many(self, limit: int, *, wait: Duration | None = 0, lease: Duration | None = None) -> Steps[list[Item]]:
        """Take up to `limit` items. Waits until there is at least one, as `claim` does."""
        deadline = None if wait is None else time.monotonic() + milliseconds(wait, what="wait") / 1000
        length = None if lease is None else milliseconds(lease, what="lease")
        with self._seats.taken() as seat:
            while True:
                claim = yield from self._ask(seat, limit, length)
                left = claim.wait / 1000 if deadline is None else min(claim.wait / 1000, deadline - time.monotonic())
                if claim.jobs or left <= 0:
                    return [self._hold(job, seat) for job in claim.jobs]
                yield Pop(claim.wake_key, max(left, 0.01))

    claim_many, aclaim_many = verb(_claim_many)

    def _ask(self, seat: Seat, limit: int, lease: int | None) -> Steps[commands.Claim]:
        """Claim. If the answer to the last question never came, ask that one again: it may have got items."""
        request = seat.unanswered or commands.claim_args(
            [self._queue], counter=seat.next_number(), limit=limit, lease=lease, pid=os.getpid(), idle=seat.is_idle
        )
        seat.unanswered = request
        claim: commands.Claim = yield commands.claim(seat.name, request)
        seat.unanswered = None
        seat.is_idle = not claim.jobs
        return claim

    def _hold(self, job: Claimed, seat: Seat) -> Item:
        item = Item(self, job, seat.name)
        self._held[item.held] = item
        if item.lease / 4 < self._pause:
            self._renew_sooner()
        return item

    def forget(self, item: Item) -> None:
        """An item has ended: there is nothing to renew any more."""
        self._held.pop(item.held, None)

    # Upkeep

    def _sign(self) -> Steps[float]:
        """Renew all leases and give a sign of life. Returns the seconds until the next time."""
        held = list(self._held)
        for first in range(0, len(held) or 1, 1000):
            command = commands.renew(
                self._seats.worker, held[first : first + 1000], about=_about(), queues=[self._queue]
            )
            renewed = yield command
            for lost in renewed.lost:
                if item := self._held.pop(lost, None):
                    item.is_lost = True
            for cancelled in renewed.cancelled:
                if item := self._held.get(cancelled):
                    item.is_cancelled = True
        return min([SIGN_EVERY, *(item.lease / 4 for item in self._held.values())])

    sign, asign = verb(_sign)

    def _leave(self) -> Steps[None]:
        """Give back what was not completed, and be forgotten as a worker."""
        for item in list(self._held.values()):
            yield from item._release(reason="the program went on without it")
        while (yield commands.lose(worker=self._seats.worker, reason="the program has ended")):
            pass

    leave, aleave = verb(_leave)

    def __enter__(self) -> Self:
        sooner = threading.Event()
        self._renew_sooner = sooner.set
        self._over.clear()
        self._upkeep = threading.Thread(target=self._keep_up, args=[sooner], name="holdfast-upkeep", daemon=True)
        self._upkeep.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._renew_sooner()
        if isinstance(self._upkeep, threading.Thread):
            self._upkeep.join()
        self.leave()

    def _keep_up(self, sooner: threading.Event) -> None:
        while not self._over.is_set():
            try:
                self._pause = self.sign()
            except errors.HoldfastError:
                self._pause = AWAY  # leases are spared then
            sooner.wait(self._pause)
            sooner.clear()

    async def __aenter__(self) -> Self:
        import asyncio

        sooner, loop = asyncio.Event(), asyncio.get_running_loop()
        self._renew_sooner = lambda: loop.call_soon_threadsafe(sooner.set)
        self._upkeep = asyncio.create_task(self._akeep_up(sooner))
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        if isinstance(self._upkeep, asyncio.Task):
            while not self._upkeep.done():  # once is not always enough: see `end_all` of the worker
                self._upkeep.cancel()
                await asyncio.wait({self._upkeep}, timeout=0.1)
        await self.aleave()

    async def _akeep_up(self, sooner: asyncio.Event) -> None:
        import asyncio

        while True:
            try:
                self._pause = await self.asign()
            except errors.HoldfastError:
                self._pause = AWAY
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await sooner.wait()
            sooner.clear()


def _new_item(payload: bytes, queue: str, chosen: Options) -> NewJob:
    return NewJob(
        id=chosen.id or new_id(),
        payload=payload,
        queue=queue,
        task=TASK,
        codec="raw",
        priority=chosen.priority,
        delay=chosen.delay,
        due=chosen.at,
        retries=chosen.retries,
        crashes=chosen.crashes,
        lost=chosen.lost,
        backoff=chosen.backoff,
        unique=chosen.unique,
        unique_for=chosen.unique_for,
        unkept=True if chosen.keep is False else None,
        once=chosen.at_most_once or None,
    )


def _about() -> str:
    about = {"pid": os.getpid(), "app": os.path.basename(sys.argv[0] or "python"), "kind": "program"}
    return msgspec.json.encode(about).decode()
