"""The supervisor: a worker's first process. It imports no user code, so nothing that user code does can stop it.

    supervisor ──┬── executor ──── zygote ──── jobs
                 └── executor ...

It renews the leases of all executors, hears of cancellations, starts executors again that die, takes back what they
held, and stops everything within one deadline.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import msgspec

from holdfast import errors
from holdfast.names import new_id, node_name
from holdfast.store import Address
from holdfast.worker import linux, messages, processes
from holdfast.worker.linux import READY, STOPPING, notify, user_name
from holdfast.worker.output.console import Outlet
from holdfast.worker.output.shipping import Logs
from holdfast.worker.retrying import RetryingStore
from holdfast.worker.settings import Pool, WorkerSettings
from holdfast.worker.supervisor.banner import Tally, log_banner, log_stop
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.supervisor.health import HealthCheck, UsageSampler
from holdfast.worker.supervisor.leases import Leases
from holdfast.worker.supervisor.peers import Peers, WorkerFolder, WorkerLock
from holdfast.worker.supervisor.preflight import check_server
from holdfast.worker.supervisor.reload import Files
from holdfast.worker.supervisor.schedules import WorkerSchedules
from holdfast.worker.supervisor.served_queues import ServedQueues
from holdfast.worker.supervisor.slots import Burst, ExecutorSlot, shares
from holdfast.worker.supervisor.store_watch import StoreWatch
from holdfast.worker.waiting import Duty, cancel_all, first, remove, run_duty

log = logging.getLogger("holdfast.worker")

REAP_EVERY = 1.0  # seconds
LOOK_AT_FILES_EVERY = 0.5  # seconds
GRACE = 3.0  # seconds between the deadline of a stop and the end of all patience
LOOKS_AT_ORPHANS = 1000  # a hundredth of a second apart
LAST_WORDS = 1.0  # seconds in which the messages of a dead executor are heard


class Supervisor:
    """Runs a worker until it is told to stop: returns the exit code."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.worker = f"{settings.node or node_name()}/{new_id()[-8:]}"
        self._lock = WorkerLock(self.worker)
        self._folder = WorkerFolder(self._lock)
        self._settings = msgspec.structs.replace(settings, directory=str(self._folder.path))
        self._store = RetryingStore()
        self._executors: dict[str, ExecutorProcess] = {}
        self._served = ServedQueues(settings.pools, self._store, on_change=self._tell_queues)
        self._schedules = WorkerSchedules(self._store)
        self._leases = Leases(
            self.worker,
            self._settings,
            self._store,
            self._executors,
            served=self._served,
            schedules=self._schedules,
            on_drain=self._drain,
        )
        outlet = Outlet(1) if settings.show_output else None
        self._logs = Logs(self._store, self._folder.path, self._is_running, outlet=outlet)
        self._usage_sampler = UsageSampler(self._store, self._executors)
        self._watch = StoreWatch(
            self._store, accept_data_loss=settings.accept_data_loss, on_change=self._tell_whether_to_claim
        )
        self._peers = Peers(self._lock, self._store, self._leases)
        self._files = Files(settings.app) if settings.reload else None
        self._slots = [ExecutorSlot(self, pool, share) for pool in settings.pools for share in shares(pool)]
        self._burst = Burst(self._slots, self._executors, self._served)
        self._health = HealthCheck(self._settings, self._slots, self._executors, self._leases)
        self._number = 0
        self._meeting = asyncio.Lock()
        self.stopping = asyncio.Event()
        self.draining = asyncio.Event()
        self._hurry = asyncio.Event()
        self._exit_code = 0
        self._server: str | None = None  # which it is, until that has been said
        self._tally = Tally()
        self._may_leave = True  # no: some of our processes cannot be killed, so what they hold may not be given back

    async def run(self) -> int:
        linux.adopt_orphans()
        self._heed_signals()
        log.info("worker %s starts, importing %s", self.worker, self._settings.app)
        duties: list[Duty] = [
            self._leases.renew,
            self._leases.read_inbox,
            self._leases.exclusives.keep,
            self._leases.app_warnings.keep,
            self._served.keep,
            self._schedules.keep,
            self._peers.keep,
            self._watch.keep,
            self._health.keep,
            self._reap,
            self._logs.keep,
            self._logs.keep_small,
            self._usage_sampler.keep,
        ]
        if self._settings.allow_exec:
            log.warning("--allow-exec: this worker runs any program that is enqueued, as user %s", user_name())
        if self._files:
            log.warning("--reload is for development: each change of a file starts the app anew")
            duties.append(self._watch_files)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run_duty(duty)) for duty in duties]
            await self._work(group)
            await cancel_all(running)
        await self._leave()
        self._tally.log()
        log.info("worker %s has stopped", self.worker)
        return self._exit_code

    def _heed_signals(self) -> None:
        linux.reset_signals()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        """The first signal asks to stop, the second to hurry."""
        (self._hurry if self.stopping.is_set() else self.stopping).set()

    async def _work(self, group: asyncio.TaskGroup) -> None:
        """Keep executors running until a signal comes, the app cannot be loaded, or there is nothing more to do."""
        working = group.create_task(self._fill_slots(group))
        await first(working, self.stopping.wait())
        if working.done():
            return
        seconds = self._settings.stop_within / 1000
        log_stop(self.worker, seconds, [job for executor in self._executors.values() for job in executor.running])
        notify(STOPPING)
        self._tell_all_to_stop(seconds)
        if not any(executor.held for executor in self._executors.values()):
            self._store.stop_retrying()  # if it is away, there is nothing to tell it
        await first(working, self._hurry.wait(), timeout=seconds + GRACE)
        self._store.stop_retrying()
        if self._hurry.is_set():
            log.info("worker %s stops at once, as it was told a second time", self.worker)
            self._tell_all_to_stop(0)
            await first(working, timeout=GRACE)
        for executor in self._executors.values():
            executor.kill()
        await working

    def _drain(self) -> None:
        """Claim no more, and end when all jobs have, however long they take."""
        if not self.draining.is_set():
            log.info("worker %s is drained: it ends when its jobs have", self.worker)
            self.draining.set()
            self._health.introduction.is_draining = True

    async def _fill_slots(self, group: asyncio.TaskGroup) -> None:
        """Returns when no place is kept any more, and the last executor is buried."""
        await asyncio.wait([group.create_task(slot.keep(group)) for slot in self._slots])
        while left := [monitoring for slot in self._slots for monitoring in slot.monitored.values()]:
            await asyncio.wait(left)

    def _tell_all_to_stop(self, seconds: float) -> None:
        for executor in self._executors.values():
            executor.tell_to_stop(seconds)
            if not executor.ready.is_set():  # it does not hear before it has imported the app, and has claimed nothing
                asyncio.get_running_loop().call_later(GRACE, executor.kill)

    # Executors

    async def start_executor(self, pool: Pool) -> ExecutorProcess:
        self._number += 1
        name = f"{self.worker}.{self._number}"
        descriptors = {"lock": self._lock.descriptor, "pulse": self._leases.pulse.descriptor}
        executor = self._executors[name] = await ExecutorProcess.start(name, self._settings, pool, **descriptors)
        return executor

    async def monitor(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        """See an executor to its end. When it is dead, all that it started is killed before anything is given back."""
        try:
            code = await self._hear_to_the_end(executor, slot)
            executor.kill_jobs()
        finally:
            del self._executors[executor.name]
            executor.close()
        is_over = self._note_end(executor, code)
        if not await self._kill_orphans():
            self._may_leave = False
        elif self._store.is_connected:
            await self._give_back(executor, "" if is_over else f"the executor died: {_describe(code)}")
        await remove(self._folder.path / executor.name.replace("/", "-"))

    async def _hear_to_the_end(self, executor: ExecutorProcess, slot: ExecutorSlot) -> int:
        """Hear what an executor says until it is dead. Returns its exit code."""
        if self.stopping.is_set():
            executor.tell_to_stop(0)
        hearing = asyncio.create_task(self._hear(executor, slot))
        try:
            await first(executor.wait(), hearing)
            executor.kill()  # silent but alive: it has closed the connection
            code = await executor.wait()
            await first(hearing, timeout=LAST_WORDS)
            return code
        finally:
            await cancel_all([hearing])

    async def _hear(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        async for message in executor.receive():
            match message:
                case messages.AppLoaded():
                    await self._note_app(executor, slot, message)
                case messages.LoadedFiles(paths):
                    if self._files:
                        self._files.know(paths)
                case messages.LoadFailed(reason):
                    executor.waits_for_change = self._settings.reload
                    self._note_failed_import(reason)
                case _:
                    self._note(executor, slot, message)

    async def _note_app(self, executor: ExecutorProcess, slot: ExecutorSlot, app: messages.AppLoaded) -> None:
        await self._meet(app.queues, app.url, app.home, app.namespace, app.timeout)
        if self._store.is_connected:
            await self._schedules.declare(app.schedules)
            notify(READY)
        if queues := self._served.of(slot.pool):
            executor.send(messages.ServeQueues(queues))
        self._say_ready(app.tasks)
        executor.ready.set()

    def _note(self, executor: ExecutorProcess, slot: ExecutorSlot, message: messages.FromExecutor) -> None:
        executor.note(message)
        slot.heard(executor, message)
        self._leases.heard(message)
        self._tally.heard(message)
        if isinstance(message, messages.JobsClaimed):
            self._burst.go_on()
        elif isinstance(message, messages.Idle):
            self.leave_if_idle()

    @property
    def may_claim(self) -> bool:
        return self._watch.may_claim

    def _tell_whether_to_claim(self) -> None:
        for slot in self._slots:
            slot.tell_whether_to_claim()

    def _is_running(self, id: str, attempt: int) -> bool:
        return any(executor.holds(id, attempt) for executor in self._executors.values())

    def leave_if_idle(self) -> None:
        if self._settings.burst:
            self._burst.leave_if_idle()

    def _tell_queues(self, pool: str) -> None:
        """A pool serves other queues than before."""
        for slot in self._slots:
            if slot.pool.name == pool and (queues := self._served.of(slot.pool)) is not None:
                for executor in slot.monitored:
                    executor.is_idle = False
                    executor.send(messages.ServeQueues(queues))
        self._burst.go_on()
        self._leases.renew_soon()

    async def _meet(
        self,
        queues: list[str],
        url: str | None,
        home: str,
        namespace: str,
        timeout: float,
    ) -> None:
        """The first executor has imported the app: now we know which store to use. Nothing is claimed before that."""
        async with self._meeting:
            if self._store.is_connected or self._exit_code:
                return
            address = Address(url, Path(home) if home else None, namespace, timeout)
            trust = await check_server(address, self.stopping, accept_data_loss=self._settings.accept_data_loss)
            if trust.is_trusted:
                self._server = trust.server
                self._warn_of_unserved(queues)
                self._lock.belongs_to(address, self._folder.path)
                self._store.connect(address)
            else:
                self._exit_code = 1
                self.stopping.set()

    def _say_ready(self, tasks: list[str]) -> None:
        """The first executor is ready, so the worker is. A later one may have imported other code."""
        self._health.know_tasks(tasks)
        if self._server is not None and not self.stopping.is_set():
            log_banner(self.worker, self._settings, tasks, self._store.address, self._server)
            self._server = None

    def _warn_of_unserved(self, queues: list[str]) -> None:
        if unserved := [queue for queue in queues if not self._served.serves(queue)]:
            log.warning(
                "tasks of %s use queues that this worker does not serve: %s (--queues)",
                self._settings.app,
                ", ".join(unserved),
            )

    def _note_failed_import(self, traceback: str) -> None:
        """An app that never could be loaded ends the worker; one that could may be in the middle of a deploy."""
        log.error("the app %s cannot be loaded:\n%s", self._settings.app, traceback)
        if self._settings.reload:
            goes_on = "; the version before goes on" if self._store.is_connected else ""
            log.error("waiting for the next change of a file%s", goes_on)
        elif not self._store.is_connected:
            self._exit_code = 1
            self.stopping.set()

    async def _kill_orphans(self) -> bool:
        """Kill whatever was left to us, with all its descendants, which are left to us in turn.

        Returns whether all are dead. If not, nothing may be given back: the leases have to end by themselves.
        """
        for _ in range(LOOKS_AT_ORPHANS):
            left = processes.kill_children(but=[executor.pid for executor in self._executors.values()])
            if not left:
                return True
            await asyncio.sleep(0.01)
        log.error("processes %s of a dead executor cannot be killed; its jobs wait for the end of their leases", left)
        return False

    def _note_end(self, executor: ExecutorProcess, code: int) -> bool:
        """Return whether an executor ended as it should.

        Then it holds nothing, unless it was to stop: a job may have ended it, also with exit code 0.
        """
        is_over = (code == 0 and not executor.held) or executor.was_not_needed or executor.waits_for_change
        if self.stopping.is_set() or is_over:
            log.info("executor %s has ended", executor.name)
            return True
        while_importing = "" if executor.ready.is_set() else f", while it imported {self._settings.app}"
        log.error("executor %s died: %s%s", executor.name, _describe(code), while_importing)
        return False

    async def _give_back(self, executor: ExecutorProcess, death: str) -> None:
        """Take back what a dead executor held: charged if it died by itself, and not if it was to stop."""
        try:
            if death:
                await self._leases.lose(executor=executor.name, reason=death)
            else:
                await self._leases.hand_back(executor)
        except errors.StoreUnavailable as error:
            log.error("the jobs of %s wait for the end of their leases: %s", executor.name, error)

    async def _watch_files(self) -> None:
        while self._files:
            await asyncio.sleep(LOOK_AT_FILES_EVERY)
            if changed := await asyncio.to_thread(self._files.changed):
                log.info("changed: %s; starting the app anew", ", ".join(map(_short, changed)))
                for slot in self._slots:
                    slot.renew_code(self._settings.stop_within / 1000)

    # The end

    async def _reap(self) -> None:
        """Take note of orphans that have died: they are ours, wherever in the worker they were started."""
        while True:
            processes.reap_children(but=[executor.pid for executor in self._executors.values()])
            await asyncio.sleep(REAP_EVERY)

    async def _leave(self) -> None:
        """Remove all traces: the worker is not there any more. Nobody would stop us, so a store is not waited for."""
        self._store.stop_retrying()
        try:
            if self._store.is_connected:
                await self._logs.send(last=True)
                await self._usage_sampler.tell()
            if self._store.is_connected and self._may_leave:
                await self._leases.lose(worker=self.worker, reason="the worker stopped")
            if self._may_leave and not self._logs.are_left:
                self._lock.remove()
        except errors.HoldfastError as error:
            log.warning("could not say goodbye: %s", error)
        if not self._store.is_connected or not self._logs.are_left:  # or the next worker of this node sends them
            await remove(self._folder.path)
        await self._store.close()


def _short(path: str) -> str:
    """A path as seen from here."""
    return path.removeprefix(f"{os.getcwd()}/")


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"signal {-code}"
