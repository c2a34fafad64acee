"""The embedded worker: it starts and ends with a program, and runs jobs as coroutines and threads of its process.

    async with jobs.worker():        coroutines run in this event loop
    with jobs.worker():              they run in another event loop, in a thread

Leases, cancellation and shutdown work as in any other worker. But there is only the program's process: no runner starts
another, and a job that kills its process kills the program.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, TypedDict, Unpack

import msgspec

from holdfast import errors
from holdfast.client.limits import declarations
from holdfast.names import new_id, node_name
from holdfast.store import Address
from holdfast.text import suggestion
from holdfast.units import Duration
from holdfast.worker.app import App
from holdfast.worker.event_loop import cancel_all, wait_for_first
from holdfast.worker.executor.executor import Executor
from holdfast.worker.processes import usage_of
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.runners.run_limits import probes
from holdfast.worker.runners.selection import IN_PROCESS
from holdfast.worker.settings import POOL_SETTINGS, WORKER_SETTINGS, ExecutorStart, Order, Pool, WorkerSettings
from holdfast.worker.settings_file import SettingsFile, make_settings
from holdfast.worker.supervisor.banner import log_banner
from holdfast.worker.supervisor.duties import WorkerDuties
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.supervisor.preflight import check_server
from holdfast.worker.supervisor.slots import ExecutorSlot
from holdfast.worker.supervisor.worker_lock import WorkerFolder, WorkerLock
from holdfast.worker.transport import open_reader_and_writer

log = logging.getLogger("holdfast.worker")

GRACE = 3.0  # seconds after the deadline to release jobs
MEASURE_INTERVAL = 5.0  # seconds, of memory and CPU time


class EmbeddedSettings(TypedDict, total=False):
    """The settings of an embedded worker: a part of those of `holdfast work`, typed by hand."""

    queues: str | Sequence[str] | Mapping[str, int]
    order: Order
    concurrency: int
    lease: Duration
    stop_within: Duration
    node: str
    accept_data_loss: bool


class _ThisProcess:
    """Stands for the process of an executor that shares the program's."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def poll(self) -> int | None:
        return None

    def kill(self) -> None:
        """Do nothing: it would kill the program."""


class EmbeddedWorker:
    """Runs jobs while its `with` block runs. Entering does not wait; leaving waits for running jobs, up to a deadline.

    Jobs that still run at the deadline are released, to run elsewhere; coroutines are cancelled first. A worker that is
    drained ends when its jobs have finished, and the block continues without it.
    """

    def __init__(self, app: App, **given: Unpack[EmbeddedSettings]) -> None:
        settings = _settings(given)
        self.name = f"{settings.node or node_name()}/{new_id()[-8:]}"
        self._supervisor = _EmbeddedSupervisor(app, self.name, settings)
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None  # of the thread

    async def __aenter__(self) -> EmbeddedWorker:
        self._check_new()
        self._task = asyncio.create_task(self._supervisor.run(), context=Context())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._supervisor.stopping.set()
        if self._task:
            await self._task

    def __enter__(self) -> EmbeddedWorker:
        self._check_new()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="holdfast-worker", daemon=True)
        self._thread.start()
        ready.wait()
        if not self._loop and self._failure:
            raise self._failure
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._thread and self._loop:
            with suppress(RuntimeError):  # the loop is closed: the worker has ended
                self._loop.call_soon_threadsafe(self._supervisor.stopping.set)
            self._thread.join()
        if self._failure and not kind:
            raise self._failure

    def _check_new(self) -> None:
        if self._task or self._thread:
            raise errors.HoldfastError("this worker has already run: create a new one for each `with` block")

    def _run(self, ready: threading.Event) -> None:
        """Serve in a new event loop; runs in the worker's thread."""

        async def run() -> None:
            self._loop = asyncio.get_running_loop()
            ready.set()
            await self._supervisor.run()

        try:
            with asyncio.Runner() as runner:
                runner.run(run())
        except BaseException as error:
            self._failure = error
            log.exception("the embedded worker failed")
        finally:
            ready.set()


class _EmbeddedSupervisor:
    """The supervisor of an embedded worker: its executors run in the same event loop."""

    def __init__(self, app: App, name: str, settings: WorkerSettings) -> None:
        self.stopping = asyncio.Event()
        self._app = app
        self._name = name
        self._settings = settings
        self._store = RetryingStore()
        self._executors: dict[str, ExecutorProcess] = {}
        self._executor_of: dict[ExecutorProcess, Executor] = {}
        self._unreleased: set[ExecutorProcess] = set()
        self._slot = ExecutorSlot(self, settings.pools[0])
        self._duties: WorkerDuties  # made when the worker has its folder
        self._number = 0
        self._is_deregistered = False

    async def run(self) -> None:
        """Run until the program stops the worker, or it is drained."""
        address, accept = self._app.address, self._settings.accept_data_loss
        check = await check_server(address, self.stopping, accept_data_loss=accept)
        if not check.passed or self.stopping.is_set():
            return
        tasks = list(self._app.tasks)
        log_banner(self._name, self._settings, tasks, address, check.server, starts_processes=False)
        self._warn_about_runners()
        lock = WorkerLock(self._name)
        # Not a TemporaryDirectory: a forked copy of this program would remove it when it exits.
        folder = WorkerFolder(lock)
        try:
            self._settings = msgspec.structs.replace(self._settings, directory=str(folder.path))
            self._duties = WorkerDuties(
                self._name, self._settings, self._store, self._executors, [self._slot], starts_processes=False
            )
            lock.set_store(address, folder.path)
            await self._serve(address)
        finally:
            folder.close()
            self._clean_up(folder, lock)
        log.info("worker %s has stopped", self._name)

    def _clean_up(self, folder: WorkerFolder, lock: WorkerLock) -> None:
        """Remove our files, except what the next worker of this node must send or requeue."""
        logs_left = self._duties.logs.has_unsent
        if not logs_left:
            shutil.rmtree(folder.path, ignore_errors=True)
        if self._is_deregistered and not logs_left:
            lock.remove()
        else:
            os.close(lock.descriptor)  # this process lives on, and would hold the lock

    async def _serve(self, address: Address) -> None:
        self._duties.set_app(list(self._app.tasks), list(self._app.tasks), self._app.revision)
        self._store.connect(address)
        try:
            await self._work()
        finally:
            try:
                await self._deregister()
            finally:
                self._duties.leases.clock.close()

    def _warn_about_runners(self) -> None:
        """Warn about tasks that need a process of their own, which an embedded worker does not start."""
        apart = [
            name
            for name, task in self._app.tasks.items()
            if (task.effective_options.runner or "thread") not in IN_PROCESS
        ]
        if apart:
            log.warning(
                "an embedded worker starts no processes, so jobs of %s run in threads; `holdfast work` runs them in "
                "processes",
                ", ".join(apart),
            )
        if limited := [name for name, task in self._app.tasks.items() if task.effective_options.run.needs_process]:
            log.warning(
                "an embedded worker starts no processes, so it cannot enforce the limits of %s and leaves their jobs "
                "to other workers; start one with `holdfast work`",
                ", ".join(limited),
            )

    async def _work(self) -> None:
        async with self._duties.running(self._measure) as group:
            self._duties.shared_queues.declare(self._app.shared_queues.values())
            filling = group.create_task(self._fill(group))
            await wait_for_first(self.stopping.wait(), self._drained(filling))
            await self._stop(self._slot)
            await filling

    async def _fill(self, group: asyncio.TaskGroup) -> None:
        """Start an executor once what the app declares is declared: limits above all."""
        await self._duties.declarations.declare(
            declarations(self._app.declared_limits.values(), self._app.revision),
            self._app.declared_schedules.values(),
            self._app.declared_subscriptions.values(),
        )
        await self._slot.run(group)

    async def _drained(self, filling: asyncio.Task[None]) -> None:
        """Wait until the slot is closed and the last executor has ended."""
        await asyncio.wait({filling})
        while self._slot.monitored:
            await asyncio.wait(self._slot.monitored.values())

    async def _measure(self) -> None:
        while True:
            self._duties.publish(await probes.call(usage_of, os.getpid()))
            await asyncio.sleep(MEASURE_INTERVAL)

    async def _stop(self, slot: ExecutorSlot) -> None:
        """Let jobs finish or yield within the deadline; after that, wait for nothing, not even the store."""
        seconds = self._settings.stop_within / 1000
        for executor in slot.monitored:
            executor.stop(seconds)
        if slot.monitored:
            await asyncio.wait(slot.monitored.values(), timeout=seconds + GRACE)
        self._store.stop_retrying()
        await cancel_all(slot.monitored.values())

    # The owner of an executor slot

    @property
    def draining(self) -> asyncio.Event:
        return self._duties.draining

    @property
    def may_claim(self) -> bool:
        return self._duties.store_watch.may_claim

    async def start_executor(self, pool: Pool) -> ExecutorProcess:
        self._number += 1
        name = f"{self._name}.{self._number}"
        ours, theirs = socket.socketpair()
        executor = ExecutorProcess(name, _ThisProcess(), *await open_reader_and_writer(ours))
        start = ExecutorStart(
            name=name, parent=os.getpid(), settings=self._settings, pool=pool, control=-1, lease_clock=-1
        )
        clock = self._duties.leases.clock
        self._executor_of[executor] = Executor(self._app, start, control=theirs, zygote=None, lease_clock=clock)
        self._executors[name] = executor
        self._unreleased.add(executor)
        return executor

    async def monitor(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        executor.ready.set()
        if self.stopping.is_set():  # since the executor was started
            executor.stop(0)
        receiving = asyncio.create_task(self._receive(executor, slot))
        try:
            await self._executor_of.pop(executor).run()
            await receiving
        finally:
            await cancel_all([receiving])
            del self._executors[executor.name]
            executor.close()
        await self._release_jobs(executor)

    async def _receive(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        async for message in executor.receive():
            self._duties.handle(executor, slot, message)

    async def _release_jobs(self, executor: ExecutorProcess) -> None:
        await self._duties.leases.release_all(executor)
        self._unreleased.discard(executor)

    def leave_if_idle(self) -> None:
        """Do nothing: an embedded worker has no burst mode."""

    async def _deregister(self) -> None:
        """Release the jobs that are left and remove the worker from the store, without retries."""
        self._store.stop_retrying()
        try:
            await self._duties.logs.send(last=True)
            await self._duties.shared_queues.settle()
            await self._duties.subscriptions.give_back()
            for executor in list(self._unreleased):
                await self._release_jobs(executor)
            await self._duties.leases.requeue_orphaned(worker=self._name, reason="the worker stopped")
            self._is_deregistered = True
        except errors.HoldfastError as error:
            log.warning("could not deregister the worker, so its jobs wait until their leases expire: %s", error)
        await self._store.close()


def _settings(given: Mapping[str, Any]) -> WorkerSettings:
    names = EmbeddedSettings.__annotations__
    if unknown := next((name for name in given if name not in names), None):
        raise errors.Invalid(f"an embedded worker has no setting {unknown!r}{suggestion(unknown, names)}")
    settings = {**POOL_SETTINGS, **WORKER_SETTINGS}
    values = {name: settings[name].read(value, name) for name, value in given.items()}
    program = os.path.basename(sys.argv[0]) or "python"
    return make_settings(program, values, SettingsFile())
