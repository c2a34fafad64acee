"""Executor slots, each filled again when its executor dies or is due for replacement; and the end of a burst.

    start a new executor ──▶ it has imported the app ──▶ the old one stops claiming, and exits after its last job

So the slot is never empty, except after an executor that has reached its number of jobs: it stops claiming at once.
While the app cannot be imported, the old executor continues. Its running jobs occupy slots of the new one, so the
limits of the pool are never exceeded.

A worker in burst mode exits when its queues are empty and no job runs:

    all are idle ──▶ list the queues again, all claim once more ──▶ all are idle, none has claimed since ──▶ exit

One round is not enough: the last job may have enqueued work for an executor that was already idle, or created a queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.worker import messages
from holdfast.worker.event_loop import wait_for_first
from holdfast.worker.linux import boot_time
from holdfast.worker.settings import Pool
from holdfast.worker.supervisor.executor_process import ExecutorProcess

log = logging.getLogger("holdfast.worker")

RESTART_DELAY = 0.5  # seconds, doubled up to MAX_RESTART_DELAY while executors die young
MAX_RESTART_DELAY = 10.0
YOUNG_AGE = 10.0  # seconds of age


class SlotOwner(Protocol):
    """The worker that an executor slot belongs to."""

    stopping: asyncio.Event

    @property
    def draining(self) -> asyncio.Event: ...

    @property
    def may_claim(self) -> bool: ...

    async def start_executor(self, pool: Pool) -> ExecutorProcess: ...

    async def monitor(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        """Handle the messages of an executor until it has exited and its jobs are requeued."""

    def leave_if_idle(self) -> None:
        """In burst mode: exit if there is no work."""


class ExecutorSlot:
    """One executor that claims, and its predecessors whose jobs have not finished.

    `share` is the total number of jobs that may run in this slot. The part that was granted to an executor and not used
    is granted to the next.
    """

    def __init__(self, owner: SlotOwner, pool: Pool, share: int | None = None) -> None:
        self.pool = pool
        self.current: ExecutorProcess | None = None
        self.monitored: dict[ExecutorProcess, asyncio.Task[None]] = {}
        self.is_closed = False
        self._owner = owner
        self._share = share
        self._ran = 0
        self._granted: dict[ExecutorProcess, int] = {}  # not used yet
        self._predecessor_load = (0, 0)  # as sent to the current executor
        self._retry = asyncio.Event()

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Keep the slot filled until the worker stops or there is no work."""
        pause = 0.0
        while not self._is_ending() and (self._jobs_left() or self.monitored):
            if not self._jobs_left():
                await wait_for_first(*self.monitored.values(), self._ending())
                continue
            began = boot_time()
            new = await self._fill(group)
            if new and new.is_leaving:
                break
            if not (new and new.is_due.is_set()):
                died_young = boot_time() - began < YOUNG_AGE
                pause = min(max(RESTART_DELAY, pause * 2), MAX_RESTART_DELAY) if died_young else RESTART_DELAY
                if not self._is_ending():
                    log.warning("starting the next executor of pool %s in %g s", self.pool.name, pause)
                await wait_for_first(self._ending(), self._retry.wait(), timeout=pause)
        self.is_closed = True
        if self.current and not self._owner.stopping.is_set():
            self.current.send(messages.Retire())

    def _is_ending(self) -> bool:
        return self._owner.stopping.is_set() or self._owner.draining.is_set()

    async def _ending(self) -> None:
        """Wait until the worker stops or is drained."""
        await wait_for_first(self._owner.stopping.wait(), self._owner.draining.wait())

    async def _fill(self, group: asyncio.TaskGroup) -> ExecutorProcess | None:
        """Fill the slot until its executor exits or is due for replacement. Return None if it never became ready."""
        self._retry.clear()
        try:
            new = await self._owner.start_executor(self.pool)
        except OSError as error:  # out of descriptors, processes or memory, or Python was removed
            log.error("could not start an executor: %s", error)
            return None
        except Exception:
            log.exception("could not start an executor")
            return None
        monitoring = self.monitored[new] = group.create_task(self._monitor(new))
        await wait_for_first(monitoring, new.ready.wait(), new.is_due.wait())
        if monitoring.done() or not new.ready.is_set():
            new.kill()  # unless it has exited: its code is outdated, and it has claimed nothing
            if new.waits_for_change and not self._is_ending():
                await wait_for_first(self._retry.wait(), self._ending())
            return None
        self._install(new)
        await wait_for_first(monitoring, new.is_due.wait(), self._ending())
        return new

    def _install(self, new: ExecutorProcess) -> None:
        old, self.current = self.current, new
        self._predecessor_load = (0, 0)
        if old:
            log.info("executor %s replaces %s", new.name, old.name)
            old.replace()
        self._grant()
        self._send_predecessor_load()
        self.allow_claims()

    def allow_claims(self) -> None:
        """Inform the executor whether it may claim."""
        if self.current and not self._is_ending():
            self.current.send(messages.AllowClaims(self._owner.may_claim))

    async def _monitor(self, executor: ExecutorProcess) -> None:
        try:
            await self._owner.monitor(executor, self)
        except Exception:
            log.exception("monitoring executor %s failed", executor.name)
        finally:
            del self.monitored[executor]
            if self.current is executor:
                self.current = None
            self._ran += min(len(executor.held), self._granted.pop(executor, 0))  # they may have started
            self._grant()
            self._send_predecessor_load()
            if self.current:
                self.current.send(messages.ClaimNow())  # the old one may have been woken just before it exited
            self._owner.leave_if_idle()

    def reload(self, seconds: float) -> None:
        """Replace all executors, so that the app is imported again. Running jobs have this time to finish."""
        self._retry.set()
        for executor in self.monitored:
            if not executor.is_due.is_set():
                executor.deadline = seconds
                executor.is_due.set()

    def handle(self, executor: ExecutorProcess, message: messages.FromExecutor) -> None:
        """Handle a message of an executor."""
        match message:
            case messages.JobCounted() if self._share is not None:
                self._ran += 1
                self._granted[executor] -= 1
                if self.current and not self._jobs_left():
                    self.current.send(messages.Retire())
            case messages.Retiring(unused) if self._share is not None:
                self._granted[executor] = self._granted.get(executor, 0) - unused
                self._grant()
            case messages.Woken() if self.current is not executor and self.current:
                self.current.send(messages.ClaimNow())
        if executor is not self.current:
            self._send_predecessor_load()

    # The number of jobs

    def _jobs_left(self) -> int:
        """Return how many jobs may still be claimed here; 1 if there is no limit."""
        if self._share is None:
            return 1
        return self._share - self._ran - sum(left for one, left in self._granted.items() if one.is_retiring)

    def _grant(self) -> None:
        """Grant the current executor all jobs that no other executor was granted."""
        if self._share is None or self.current is None or self.current.is_retiring:
            return
        if free := self._share - self._ran - sum(self._granted.values()):
            self._granted[self.current] = self._granted.get(self.current, 0) + free
            self.current.send(messages.Grant(free))

    def _send_predecessor_load(self) -> None:
        """Inform the current executor how many jobs its predecessors still run."""
        loads = [executor.load for executor in self.monitored if executor is not self.current]
        total = (sum(processes for processes, _ in loads), sum(inprocess for _, inprocess in loads))
        if self.current and total != self._predecessor_load:
            self.current.send(messages.PredecessorLoad(*total))
            self._predecessor_load = total


def shares(pool: Pool) -> list[int | None]:
    """Return how many jobs each executor of a pool may run; None is unlimited. Executors without a job are left out."""
    if pool.max_jobs is None:
        return [None] * pool.executors
    each, more = divmod(pool.max_jobs, pool.executors)
    return [each + (number < more) for number in range(pool.executors) if each + (number < more)]


class Burst:
    """Ends a worker in burst mode when there is no work."""

    def __init__(self, slots: Sequence[ExecutorSlot], executors: Mapping[str, ExecutorProcess]) -> None:
        self._slots = slots
        self._executors = executors
        self._is_confirmed = False  # all executors have claimed once more, and none has found a job

    def resume(self) -> None:
        """Note that there is work."""
        self._is_confirmed = False

    def leave_if_idle(self) -> None:
        if not self._is_idle():
            return
        for executor in self._executors.values():
            if self._is_confirmed:
                executor.send(messages.LeaveIfIdle())
            else:
                executor.is_idle = False
                executor.send(messages.ClaimNow())
        self._is_confirmed = True

    def _is_idle(self) -> bool:
        """Return whether every executor has found its queues empty and runs no job."""
        open_slots = [slot for slot in self._slots if not slot.is_closed]
        executors = [slot.current for slot in open_slots if slot.current and len(slot.monitored) == 1]
        return len(executors) == len(open_slots) and all(executor.is_idle for executor in executors)
