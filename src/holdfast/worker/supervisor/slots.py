"""A place for an executor in a worker. It is kept taken: when its executor dies or is to be replaced, by a fresh one.

    start a fresh one ──▶ it has imported the app ──▶ the old one claims no more, and ends when its jobs have

So there is no gap (but for one that has claimed its number of jobs: it claims no more at once), and as long as the app
cannot be imported the old one goes on. Until the old one has ended its jobs
count: the fresh one may run only so many that there are never more than the pool allows.

The end of a burst: a worker that is to end when nothing waits in its queues, and nothing of it runs.

    all are idle ──▶ look at the queues, and all look once more ──▶ all are idle, nobody has claimed since ──▶ leave

Once is not enough: the last job may have enqueued something for an executor that was idle already, or made a queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.worker import messages
from holdfast.worker.linux import boot_time
from holdfast.worker.settings import Pool
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.supervisor.served_queues import ServedQueues
from holdfast.worker.waiting import first

log = logging.getLogger("holdfast.worker")

RESTART_AFTER = 0.5  # seconds, doubling to 10 while executors die young
MAX_PAUSE = 10.0
YOUNG = 10.0  # seconds


class SlotOwner(Protocol):
    """What a place needs of its worker."""

    stopping: asyncio.Event
    draining: asyncio.Event

    @property
    def may_claim(self) -> bool: ...

    async def start_executor(self, pool: Pool) -> ExecutorProcess: ...

    async def monitor(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        """Hear what an executor says until it is dead and buried."""

    def leave_if_idle(self) -> None:
        """In a burst: end if there is nothing more to do."""


class ExecutorSlot:
    """Has one executor that claims, and those before it whose jobs have not ended.

    `share` is the number of jobs that may run here in all. What an executor was granted of it and does not need comes
    back.
    """

    def __init__(self, owner: SlotOwner, pool: Pool, share: int | None = None) -> None:
        self.pool = pool
        self.current: ExecutorProcess | None = None
        self.monitored: dict[ExecutorProcess, asyncio.Task[None]] = {}
        self.is_over = False
        self._owner = owner
        self._share = share
        self._ran = 0
        self._granted: dict[ExecutorProcess, int] = {}  # and not used yet
        self._told = (0, 0)  # to the current one: the jobs of those before it
        self._try_again = asyncio.Event()

    async def keep(self, group: asyncio.TaskGroup) -> None:
        """Have an executor here until the worker stops, or there is nothing more to do."""
        pause = 0.0
        while not self._is_to_end() and (self._to_run() or self.monitored):
            if not self._to_run():
                await first(*self.monitored.values(), self._ends())
                continue
            began = boot_time()
            fresh = await self._fill(group)
            if fresh and fresh.is_leaving:
                break
            if not (fresh and fresh.is_due.is_set()):
                died_young = boot_time() - began < YOUNG
                pause = min(max(RESTART_AFTER, pause * 2), MAX_PAUSE) if died_young else RESTART_AFTER
                if not self._is_to_end():
                    log.warning("the next executor of pool %s is started in %g s", self.pool.name, pause)
                await first(self._ends(), self._try_again.wait(), timeout=pause)
        self.is_over = True
        if self.current and not self._owner.stopping.is_set():
            self.current.send(messages.Retire())

    def _is_to_end(self) -> bool:
        return self._owner.stopping.is_set() or self._owner.draining.is_set()

    async def _ends(self) -> None:
        """Wait until the worker stops, or is drained."""
        await first(self._owner.stopping.wait(), self._owner.draining.wait())

    async def _fill(self, group: asyncio.TaskGroup) -> ExecutorProcess | None:
        """Have a fresh executor take the place, until it is dead or due to be replaced. None if it never took it."""
        self._try_again.clear()
        try:
            fresh = await self._owner.start_executor(self.pool)
        except OSError as error:  # no descriptor, process or memory is left, or Python is gone
            log.error("an executor could not be started: %s", error)
            return None
        except Exception:
            log.exception("an executor could not be started")
            return None
        monitoring = self.monitored[fresh] = group.create_task(self._monitor(fresh))
        await first(monitoring, fresh.ready.wait(), fresh.is_due.wait())
        if monitoring.done() or not fresh.ready.is_set():
            fresh.kill()  # if it is not dead: its code is old already, and it has claimed nothing
            if fresh.waits_for_change and not self._is_to_end():
                await first(self._try_again.wait(), self._ends())
            return None
        self._install(fresh)
        await first(monitoring, fresh.is_due.wait(), self._ends())
        return fresh

    def _install(self, fresh: ExecutorProcess) -> None:
        old, self.current = self.current, fresh
        self._told = (0, 0)
        if old:
            log.info("executor %s takes the place of %s", fresh.name, old.name)
            old.replace()
        self._grant()
        self._weigh()
        self.tell_whether_to_claim()

    def tell_whether_to_claim(self) -> None:
        """Let the executor of this place claim, unless there is a reason against it."""
        if self.current and not self._is_to_end():
            self.current.send(messages.AllowClaims(self._owner.may_claim))

    async def _monitor(self, executor: ExecutorProcess) -> None:
        try:
            await self._owner.monitor(executor, self)
        except Exception:
            log.exception("executor %s could not be monitored, or not be buried", executor.name)
        finally:
            del self.monitored[executor]
            if self.current is executor:
                self.current = None
            self._ran += min(len(executor.held), self._granted.pop(executor, 0))  # they may have begun
            self._grant()
            self._weigh()
            if self.current:
                self.current.send(messages.ClaimNow())  # it may have been woken just before its end
            self._owner.leave_if_idle()

    def renew_code(self, seconds: float) -> None:
        """Have fresh executors import the app anew. Running jobs have so many seconds."""
        self._try_again.set()
        for executor in self.monitored:
            if not executor.is_due.is_set():
                executor.hurry = seconds
                executor.is_due.set()

    def heard(self, executor: ExecutorProcess, message: messages.FromExecutor) -> None:
        """Handle a message of an executor."""
        match message:
            case messages.JobCounted() if self._share is not None:
                self._ran += 1
                self._granted[executor] -= 1
                if self.current and not self._to_run():
                    self.current.send(messages.Retire())
            case messages.Retiring(unused) if self._share is not None:
                self._granted[executor] = self._granted.get(executor, 0) - unused
                self._grant()
            case messages.Woken() if self.current is not executor and self.current:
                self.current.send(messages.ClaimNow())
        if executor is not self.current:
            self._weigh()

    # The number of jobs

    def _to_run(self) -> int:
        """How many jobs executors that claim may still run; some number, if there is no limit."""
        if self._share is None:
            return 1
        return self._share - self._ran - sum(left for one, left in self._granted.items() if one.is_retiring)

    def _grant(self) -> None:
        """Let the current executor run what nobody else has been granted."""
        if self._share is None or self.current is None or self.current.is_retiring:
            return
        if free := self._share - self._ran - sum(self._granted.values()):
            self._granted[self.current] = self._granted.get(self.current, 0) + free
            self.current.send(messages.Grant(free))

    def _weigh(self) -> None:
        """Tell the current executor how many jobs those before it still run."""
        loads = [executor.load for executor in self.monitored if executor is not self.current]
        sums = (sum(apart for apart, _ in loads), sum(inside for _, inside in loads))
        if self.current and sums != self._told:
            self.current.send(messages.PredecessorLoad(*sums))
            self._told = sums


def shares(pool: Pool) -> list[int | None]:
    """How many jobs each executor of a pool may run, if that is limited; executors that may run none are not there."""
    if pool.max_jobs is None:
        return [None] * pool.executors
    each, more = divmod(pool.max_jobs, pool.executors)
    return [each + (number < more) for number in range(pool.executors) if each + (number < more)]


class Burst:
    """Sees to it that the executors of a worker leave when there is nothing more to do."""

    def __init__(
        self, slots: Sequence[ExecutorSlot], executors: Mapping[str, ExecutorProcess], served: ServedQueues
    ) -> None:
        self._slots = slots
        self._executors = executors
        self._served = served
        self._is_sure = False  # all were asked to look once more, and nobody has claimed anything since

    def go_on(self) -> None:
        """There is something to do."""
        self._is_sure = False

    def leave_if_idle(self) -> None:
        if not self._has_nothing_to_do():
            return
        if not self._is_sure:
            self._served.look(then=self._look_once_more)
            return
        for executor in self._executors.values():
            executor.send(messages.LeaveIfIdle())

    def _look_once_more(self) -> None:
        if self._has_nothing_to_do():
            for executor in self._executors.values():
                executor.is_idle = False
                executor.send(messages.ClaimNow())
            self._is_sure = True

    def _has_nothing_to_do(self) -> bool:
        """Whether every executor has found its queues empty, and nothing runs."""
        kept = [slot for slot in self._slots if not slot.is_over]
        executors = [slot.current for slot in kept if slot.current and len(slot.monitored) == 1]
        return len(executors) == len(kept) and all(executor.is_idle for executor in executors)
