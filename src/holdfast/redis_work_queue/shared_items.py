"""Items of a queue that is shared with programs that use the protocol of redis-work-queue.

    with jobs.items("thumbs", protocol="redis-work-queue", prefix="p") as items:
        items.put(b"any bytes", id="image-17")
        with items.claim(wait="10s") as item:    # completed at the end of the block
            ...

They are in the keys of that protocol, and no job of Holdfast has anything to do with them, until a worker serves the
queue: `@items.task`. Each method has an async variant whose name begins with `a`.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, Unpack, overload

from holdfast import errors
from holdfast.constants import DEFAULT_LEASE, MAX_BATCH, MAX_LEASE, MIN_LEASE
from holdfast.items.claim_slot import ClaimSlots, ProcessSlots
from holdfast.items.heartbeat import Heartbeat
from holdfast.items.item import NO_ITEM, NoItem
from holdfast.items.outcomes import Buffer, as_bytes
from holdfast.job.options import JobOptions
from holdfast.names import check_queue, new_id
from holdfast.redis_work_queue import cleaning, detached
from holdfast.redis_work_queue.item_task import ServingApp, declare
from holdfast.redis_work_queue.names import to_bytes, to_text
from holdfast.redis_work_queue.shared_item import SharedItem
from holdfast.store import Action, Steps, client_method, commands
from holdfast.task.task import Task
from holdfast.units import Duration, milliseconds

if TYPE_CHECKING:
    from holdfast.store import AsyncStore, Store

R = TypeVar("R")

MAX_WAIT = 5.0  # seconds that a claim blocks before it looks again
MAX_PUT = 8 << 20  # bytes of data in one call, unless a single item is larger


class App(ServingApp, Protocol):
    """The app that the items belong to."""

    @property
    def store(self) -> Store: ...
    @property
    def async_store(self) -> AsyncStore: ...


class StoredItem(NamedTuple):
    """The id of an item, and whether `put` has stored it: False if an item with this id existed."""

    id: str
    created: bool


class SharedItems:
    """The items of a shared queue. Threads can share it; a forked process holds nothing that its parent holds."""

    def __init__(self, app: App, queue: str, prefix: str | bytes | None = None) -> None:
        self.queue = check_queue(queue)
        self.prefix = to_bytes(queue if prefix is None else prefix, "a prefix")
        self._app = app
        self._slots = ProcessSlots[SharedItem]()
        self._heartbeat = Heartbeat[SharedItem](self, self._slots)

    def __repr__(self) -> str:
        return f"<SharedItems of {self.queue}, prefix {to_text(self.prefix)!r}>"

    @property
    def store(self) -> Store:
        return self._app.store

    @property
    def async_store(self) -> AsyncStore:
        return self._app.async_store

    def _put(self, payload: Buffer, /, *, id: str | bytes | None = None, fresh: bool = False) -> Steps[StoredItem]:
        """Store an item, unless one with its id exists. Without an id, it gets a random one.

        `fresh` is a little faster, for an id that cannot exist yet: nothing is looked up, and an item with the same id
        would be overwritten and listed twice.

        Raises:
            Invalid: a key of the queue has the wrong type, or the server is part of a cluster; nothing was stored.
            StoreUnavailable: the server did not answer. If `maybe_done`, the item may be stored.
        """
        item = payload if id is None else (id, payload)
        stored = yield from self._put_many([item], fresh=fresh or id is None)
        return stored[0]

    put, aput = client_method(_put)

    def _put_many(
        self, many: Iterable[Buffer | tuple[str | bytes, Buffer]], /, *, fresh: bool = False
    ) -> Steps[list[StoredItem]]:
        """Store items in order, each as bytes or (id, bytes), in chunks of 1,000. See `put`."""
        stored: list[StoredItem] = []
        timeout = self._app.address.timeout
        for chunk in _chunks(map(_id_and_data, many)):
            created = yield commands.work_queue_put(self.prefix, chunk, fresh=fresh, timeout=timeout)
            stored += [StoredItem(to_text(id), was) for (id, _), was in zip(chunk, created, strict=True)]
        return stored

    put_many, aput_many = client_method(_put_many)

    def _claim(self, *, wait: Duration | None = 0, lease: Duration | None = None) -> Steps[SharedItem | NoItem]:
        """Claim the next item. Wait up to `wait` for one; None waits without limit.

        with items.claim(wait="10s") as item:
            if item:
                resize(item.payload)

        Without an item, the result is false, and `with` gives None. The default lease is 30 s. Inside `with items` it
        is renewed as long as the program refers to the item.
        """
        items = yield from self._claim_many(1, wait=wait, lease=lease)
        return items[0] if items else NO_ITEM

    claim, aclaim = client_method(_claim)

    def _claim_many(
        self, limit: int, *, wait: Duration | None = 0, lease: Duration | None = None
    ) -> Steps[list[SharedItem]]:
        """Claim up to `limit` items. Wait for the first, like `claim`."""
        deadline = math.inf if wait is None else time.monotonic() + milliseconds(wait, what="wait") / 1000
        length = milliseconds(
            DEFAULT_LEASE / 1000 if lease is None else lease, what="lease", minimum=MIN_LEASE, maximum=MAX_LEASE
        )
        self._slots.current.held.warn_of_dropped(self.queue)
        while True:
            is_over = time.monotonic() >= deadline
            session, began = new_id(), time.monotonic()
            reply = yield commands.work_queue_claim(self.prefix, session, limit=limit, lease=length)
            if reply.is_cut_short:
                continue
            if reply.items or is_over:
                return [self._hold(SharedItem(self, id, data, session, length), began) for id, data in reply.items]
            yield self._wait_for_item(max(0.01, min(MAX_WAIT, deadline - time.monotonic())))

    claim_many, aclaim_many = client_method(_claim_many)

    def _wait_for_item(self, seconds: float) -> Action[Any]:
        """Wait until the queue has an item. It stays where it is: it is moved from the right end to the right end."""
        request = ("BLMOVE", self.prefix + b":queue", self.prefix + b":queue", "RIGHT", "RIGHT", seconds)
        return Action(
            lambda: self.store.execute(*request, blocks=seconds),
            lambda: self.async_store.execute(*request, blocks=seconds),
        )

    def _hold(self, item: SharedItem, began: float) -> SharedItem:
        item.was_renewed(began)
        self._slots.current.held.add(item)
        self._heartbeat.include(item)
        return item

    def forget(self, item: SharedItem) -> None:
        """Stop renewing an item that has ended."""
        self._slots.current.held.discard(item.held)

    def _length(self) -> Steps[int]:
        """Return how many items wait, as the protocol counts them: copies of an id count, too."""
        lengths = yield commands.work_queue_lengths(self.prefix)
        length: int = lengths[0]
        return length

    length, alength = client_method(_length)

    def _in_progress(self) -> Steps[int]:
        """Return how many items are in progress, or were abandoned and not cleaned yet."""
        lengths = yield commands.work_queue_lengths(self.prefix)
        in_progress: int = lengths[1]
        return in_progress

    in_progress, ain_progress = client_method(_in_progress)

    clean, aclean = client_method(cleaning.clean, "SharedItems")

    # Detached items

    renew, arenew = client_method(detached.renew, "SharedItems")
    complete, acomplete = client_method(detached.complete, "SharedItems")
    release, arelease = client_method(detached.release, "SharedItems")

    # For workers

    @overload
    def task(self, function: Callable[[bytes], R], /) -> Task[[bytes], R]: ...
    @overload
    def task(
        self, function: None = None, /, *, name: str | None = None, **options: Unpack[JobOptions]
    ) -> Callable[[Callable[[bytes], R]], Task[[bytes], R]]: ...
    def task(self, function: Any = None, /, *, name: str | None = None, **options: Unpack[JobOptions]) -> Any:
        """Declare the task that workers run for each item of the queue.

        @thumbs.task(retries=5)
        def make(image: bytes) -> None: ...

        A worker that serves the queue (`holdfast work app --queues thumbs`) claims items as it has free slots, and runs
        each as a job. The item is completed when its job has ended: when it has succeeded, failed for good, or was
        cancelled. The job's record stays.
        """

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            return declare(self._app, self.queue, self.prefix, function, name=name, options=options)

        return register if function is None else register(function)

    # In `with`

    def renew_all(self, slots: ClaimSlots[SharedItem]) -> Steps[None]:
        """Renew the leases of all items that this process holds."""
        slots.held.warn_of_dropped(self.queue)
        by_length: dict[float, list[SharedItem]] = {}
        for item in slots.held.items():
            by_length.setdefault(item.lease, []).append(item)
        for lease, items in by_length.items():
            for first in range(0, len(items), MAX_BATCH):
                yield from self._renew_batch(slots, items[first : first + MAX_BATCH], round(lease * 1000))

    def _renew_batch(self, slots: ClaimSlots[SharedItem], items: list[SharedItem], lease: int) -> Steps[None]:
        began = time.monotonic()
        leases = [(item.held.session, to_bytes(item.id, "an id")) for item in items]
        renewed = yield commands.work_queue_renew(self.prefix, leases, lease=lease)
        for item, is_held in zip(items, renewed, strict=True):
            if is_held:
                item.was_renewed(began)
            elif slots.held.discard(item.held):
                item.is_lost = True

    def release_all(self, slots: ClaimSlots[SharedItem]) -> Steps[None]:
        """Release the items that have not ended."""
        slots.held.warn_of_dropped(self.queue)
        for item in slots.held.items():
            yield from item._release_at_exit()

    def __enter__(self) -> Self:
        self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeat.stop()

    async def __aenter__(self) -> Self:
        await self._heartbeat.astart()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._heartbeat.astop()


def _id_and_data(item: Buffer | tuple[str | bytes, Buffer]) -> tuple[bytes, bytes]:
    if not isinstance(item, tuple):
        return uuid.uuid4().hex.encode(), as_bytes(item, "an item")
    if len(item) != 2:
        raise errors.Invalid(f"expected an item as bytes or (id, bytes), got a tuple of {len(item)}")
    return to_bytes(item[0], "an id"), as_bytes(item[1], "an item")


def _chunks(items: Iterator[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Divide items into lists that one call takes."""
    while part := list(islice(items, MAX_BATCH)):
        chunk: list[tuple[bytes, bytes]] = []
        size = 0
        for item in part:
            if chunk and size + len(item[1]) > MAX_PUT:
                yield chunk
                chunk, size = [], 0
            chunk.append(item)
            size += len(item[1])
        yield chunk
