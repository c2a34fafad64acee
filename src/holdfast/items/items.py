"""Items: put, claim, renew and complete raw bytes, without tasks or workers.

    with jobs.items("mail") as items:            # renews leases inside the block
        items.put(b"any bytes", id="order-17")
        with items.claim(wait="10s") as item:    # completed at the end of the block, failed by an exception
            ...

Each method has an async variant whose name begins with `a`; `async with` is the variant of `with`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Sized
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, Self, Unpack

from holdfast import errors
from holdfast.client import enqueue
from holdfast.constants import MAX_LEASE, MIN_LEASE
from holdfast.items import detached
from holdfast.items.claim_slot import ClaimSlot, ProcessSlots
from holdfast.items.heartbeat import Heartbeat
from holdfast.items.item import NO_ITEM, RENEW_AFTER, Item, NoItem
from holdfast.items.outcomes import Buffer, as_bytes
from holdfast.items.renewal import ItemRenewal
from holdfast.job.job import ITEM_TASK, Job
from holdfast.job.option_table import not_for
from holdfast.job.options import CheckedOptions, JobOptions
from holdfast.job.retries import NO_POLICY, Retries
from holdfast.names import check_id, check_new_id, check_queue, new_id
from holdfast.store import Steps, client_method, commands, pop_message
from holdfast.store.commands import ClaimedJob
from holdfast.task import task
from holdfast.task.task import BoundCall, Task, make_task
from holdfast.units import Duration, milliseconds

if TYPE_CHECKING:
    from holdfast.store import AsyncStore, Store


class App(enqueue.App, task.App, Protocol):
    """The app that the items belong to."""


class Items:
    """The items of a queue. Threads can share it; a forked process claims under a name of its own."""

    def __init__(self, app: App, queue: str) -> None:
        self.queue = check_queue(queue)
        self._app = app
        self._task = replace(
            make_task(_raw, app, CheckedOptions(queue=self.queue, when_unreachable="raise"), ITEM_TASK), codec="raw"
        )
        self._slots = ProcessSlots[Item]()
        self._heartbeat = Heartbeat(ItemRenewal(self), self._slots)

    def __repr__(self) -> str:
        return f"<Items of {self.queue}>"

    @property
    def store(self) -> Store:
        return self._app.store

    @property
    def async_store(self) -> AsyncStore:
        return self._app.async_store

    def _put(self, payload: Buffer, /, **options: Unpack[JobOptions]) -> Steps[Job[bytes]]:
        """Store an item. If one with its `id` or `unique` key exists, return that one.

        `options` are those of tasks: id, delay, at, priority, retries, unique, keep, at_most_once and so on.

        Raises:
            TooBig: it is over 1 MiB.
            StoreUnavailable: the server did not answer within two seconds; call again with the same `id`.
        """
        data = as_bytes(payload, "an item")
        task = self._task_with(options)
        call = BoundCall(task.effective_options.id or new_id(), task, data)
        return enqueue.enqueue(self._app, call)

    put, aput = client_method(_put)

    def _put_many(
        self, many: Iterable[Buffer | tuple[str, Buffer]], /, *, fresh: bool = False, **options: Unpack[JobOptions]
    ) -> Steps[list[Job[bytes]]]:
        """Store items in order, each as bytes or (id, bytes), in chunks of 1,000 that are stored completely or not.

        items.put_many(line.encode() for line in lines)

        `fresh` is faster, for ids that cannot exist yet, such as those of items without an id: if all of them exist,
        the store takes this call for a repetition and stores nothing. `options` apply to all items.

        Raises:
            JobExists: `fresh` is given, and some of the ids exist, but not all.
            Invalid, TooBig: an item cannot be stored. If a list was given, none was.
            StoreUnavailable: the server did not answer. If `maybe_done`, some may be stored.
        """
        if options.get("id") is not None:
            raise errors.Invalid("put_many has no option id; give each item its own: put_many([(id, payload), ...])")
        task = self._task_with(options)
        calls = (self._call(each, task) for each in many)
        return enqueue.enqueue_many(self._app, list(calls) if isinstance(many, Sized) else calls, fresh=fresh)

    put_many, aput_many = client_method(_put_many)

    def _task_with(self, options: JobOptions) -> Task[..., bytes]:
        return self._task.options(**_check_options(options, self.queue)) if options else self._task

    def _call(self, item: Buffer | tuple[str, Buffer], task: Task[..., bytes]) -> BoundCall[bytes]:
        if not isinstance(item, tuple):
            return BoundCall(new_id(), task, as_bytes(item, "an item"))
        if len(item) != 2:
            raise errors.Invalid(f"expected an item as bytes or (id, bytes), got a tuple of {len(item)}")
        id, payload = item
        return BoundCall(check_new_id(id), task, as_bytes(payload, "an item"))

    def _value(self, id: str, /) -> Steps[bytes]:
        """Return the payload of an item, claimed or not.

        Raises:
            JobNotFound: no item has this id.
        """
        found = yield commands.get([check_id(id)])
        if found[0] is None:
            raise errors.JobNotFound(f"item {id} does not exist; it may have been completed and removed")
        payload: bytes = found[0]["payload"]
        return payload

    value, avalue = client_method(_value)

    def _claim(self, *, wait: Duration | None = 0, lease: Duration | None = None) -> Steps[Item | NoItem]:
        """Claim the next item. Wait up to `wait` for one; None waits without limit.

        with items.claim(wait="10s") as item:
            if item:
                send(item.payload)

        The item is completed at the end of the block, and fails with an exception that leaves it. Without an item, the
        result is false, and `with` gives None. Without a block, end the item yourself:

        while item := items.claim(wait="10s"):
            item.complete(send(item.payload))

        The default lease is a setting of the queue (see `jobs.config`). Inside `with items` it is renewed as long as
        the program refers to the item.
        """
        items = yield from self._claim_many(1, wait=wait, lease=lease)
        return items[0] if items else NO_ITEM

    claim, aclaim = client_method(_claim)

    def _claim_many(self, limit: int, *, wait: Duration | None = 0, lease: Duration | None = None) -> Steps[list[Item]]:
        """Claim up to `limit` items. Wait for the first, like `claim`."""
        deadline = None if wait is None else time.monotonic() + milliseconds(wait, what="wait") / 1000
        length = None if lease is None else milliseconds(lease, what="lease", minimum=MIN_LEASE, maximum=MAX_LEASE)
        self._slots.current.held.warn_of_dropped(self.queue)
        with self._slots.current.slot() as slot:
            while True:
                is_over = deadline is not None and time.monotonic() >= deadline
                claim = yield from self.request_claim(slot, limit, length, leaves=is_over)
                if claim.jobs or is_over:
                    return [self._hold(job, slot) for job in claim.jobs]
                left = math.inf if deadline is None else deadline - time.monotonic()
                yield pop_message(self, claim.wake_key, max(min(left, _seconds_until_next_claim(claim, length)), 0.01))

    claim_many, aclaim_many = client_method(_claim_many)

    # Detached items

    renew, arenew = client_method(detached.renew, "Items")
    complete, acomplete = client_method(detached.complete, "Items")
    fail, afail = client_method(detached.fail, "Items")
    release, arelease = client_method(detached.release, "Items")

    def request_claim(
        self, slot: ClaimSlot, limit: int, lease: int | None = None, *, leaves: bool
    ) -> Steps[commands.ClaimReply]:
        """Send a claim; or again the last one, if its reply was lost: it may have got items."""
        request = slot.unanswered or commands.claim_args(
            [self.queue],
            counter=slot.next_number(),
            limit=limit,
            lease=lease,
            pid=os.getpid(),
            idle=slot.is_idle,
            leaves=leaves,
        )
        slot.unanswered = request
        try:
            claim: commands.ClaimReply = yield commands.claim(slot.name, request)
        except errors.Invalid:
            slot.unanswered = None  # it would be refused again
            raise
        slot.unanswered = None
        slot.is_idle = not claim.jobs
        return claim

    def _hold(self, job: ClaimedJob, slot: ClaimSlot) -> Item:
        item = Item(self, job, slot.name)
        self._slots.current.held.add(item)
        self._heartbeat.include(item)
        return item

    def forget(self, item: Item) -> None:
        """Stop renewing an item that has ended."""
        self._slots.current.held.discard(item.held)

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


def _raw(item: bytes) -> bytes:
    """Serve as the function of the task `raw`, which items have instead of a real one."""
    raise TypeError(f"this job is an item ({len(item)} bytes) and has no task to run; claim it with jobs.items(...)")


def _check_options(options: JobOptions, queue: str) -> JobOptions:
    """Refuse options that only tasks have."""
    for name in not_for("item"):
        if options.get(name) not in (None, queue if name == "queue" else None):
            why = f"it goes to the queue {queue}" if name == "queue" else "no worker runs it"
            raise errors.Invalid(f"an item cannot have the option {name}: {why}")
    retries = options.get("retries")
    if isinstance(retries, Retries) and retries.policy != NO_POLICY:
        raise errors.Invalid(
            "an item can have a number of retries, but not a policy: no worker runs it; call item.fail(delay=...)"
        )
    if options.get("debounce") is not None and options.get("unique") is None:
        raise errors.Invalid("debounce is given without unique; give the key that the items share")
    return options


def _seconds_until_next_claim(claim: commands.ClaimReply, lease: int | None) -> float:
    """Return how long to wait before the next claim: a quarter of the lease, as often as a holder would renew it.

    If the store receives no command for half a lease, it assumes that it was unreachable, and extends all leases, also
    those of dead programs.
    """
    return min(claim.wait, lease * RENEW_AFTER if lease else math.inf) / 1000
