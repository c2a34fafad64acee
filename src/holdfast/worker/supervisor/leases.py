"""Keeps the leases of a worker: renews them, and passes on which jobs are cancelled or lost."""

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
from holdfast.worker.retrying import RetryingStore, retry_until_answered
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.supervisor.app_warnings import AppWarnings
from holdfast.worker.supervisor.exclusive import ExclusiveLeases
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.supervisor.schedules import WorkerSchedules
from holdfast.worker.supervisor.served_queues import ServedQueues
from holdfast.worker.supervisor.stack_requests import StackRequests

log = logging.getLogger("holdfast.worker")

REFILLS = 10  # schedules whose times are computed after a renewal
MOST_INTERVAL = 7.5  # seconds between renewals
INBOX_BLOCK = 5.0  # seconds
INBOX_RETRY = 0.5  # seconds
LOOK_EVERY = 1.0  # seconds, at the clock: the one that `sleep` goes by stands still while the machine sleeps
SOON = 0.5  # seconds between renewals that something to tell brings forward

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
        on_drain: Callable[[], None],
    ) -> None:
        self.stack_requests = StackRequests(store, executors)
        self.pulse = LeaseClock()
        self.exclusives = ExclusiveLeases(executors)
        self.about = ""  # what the worker says of itself
        self._worker = worker
        self._settings = settings
        self._store = store
        self._executors = executors
        self._served = served
        self._schedules = schedules
        self.app_warnings = AppWarnings(store)
        self._on_drain = on_drain
        self._waiting = MOST_INTERVAL  # seconds from the last renewal to the next
        self._inbox_key = b""
        self._inbox_is_known = asyncio.Event()
        self._soon = asyncio.Event()
        self._arrivals = 0
        self._unnamed: dict[Lease, float] = {}  # since when

    @property
    def interval(self) -> float:
        """Seconds between renewals: a quarter of the shortest lease."""
        held = [executor.shortest_lease for executor in self._executors.values()]
        leases = [lease for lease in (self._settings.lease, *held) if lease is not None]
        return min([lease / 4000 for lease in leases] + [MOST_INTERVAL])

    def heard(self, message: messages.FromExecutor) -> None:
        """Handle a message of an executor; renew soon if there is something to report, or a short lease."""
        match message:
            case messages.JobsClaimed(jobs):
                if min(job.lease for job in jobs) < 4000 * self._waiting:
                    self._soon.set()
            case messages.JobStarted():
                self._soon.set()
            case messages.StackReply():
                self.stack_requests.heard(message)
            case messages.ExclusiveClaimed(executor, id, attempt, lease, claimed_at):
                self.exclusives.add(executor, id, attempt, lease, claimed_at)
            case messages.ResultMismatch(task, id, note):
                self.app_warnings.heard_misfit(task, id, note)

    def renew_soon(self) -> None:
        """There is something to tell."""
        self._soon.set()

    async def renew(self) -> None:
        """Renew all leases every quarter of the shortest; sooner if there is something to tell."""
        await self._store.connected()
        while True:
            began = boot_time()
            self._soon.clear()
            await self._renew_all()
            self._look_for_the_deaf()
            while (passed := boot_time() - began) < self._waiting and not (self._soon.is_set() and passed >= SOON):
                await self._nap(min(self._waiting - passed, SOON - passed if self._soon.is_set() else LOOK_EVERY))

    async def _nap(self, seconds: float) -> None:
        """Sleep; if there is nothing to tell yet, only until there is."""
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
        unnamed: set[Lease] = set()
        parts = iter(held)
        names = list(self._executors)
        while True:
            part = list(islice(parts, MAX_BATCH))
            renewed = await self._renew_part(part, names, started)
            self._pass_on(renewed)
            self._schedules.refill(renewed.refills)
            unnamed.update(renewed.unnamed)
            started = []
            if len(part) < MAX_BATCH:
                break
        await self._release_unnamed(unnamed.difference(held))

    async def _renew_part(self, held: list[Lease], executors: list[str], started: list[Started]) -> RenewReply:
        command = commands.renew(
            self._worker,
            held,
            executors=executors,
            started=started,
            about=self.about or None,
            queues=self._served.names,
            matches=self._served.matches,
            arrivals=self._arrivals,
            refills=REFILLS,
        )
        began = boot_time()
        renewed = await self._store.run(command)
        self.exclusives.renewed(held, began)
        self._waiting = self.interval
        self.pulse.beat(self._waiting, began)
        self._arrivals = renewed.arrivals
        self._served.heard(renewed.queues)
        self.app_warnings.heard_undefined(renewed.undefined)
        self._inbox_key = renewed.inbox_key
        self._inbox_is_known.set()
        return renewed

    def _pass_on(self, renewed: RenewReply) -> None:
        reasons: list[tuple[Literal["cancelled", "lost"], list[Lease]]]
        reasons = [("cancelled", renewed.cancelled), ("lost", renewed.lost)]
        for reason, leases in reasons:
            for lease in leases:
                if executor := self._executors.get(lease.executor):
                    executor.interrupt(lease.id, lease.attempt, reason)

    async def _release_unnamed(self, unnamed: set[Lease]) -> None:
        """Hand back jobs that the store says we hold and we do not know of, once that has been so for a whole lease.

        They did not begin: an executor tells us before, and does not trust a reply that it hears as late as that.
        """
        now = boot_time()
        self._unnamed = {lease: self._unnamed.get(lease, now) for lease in unnamed}
        patience = (self._settings.lease or DEFAULT_LEASE) / 1000
        late = [lease for lease, since in self._unnamed.items() if now - since > patience]
        for lease in late:
            log.warning("%s: attempt %d is held by nobody here, handed back", lease.id, lease.attempt)
            item = Finish(lease.id, lease.attempt, Release("not known"), unstarted=True)
            await self._store.run(commands.finish(lease.executor, [item]))

    def _look_for_the_deaf(self) -> None:
        for executor in self._executors.values():
            hearing = executor.hearing
            executor.ask_whether_it_hears(self._waiting)
            if hearing.is_deaf and (hearing.has_told or executor.is_overdue):
                log.error("executor %s does not answer, so its jobs cannot be stopped: killed", executor.name)
                executor.kill()
            elif hearing.is_deaf and not hearing.is_warned_of:
                hearing.is_warned_of = True
                log.warning(
                    "executor %s does not answer: a coroutine keeps its event loop, and all its neighbours wait; "
                    "`holdfast stack` of a job of it says where",
                    executor.name,
                )

    async def hand_back(self, executor: ExecutorProcess) -> None:
        """Release, uncharged, whatever the store says that a dead executor holds; and have it forgotten."""
        name = executor.name
        while True:
            renewed = await self._store.run(commands.renew(self._worker, [], executors=[name]))
            items = [
                Finish(lease.id, lease.attempt, Release("stopped"), unstarted=not executor.may_have_begun(lease))
                for lease in renewed.unnamed
            ]
            if not items:
                break
            finished = await self._store.run(commands.finish(name, items))
            log.info("handed back %s", ", ".join(item.id for item in items))
            if "OK" not in finished.answers:
                break
        while await self._store.run(commands.requeue_orphaned(executor=name, reason="stopped")):
            log.warning("executor %s held jobs after all", name)

    async def lose(self, **whose: str) -> None:
        """Take back, charged, whatever a dead executor or worker holds; and have it forgotten."""
        while lost := await self._store.run(commands.requeue_orphaned(**whose)):
            log.warning("took back %s", ", ".join(lost))

    async def read_inbox(self) -> None:
        """Hear of cancellations and new queues at once. A message that is lost is made up for by the next renewal."""
        store = await self._store.connected()
        await self._inbox_is_known.wait()
        while True:
            popped = await retry_until_answered(
                lambda: store.execute("BLPOP", self._inbox_key, INBOX_BLOCK, blocks=INBOX_BLOCK),
                retry_on=(errors.HoldfastError,),
                pause=INBOX_RETRY,
                max_pause=INBOX_RETRY,
            )
            if popped:
                self._heed(*popped[1].decode().split())

    def _heed(self, word: str, *rest: str) -> None:
        if word == "queues":
            self._served.look()
        elif word == "drain":
            self._on_drain()
        elif word == "stack":
            self.stack_requests.ask(*rest)
        elif word in INTERRUPTS and rest[0] in self._executors:
            executor, id, attempt = rest
            self._executors[executor].interrupt(id, int(attempt), INTERRUPTS[word])
