"""Renews the leases of a worker, and interrupts jobs that were cancelled or whose lease was lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Literal

from holdfast import errors
from holdfast.constants import DEFAULT_LEASE, MAX_BATCH
from holdfast.job.outcome import Release
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease, RenewReply, Started
from holdfast.worker import messages
from holdfast.worker.lease_clock import LeaseClock
from holdfast.worker.linux import boot_time
from holdfast.worker.retrying_store import RetryingStore, retry_until_answered
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.supervisor.app_warnings import AppWarnings
from holdfast.worker.supervisor.exclusive_leases import ExclusiveLeases
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.supervisor.schedules import WorkerSchedules
from holdfast.worker.supervisor.served_queues import ServedQueues
from holdfast.worker.supervisor.stack_requests import StackRequests

log = logging.getLogger("holdfast.worker")

MAX_REFILLS = 10  # schedules whose times are computed after a renewal
MAX_RENEWAL_INTERVAL = 7.5  # seconds between renewals
INBOX_TIMEOUT = 5.0  # seconds
INBOX_RETRY_DELAY = 0.5  # seconds
CLOCK_CHECK_INTERVAL = 1.0  # seconds: the clock of `sleep` stands still while the machine sleeps
MIN_RENEWAL_INTERVAL = 0.5  # seconds between renewals that are brought forward

# Messages of the inbox, and why they interrupt an attempt.
INTERRUPTS: dict[str, Literal["cancelled", "lost"]] = {"cancel": "cancelled", "lost": "lost"}


class Leases:
    """The leases that the executors of one worker hold."""

    def __init__(
        self,
        worker: str,
        settings: WorkerSettings,
        store: RetryingStore,
        executors: Mapping[str, ExecutorProcess],
        *,
        served: ServedQueues,
        schedules: WorkerSchedules,
        on_drain: Callable[[str], None],
        on_loss: Callable[[], None],
    ) -> None:
        self.stack_requests = StackRequests(store, executors)
        self.clock = LeaseClock()
        self.exclusive = ExclusiveLeases(executors)
        self.about = ""  # the WorkerReport that is stored with each renewal
        self._worker = worker
        self._settings = settings
        self._store = store
        self._executors = executors
        self._served = served
        self._schedules = schedules
        self.app_warnings = AppWarnings(store)
        self._on_drain = on_drain
        self._on_loss = on_loss
        self._interval = MAX_RENEWAL_INTERVAL  # seconds from the last renewal to the next
        self._inbox_key = b""
        self._inbox_key_known = asyncio.Event()
        self._soon = asyncio.Event()
        self._arrivals = 0
        self._since = 0  # since when the store has its data; 0: unknown
        self._unclaimed_since: dict[Lease, float] = {}  # leases that no executor has reported

    @property
    def interval(self) -> float:
        """Seconds between renewals: a quarter of the shortest lease."""
        held = [executor.shortest_lease for executor in self._executors.values()]
        leases = [lease for lease in (self._settings.lease, *held) if lease is not None]
        return min([lease / 4000 for lease in leases] + [MAX_RENEWAL_INTERVAL])

    def handle(self, message: messages.FromExecutor) -> None:
        """Handle a message of an executor; renew soon if there is something to report, or a short lease."""
        match message:
            case messages.JobsClaimed(jobs):
                if min(job.lease for job in jobs) < 4000 * self._interval:
                    self._soon.set()
            case messages.JobStarted():
                self._soon.set()
            case messages.StackReply():
                self.stack_requests.reply(message)
            case messages.ExclusiveClaimed(executor, id, attempt, lease, claimed_at):
                self.exclusive.add(executor, id, attempt, lease, claimed_at)
            case messages.ResultMismatch(task, id, note):
                self.app_warnings.result_mismatch(task, id, note)

    def renew_soon(self) -> None:
        """Bring the next renewal forward: there is something to report."""
        self._soon.set()

    async def renew(self) -> None:
        """Renew all leases every quarter of the shortest; sooner if there is something to report."""
        await self._store.connected()
        while True:
            began = boot_time()
            self._soon.clear()
            await self._renew_all()
            self._kill_unresponsive()
            while (passed := boot_time() - began) < self._interval and not (
                self._soon.is_set() and passed >= MIN_RENEWAL_INTERVAL
            ):
                pause = MIN_RENEWAL_INTERVAL - passed if self._soon.is_set() else CLOCK_CHECK_INTERVAL
                await self._pause(min(self._interval - passed, pause))

    async def _pause(self, seconds: float) -> None:
        """Sleep, or until there is something to report."""
        if self._soon.is_set():
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._soon.wait()
        except TimeoutError:
            return

    async def _renew_all(self) -> None:
        held = [lease for executor in self._executors.values() for lease in executor.held]
        started = [start for executor in self._executors.values() for start in executor.take_started()]
        unclaimed: set[Lease] = set()
        parts = iter(held)
        names = list(self._executors)
        while True:
            part = list(islice(parts, MAX_BATCH))
            renewed = await self._renew_part(part, names, started)
            self._interrupt(renewed)
            self._schedules.refill(renewed.refills)
            unclaimed.update(renewed.unreported)
            started = []
            if len(part) < MAX_BATCH:
                break
        await self._release_unclaimed(unclaimed.difference(held))

    async def _renew_part(self, held: list[Lease], executors: list[str], started: list[Started]) -> RenewReply:
        command = commands.renew(
            self._worker,
            held,
            executors=executors,
            started=started,
            about=self.about or None,
            queues=self._served.entries,
            arrivals=self._arrivals,
            refills=MAX_REFILLS,
        )
        began = boot_time()
        renewed = await self._store.run(command)
        self.exclusive.renewed(held, began)
        self._interval = self.interval
        self.clock.renewed(self._interval, began)
        self._arrivals = renewed.arrivals
        self._notice_loss(renewed.since)
        self.app_warnings.undefined_limits(renewed.undefined)
        self._inbox_key = renewed.inbox_key
        self._inbox_key_known.set()
        return renewed

    def _notice_loss(self, since: int) -> None:
        known, self._since = self._since, since
        if known and since != known:
            log.error(
                "the store has lost data: it was emptied, restored, or replaced by a replica; jobs may be missing"
            )
            self._on_loss()

    def _interrupt(self, renewed: RenewReply) -> None:
        reasons: list[tuple[Literal["cancelled", "lost"], list[Lease]]]
        reasons = [("cancelled", renewed.cancelled), ("lost", renewed.lost)]
        for reason, leases in reasons:
            for lease in leases:
                if executor := self._executors.get(lease.executor):
                    executor.interrupt(lease.id, lease.attempt, reason)

    async def _release_unclaimed(self, leases: set[Lease]) -> None:
        """Release leases that the store records for this worker but no executor has reported within a lease.

        Their jobs never started: an executor reports a job first, and discards a reply that arrives that late.
        """
        now = boot_time()
        self._unclaimed_since = {lease: self._unclaimed_since.get(lease, now) for lease in leases}
        lease_seconds = (self._settings.lease or DEFAULT_LEASE) / 1000
        late = [lease for lease, since in self._unclaimed_since.items() if now - since > lease_seconds]
        for lease in late:
            log.warning(
                "%s: attempt %d is leased to this worker, but no executor holds it; released", lease.id, lease.attempt
            )
            item = Finish(lease.id, lease.attempt, Release("no executor holds it"), unstarted=True)
            await self._store.run(commands.finish(lease.executor, [item]))

    def _kill_unresponsive(self) -> None:
        for executor in self._executors.values():
            responsiveness = executor.responsiveness
            executor.ping(self._interval)
            if not responsiveness.is_unresponsive:
                continue
            if responsiveness.has_interrupts or executor.is_overdue:
                log.error("executor %s is unresponsive, so its jobs cannot be stopped: killing it", executor.name)
                executor.kill()
            elif not responsiveness.is_logged:
                responsiveness.is_logged = True
                log.warning(
                    "executor %s is unresponsive: a coroutine blocks its event loop, and the other jobs in it wait; "
                    "`holdfast stack` of one of its jobs shows where",
                    executor.name,
                )

    async def release_all(self, executor: ExecutorProcess) -> None:
        """Release all jobs of an executor that was stopped, and deregister it. Their budgets are not charged."""
        name = executor.name
        while True:
            renewed = await self._store.run(commands.renew(self._worker, [], executors=[name]))
            items = [
                Finish(lease.id, lease.attempt, Release("stopped"), unstarted=not executor.may_have_started(lease))
                for lease in renewed.unreported
            ]
            if not items:
                break
            finished = await self._store.run(commands.finish(name, items))
            log.info("released %s", ", ".join(item.id for item in items))
            if "OK" not in finished.answers:
                break
        while await self._store.run(commands.requeue_orphaned(executor=name, reason="stopped")):
            log.warning("executor %s still held jobs; they were requeued", name)

    async def requeue_orphaned(self, *, reason: str, **owner: str) -> None:
        """Requeue the jobs of a dead `executor` or `worker`, and deregister it. A lost lease is charged to each."""
        while orphaned := await self._store.run(commands.requeue_orphaned(reason=reason, **owner)):
            log.warning("requeued %s: %s", ", ".join(orphaned), reason)

    async def read_inbox(self) -> None:
        """Receive cancellations at once. The next renewal makes up for a lost message."""
        store = await self._store.connected()
        await self._inbox_key_known.wait()
        while True:
            popped = await retry_until_answered(
                lambda: store.execute("BLPOP", self._inbox_key, INBOX_TIMEOUT, blocks=INBOX_TIMEOUT),
                retry_on=(errors.HoldfastError,),
                pause=INBOX_RETRY_DELAY,
                max_pause=INBOX_RETRY_DELAY,
            )
            if popped:
                self._handle_inbox(*popped[1].decode().split())

    def _handle_inbox(self, kind: str, *fields: str) -> None:
        if kind == "drain":
            self._on_drain(fields[1] if len(fields) > 1 else "")
        elif kind == "stack":
            self.stack_requests.add(*fields)
        elif kind in INTERRUPTS and fields[0] in self._executors:
            executor, id, attempt = fields
            self._executors[executor].interrupt(id, int(attempt), INTERRUPTS[kind])
