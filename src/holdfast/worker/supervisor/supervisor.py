"""The supervisor: a worker's first process. It imports no user code, so user code cannot stop it.

    supervisor ──┬── executor ──── zygote ──── jobs
                 └── executor ...

It renews the leases of all executors, receives cancellations, restarts executors that die, requeues their jobs, and
stops everything within one deadline.
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
from holdfast.worker.event_loop import cancel_all, remove_folder, wait_for_first
from holdfast.worker.linux import READY, STOPPING, notify, user_name
from holdfast.worker.output.console import ConsoleStream
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.settings import Pool, WorkerSettings
from holdfast.worker.supervisor.banner import log_banner, log_stop
from holdfast.worker.supervisor.dead_workers import DeadWorkers
from holdfast.worker.supervisor.duties import WorkerDuties
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.supervisor.health import HealthCheck, UsageSampler
from holdfast.worker.supervisor.preflight import check_server
from holdfast.worker.supervisor.reload import SourceFiles
from holdfast.worker.supervisor.slots import Burst, ExecutorSlot, shares
from holdfast.worker.supervisor.worker_lock import WorkerFolder, WorkerLock

log = logging.getLogger("holdfast.worker")

REAP_INTERVAL = 1.0  # seconds
FILE_CHECK_INTERVAL = 0.5  # seconds
GRACE = 3.0  # seconds between the deadline of a shutdown and the kill
KILL_ATTEMPTS = 1000  # to kill orphans, 10 ms apart
LAST_MESSAGES_TIMEOUT = 1.0  # seconds to read the last messages of a dead executor


class Supervisor:
    """Runs a worker until it is stopped, and returns the exit code."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.worker = f"{settings.node or node_name()}/{new_id()[-8:]}"
        self.stopping = asyncio.Event()
        self._lock = WorkerLock(self.worker)
        self._folder = WorkerFolder(self._lock)
        self._settings = msgspec.structs.replace(settings, directory=str(self._folder.path))
        self._store = RetryingStore()
        self._executors: dict[str, ExecutorProcess] = {}
        self._slots = [ExecutorSlot(self, pool, share) for pool in settings.pools for share in shares(pool)]
        self._duties = WorkerDuties(
            self.worker,
            self._settings,
            self._store,
            self._executors,
            self._slots,
            console=ConsoleStream(1) if settings.show_output else None,
            on_work=self._resume_burst,
        )
        self._leases = self._duties.leases
        self._burst = Burst(self._slots, self._executors)
        self._usage_sampler = UsageSampler(self._store, self._executors)
        self._dead_workers = DeadWorkers(self._lock, self._store, self._leases)
        self._health = HealthCheck(self._slots, self._executors, self._leases, publish=self._duties.publish)
        self._files = SourceFiles(settings.app) if settings.reload else None
        self._number = 0
        self._connecting = asyncio.Lock()
        self._second_signal = asyncio.Event()
        self._exit_code = 0
        self._server: str | None = None  # its name and version, until the banner is logged
        # False if a process could not be killed: its jobs may still run, so they wait for their leases to expire.
        self._all_killed = True

    async def run(self) -> int:
        linux.set_process_name("hf:supervisor")
        linux.adopt_orphans()
        self._handle_signals()
        log.info("worker %s starts, importing %s", self.worker, self._settings.app)
        duties = [self._dead_workers.run, self._health.run, self._reap, self._usage_sampler.run]
        if self._settings.allow_exec:
            log.warning("--allow-exec: this worker runs any program that is enqueued, as user %s", user_name())
        if self._files:
            log.warning("--reload is for development: the app is reloaded whenever a file changes")
            duties.append(self._reload_on_change)
        async with self._duties.running(*duties) as group:
            await self._work(group)
        await self._deregister()
        self._duties.tally.log()
        log.info("worker %s has stopped", self.worker)
        return self._exit_code

    def _handle_signals(self) -> None:
        linux.reset_signals()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        """The first signal stops the worker, the second skips the deadline."""
        (self._second_signal if self.stopping.is_set() else self.stopping).set()

    async def _work(self, group: asyncio.TaskGroup) -> None:
        """Keep executors running until a signal arrives, the app cannot be imported, or there is no work."""
        working = group.create_task(self._fill_slots(group))
        await wait_for_first(working, self.stopping.wait())
        if working.done():
            return
        seconds = self._settings.stop_within / 1000
        log_stop(self.worker, seconds, [job for executor in self._executors.values() for job in executor.running])
        notify(STOPPING)
        self._stop_executors(seconds)
        if not any(executor.held for executor in self._executors.values()):
            self._store.stop_retrying()  # there is nothing to report
        await wait_for_first(working, self._second_signal.wait(), timeout=seconds + GRACE)
        self._store.stop_retrying()
        if self._second_signal.is_set():
            log.info("worker %s requeues its running jobs at once: it received a second signal", self.worker)
            self._stop_executors(0)
            await wait_for_first(working, timeout=GRACE)
        for executor in self._executors.values():
            executor.kill()
        await working

    async def _fill_slots(self, group: asyncio.TaskGroup) -> None:
        """Keep all slots filled until they are closed and the last executor has exited."""
        await asyncio.wait([group.create_task(slot.run(group)) for slot in self._slots])
        while left := [monitoring for slot in self._slots for monitoring in slot.monitored.values()]:
            await asyncio.wait(left)

    def _stop_executors(self, seconds: float) -> None:
        for executor in self._executors.values():
            executor.stop(seconds)
            if not executor.ready.is_set():  # it reads messages only after it has imported the app
                asyncio.get_running_loop().call_later(GRACE, executor.kill)

    # Executors

    @property
    def draining(self) -> asyncio.Event:
        return self._duties.draining

    @property
    def may_claim(self) -> bool:
        return self._duties.store_watch.may_claim

    def _resume_burst(self) -> None:
        self._burst.resume()

    def leave_if_idle(self) -> None:
        if self._settings.burst:
            self._burst.leave_if_idle()

    async def start_executor(self, pool: Pool) -> ExecutorProcess:
        self._number += 1
        name = f"{self.worker}.{self._number}"
        descriptors = {"lock": self._lock.descriptor, "lease_clock": self._leases.clock.descriptor}
        executor = self._executors[name] = await ExecutorProcess.start(name, self._settings, pool, **descriptors)
        return executor

    async def monitor(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        """Monitor an executor until it exits. All that it started is killed before its jobs are requeued."""
        try:
            code = await self._wait_for_exit(executor, slot)
            executor.kill_jobs()
        finally:
            del self._executors[executor.name]
            executor.close()
        is_expected = self._log_exit(executor, code)
        if not await self._kill_orphans():
            self._all_killed = False
        elif self._store.is_connected:
            await self._requeue_jobs(executor, "" if is_expected else f"the executor died: {_describe(code)}")
        await remove_folder(self._folder.path / executor.name.replace("/", "-"))

    async def _wait_for_exit(self, executor: ExecutorProcess, slot: ExecutorSlot) -> int:
        """Handle the messages of an executor until it exits. Return its exit code."""
        if self.stopping.is_set():
            executor.stop(0)
        receiving = asyncio.create_task(self._receive(executor, slot))
        try:
            await wait_for_first(executor.wait(), receiving)
            executor.kill()  # if it lives: it has closed the connection
            code = await executor.wait()
            await wait_for_first(receiving, timeout=LAST_MESSAGES_TIMEOUT)
            return code
        finally:
            await cancel_all([receiving])

    async def _receive(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        async for message in executor.receive():
            match message:
                case messages.AppLoaded():
                    await self._app_loaded(executor, message)
                case messages.LoadedFiles(paths):
                    if self._files:
                        self._files.add(paths)
                case messages.LoadFailed(reason):
                    executor.waits_for_change = self._settings.reload
                    self._load_failed(reason)
                case _:
                    self._duties.handle(executor, slot, message)
                    if isinstance(message, messages.Idle):
                        self.leave_if_idle()

    async def _app_loaded(self, executor: ExecutorProcess, app: messages.AppLoaded) -> None:
        await self._connect(app)
        if self._store.is_connected:
            await self._duties.declarations.declare(app.limits, app.schedules, app.subscriptions)
            self._duties.shared_queues.declare(app.shared_queues)
            notify(READY)
        self._duties.set_app(app.tasks, app.in_process, app.revision)
        self._log_ready(app.tasks)
        executor.ready.set()

    async def _connect(self, app: messages.AppLoaded) -> None:
        """Connect to the store of the app, which the first executor has imported. Nothing is claimed before that."""
        async with self._connecting:
            if self._store.is_connected or self._exit_code:
                return
            address = Address(app.url, Path(app.home) if app.home else None, app.namespace, app.timeout)
            check = await check_server(address, self.stopping, accept_data_loss=self._settings.accept_data_loss)
            if check.passed:
                self._server = check.server
                self._warn_about_unserved(app.queues)
                self._lock.set_store(address, self._folder.path)
                self._store.connect(address)
            else:
                self._exit_code = 1
                self.stopping.set()

    def _log_ready(self, tasks: list[str]) -> None:
        """Log the banner when the first executor is ready."""
        if self._server is not None and not self.stopping.is_set():
            log_banner(self.worker, self._settings, tasks, self._store.address, self._server)
            self._server = None

    def _warn_about_unserved(self, queues: list[str]) -> None:
        if unserved := [queue for queue in queues if not self._duties.served.serves(queue)]:
            log.warning(
                "tasks of %s use queues that this worker does not serve: %s (--queues)",
                self._settings.app,
                ", ".join(unserved),
            )

    def _load_failed(self, reason: str) -> None:
        """Stop the worker if the app was never imported; a later failure may be the middle of a deploy."""
        log.error("could not import the app %s:\n%s", self._settings.app, reason)
        if self._settings.reload:
            meanwhile = "; the previous version keeps running" if self._store.is_connected else ""
            log.error("waiting for a file to change%s", meanwhile)
        elif not self._store.is_connected:
            self._exit_code = 1
            self.stopping.set()

    async def _kill_orphans(self) -> bool:
        """Kill all orphaned processes and their descendants, which become orphans of this process too.

        Return whether all are dead. If not, no job may be requeued: the leases have to expire.
        """
        for _ in range(KILL_ATTEMPTS):
            left = processes.kill_children(but=[executor.pid for executor in self._executors.values()])
            if not left:
                return True
            await asyncio.sleep(0.01)
        log.error("could not kill processes %s of a dead executor; its jobs wait until their leases expire", left)
        return False

    def _log_exit(self, executor: ExecutorProcess, code: int) -> bool:
        """Return whether the exit of an executor was expected.

        Unless the worker stops, it must not hold a job: a job may have ended the executor, also with exit code 0.
        """
        is_expected = (code == 0 and not executor.held) or executor.was_superseded or executor.waits_for_change
        if self.stopping.is_set() or is_expected:
            log.info("executor %s has exited", executor.name)
            return True
        while_importing = "" if executor.ready.is_set() else f", while it imported {self._settings.app}"
        log.error("executor %s died: %s%s", executor.name, _describe(code), while_importing)
        return False

    async def _requeue_jobs(self, executor: ExecutorProcess, death: str) -> None:
        """Requeue the jobs of an executor; a crash is charged to each only if it died unexpectedly."""
        try:
            if death:
                await self._leases.requeue_orphaned(executor=executor.name, reason=death)
            else:
                await self._leases.release_all(executor)
        except errors.StoreUnavailable as error:
            log.error("the jobs of %s wait until their leases expire: %s", executor.name, error)

    # Duties of a worker that has processes

    async def _reload_on_change(self) -> None:
        while self._files:
            await asyncio.sleep(FILE_CHECK_INTERVAL)
            if changed := await asyncio.to_thread(self._files.changed):
                log.info("changed: %s; reloading the app", ", ".join(map(_relative, changed)))
                for slot in self._slots:
                    slot.reload(self._settings.stop_within / 1000)

    async def _reap(self) -> None:
        """Reap dead orphans: this process adopts all that any process of the worker has started."""
        while True:
            processes.reap_children(but=[executor.pid for executor in self._executors.values()])
            await asyncio.sleep(REAP_INTERVAL)

    async def _deregister(self) -> None:
        """Send the last logs and remove the worker from the store, without retries: nothing could stop the wait."""
        self._store.stop_retrying()
        logs = self._duties.logs
        try:
            if self._store.is_connected:
                await logs.send(last=True)
                await self._duties.shared_queues.settle()
                await self._duties.subscriptions.give_back()
                await self._usage_sampler.save()
            if self._store.is_connected and self._all_killed:
                await self._leases.requeue_orphaned(worker=self.worker, reason="the worker stopped")
            if self._all_killed and not logs.has_unsent:
                self._lock.remove()
        except errors.HoldfastError as error:
            log.warning("could not deregister the worker: %s", error)
        if not self._store.is_connected or not logs.has_unsent:  # else the next worker of this node sends them
            await remove_folder(self._folder.path)
        await self._store.close()


def _relative(path: str) -> str:
    return path.removeprefix(f"{os.getcwd()}/")


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"signal {-code}"
