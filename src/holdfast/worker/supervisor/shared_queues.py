"""Shared queues of a worker: it claims items of redis-work-queue, stores each as a job, and completes ended ones.

    item ──claim, in one call──▶ job ──▶ attempts ──▶ ended ──settle──▶ item completed

`store/lua/work_queue_bridge.lua` has the rules. A note in the store connects item and job, so every worker that serves
the queue renews, completes and releases all its items, and any of them may die at any time. A worker claims only as
many items as it has free slots: the others stay in the shared queue, for other programs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast import errors
from holdfast.constants import DEFAULT_LEASE, MAX_BATCH
from holdfast.redis_work_queue.cleaning import clean_queue
from holdfast.redis_work_queue.names import to_text
from holdfast.redis_work_queue.shared_queue import SharedQueue
from holdfast.store import adrive, commands
from holdfast.store.commands import BridgeReply
from holdfast.worker import messages
from holdfast.worker.event_loop import Duty, cancel_all, wait_for_first
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.runners.selection import IN_PROCESS
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.supervisor.served_queues import ServedQueues
from holdfast.worker.supervisor.slots import ExecutorSlot

log = logging.getLogger("holdfast.worker")

LEASE = DEFAULT_LEASE  # of items, in milliseconds; every worker renews all of them
SETTLE_INTERVAL = 5.0  # seconds between two looks at all items
CLEAN_INTERVAL = 30.0  # seconds
MAX_WAIT = 5.0  # seconds that a claim waits for items, or for waiting jobs to start
ROOM_INTERVAL = 0.5  # seconds between two looks for free slots, which ask nobody
MAX_LOGGED = 1000  # items that were too big: each is logged once


class Slots(NamedTuple):
    """How many jobs of a task can run at once, how many are known to run, and the executors of this worker."""

    total: int
    running: int
    executors: list[str]


class Bridge:
    """One shared queue. `slots` returns how many jobs of its task can run here, and on which executors."""

    def __init__(self, shared: SharedQueue, store: RetryingStore, *, slots: Callable[[], Slots]) -> None:
        self.shared = shared
        self._store = store
        self._slots = slots
        self._ended: list[str] = []  # jobs whose attempts have ended, and whose items may have to be completed
        self._has_ended = asyncio.Event()
        self._may_have_room = asyncio.Event()
        self._too_big: set[bytes] = set()
        self._logged = ""  # the last refusal of the store

    def attempt_ended(self, job: str) -> None:
        self._ended.append(job)
        self._has_ended.set()
        self._may_have_room.set()

    def jobs_claimed(self) -> None:
        self._may_have_room.set()

    async def run(self) -> None:
        await self._store.connected()
        duties = [asyncio.create_task(self._repeat(duty)) for duty in (self._claim, self._settle, self._clean)]
        try:
            await asyncio.wait(duties)
        finally:
            await cancel_all(duties)

    async def settle(self) -> None:
        """Settle the items of jobs whose attempts have ended."""
        while self._ended:
            jobs, self._ended = self._ended[:MAX_BATCH], self._ended[MAX_BATCH:]
            await self._store.run(
                commands.work_queue_settle(self.shared.prefix, self.shared.queue, lease=LEASE, jobs=jobs)
            )

    async def _repeat(self, duty: Duty) -> None:
        """Repeat a duty. A refusal of the store, such as that of a damaged key, is logged once."""
        while True:
            try:
                await duty()
            except errors.StoreUnavailable:
                await asyncio.sleep(1)
            except errors.HoldfastError as error:
                if str(error) != self._logged:
                    log.error("queue %s cannot be shared, trying again: %s", self.shared.queue, error)
                self._logged = str(error)
                await asyncio.sleep(MAX_WAIT)
            except Exception:
                log.exception("queue %s: a duty failed, trying again", self.shared.queue)
                await asyncio.sleep(MAX_WAIT)

    async def _claim(self) -> None:
        """Claim items for the free slots, then wait for more."""
        self._may_have_room.clear()
        slots = self._slots()
        if slots.total <= slots.running:
            await wait_for_first(self._may_have_room.wait(), timeout=ROOM_INTERVAL)
            return
        shared = self.shared
        reply = await self._store.run(
            commands.work_queue_bridge(
                shared.prefix, shared.queue, shared.batch, slots=slots.total, executors=slots.executors, lease=LEASE
            )
        )
        self._log_too_big(reply)
        if reply.left and reply.may_go_on:
            return
        if reply.left:  # no free slot, or only items that cannot be jobs
            await wait_for_first(self._may_have_room.wait(), timeout=MAX_WAIT)
        else:
            await self._wait_for_items()

    async def _wait_for_items(self) -> None:
        store, name = await self._store.connected(), self.shared.prefix + b":queue"
        await store.execute("BLMOVE", name, name, "RIGHT", "RIGHT", MAX_WAIT, blocks=MAX_WAIT)

    async def _settle(self) -> None:
        """Settle the items of ended attempts at once, and all items by the clock."""
        cursor, shared = "0", self.shared
        while True:
            reply = await self._store.run(
                commands.work_queue_settle(shared.prefix, shared.queue, lease=LEASE, cursor=cursor)
            )
            cursor = reply.cursor
            if cursor == "0":
                break
        ends = asyncio.get_running_loop().time() + SETTLE_INTERVAL
        while (left := ends - asyncio.get_running_loop().time()) > 0:
            await wait_for_first(self._has_ended.wait(), timeout=left)
            self._has_ended.clear()
            await self.settle()

    async def _clean(self) -> None:
        """Put abandoned items back, also those of other programs."""
        await asyncio.sleep(CLEAN_INTERVAL)
        if back := await adrive(clean_queue(self.shared.prefix), self._store.run):
            log.info("queue %s: put %d abandoned items back", self.shared.queue, back)

    def _log_too_big(self, reply: BridgeReply) -> None:
        for id, size in reply.too_big:
            if id not in self._too_big and len(self._too_big) < MAX_LOGGED:
                self._too_big.add(id)
                log.error(
                    "item %s of queue %s has %d bytes, which is more than a job can have; it stays in the shared queue "
                    "for other programs",
                    to_text(id),
                    self.shared.queue,
                    size,
                )


class SharedQueues:
    """The shared queues that the app of a worker declares, as far as the worker serves them."""

    def __init__(
        self,
        store: RetryingStore,
        served: ServedQueues,
        executors: Mapping[str, ExecutorProcess],
        slots: Sequence[ExecutorSlot],
        *,
        may_claim: Callable[[], bool],
        starts_processes: bool,
    ) -> None:
        self._store = store
        self._served = served
        self._executors = executors
        self._slots = slots
        self._may_claim = may_claim
        self._starts_processes = starts_processes
        self._bridges: dict[str, Bridge] = {}  # by task
        self._has_changed = asyncio.Event()

    def declare(self, declared: Iterable[SharedQueue]) -> None:
        """Serve the shared queues of an app: each executor reports them, and may have newer code."""
        serving = [shared for shared in declared if self._served.serves(shared.queue)]
        if serving == [bridge.shared for bridge in self._bridges.values()]:
            return
        self._bridges = {shared.task: self._bridge(shared) for shared in serving}
        self._has_changed.set()

    def _bridge(self, shared: SharedQueue) -> Bridge:
        log.info("queue %s: its items are those of redis-work-queue %s", shared.queue, to_text(shared.prefix))
        return Bridge(shared, self._store, slots=lambda: self._find_slots(shared))

    def handle(self, executor: ExecutorProcess, message: messages.FromExecutor) -> None:
        """Handle a message of an executor, which still counts the attempts that have ended as held."""
        if not self._bridges:
            return
        match message:
            case messages.JobsClaimed(jobs):
                for job in jobs:
                    if bridge := self._bridges.get(job.task):
                        bridge.jobs_claimed()
            case messages.AttemptsEnded(attempts):
                for id, attempt in attempts:
                    if bridge := self._bridges.get(executor.task_of(id, attempt)):
                        bridge.attempt_ended(id)

    async def run(self) -> None:
        """Serve the shared queues, and others when the app has changed."""
        while True:
            self._has_changed.clear()
            tasks = [asyncio.create_task(bridge.run()) for bridge in self._bridges.values()]
            try:
                await self._has_changed.wait()
            finally:
                await cancel_all(tasks)

    async def settle(self) -> None:
        """Complete the items of jobs that have just ended, before the worker stops."""
        for bridge in self._bridges.values():
            await bridge.settle()

    def _find_slots(self, shared: SharedQueue) -> Slots:
        if not self._may_claim():
            return Slots(0, 0, [])
        slots = [slot for slot in self._slots if slot.current and not slot.is_closed]
        count = sum(self._size(slot, shared) for slot in slots if self._served.serves(shared.queue, slot.pool))
        running = [task for executor in self._executors.values() for _, task in executor.running]
        return Slots(count, running.count(shared.task), list(self._executors))

    def _size(self, slot: ExecutorSlot, shared: SharedQueue) -> int:
        runner = shared.runner or slot.pool.runner
        in_process = runner in IN_PROCESS or not self._starts_processes
        return slot.pool.concurrency if in_process else slot.pool.processes
