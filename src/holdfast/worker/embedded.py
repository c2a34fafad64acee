"""A worker inside a program: it starts and ends with it, and runs jobs as coroutines and threads of this process.

    async with jobs.worker():        coroutines run in this event loop
    with jobs.worker():              in an event loop of their own, in a thread

It is a worker as any other, with leases, cancelling and hand-over, but it has one process, which is the program's. So
there are no runners apart from it, and what a job does to its process it does to the program.
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
from holdfast.names import new_id, node_name
from holdfast.store import Address, commands
from holdfast.text import suggestion
from holdfast.units import Duration
from holdfast.worker import messages
from holdfast.worker.app import App
from holdfast.worker.executor.executor import Executor
from holdfast.worker.output.shipping import Logs
from holdfast.worker.processes import Usage, usage_of
from holdfast.worker.retrying import RetryingStore
from holdfast.worker.runners.run_limits import probes
from holdfast.worker.runners.selection import IN_PROCESS
from holdfast.worker.settings import POOL_SETTINGS, WORKER_SETTINGS, Order, Pool, Start, WorkerSettings
from holdfast.worker.settings_file import SettingsFile, make_settings
from holdfast.worker.supervisor.banner import Tally, log_banner
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.supervisor.health import WorkerReport
from holdfast.worker.supervisor.leases import Leases
from holdfast.worker.supervisor.peers import WorkerFolder, WorkerLock
from holdfast.worker.supervisor.preflight import check_server
from holdfast.worker.supervisor.schedules import WorkerSchedules
from holdfast.worker.supervisor.served_queues import ServedQueues
from holdfast.worker.supervisor.slots import ExecutorSlot
from holdfast.worker.supervisor.store_watch import StoreWatch
from holdfast.worker.transport import open_ends
from holdfast.worker.waiting import Duty, cancel_all, first, run_duty

log = logging.getLogger("holdfast.worker")

GRACE = 3.0  # seconds after the deadline in which jobs are handed back
LOOK_EVERY = 5.0  # seconds, at what this process uses


class Given(TypedDict, total=False):
    """The settings of an embedded worker: a part of those of `holdfast work`, typed by hand."""

    queues: str | Sequence[str] | Mapping[str, int]
    order: Order
    concurrency: int
    lease: Duration
    stop_within: Duration
    node: str
    accept_data_loss: bool


class _ThisProcess:
    """The process of an executor that has none of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def poll(self) -> int | None:
        return None

    def kill(self) -> None:
        """It would be the program that dies."""


class EmbeddedWorker:
    """Runs jobs while its `with` block lasts. Entering waits for nothing; leaving, for jobs to end, within a deadline.

    Of jobs that have not ended by then coroutines are cancelled; all are handed back, and run elsewhere. If it is
    drained it ends when its jobs have, and the block goes on without it.
    """

    def __init__(self, app: App, **given: Unpack[Given]) -> None:
        settings = _settings(given)
        self.name = f"{settings.node or node_name()}/{new_id()[-8:]}"
        self._serving = _Serving(app, self.name, settings)
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None  # of the thread

    async def __aenter__(self) -> EmbeddedWorker:
        self._check_new()
        self._task = asyncio.create_task(self._serving.run(), context=Context())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._serving.stopping.set()
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
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._serving.stopping.set)
            self._thread.join()
        if self._failure and not kind:
            raise self._failure

    def _check_new(self) -> None:
        if self._task or self._thread:
            raise errors.HoldfastError("a worker runs once: make another for another `with` block")

    def _run(self, ready: threading.Event) -> None:
        """In a thread: serve in an event loop of its own."""

        async def run() -> None:
            self._loop = asyncio.get_running_loop()
            ready.set()
            await self._serving.run()

        try:
            with asyncio.Runner() as runner:
                runner.run(run())
        except BaseException as error:
            self._failure = error
            log.exception("the worker inside this program has failed")
        finally:
            ready.set()


class _Serving:
    """What a supervisor does for its executors, in the event loop that they share with it."""

    def __init__(self, app: App, name: str, settings: WorkerSettings) -> None:
        self.stopping = asyncio.Event()
        self._app = app
        self._name = name
        self._settings = settings
        self._store = RetryingStore()
        self._executors: dict[str, ExecutorProcess] = {}
        self._inside: dict[ExecutorProcess, Executor] = {}
        self._not_handed_back: set[ExecutorProcess] = set()
        self._introduction = WorkerReport(settings)
        self._introduction.tasks = list(app.tasks)
        self.draining = asyncio.Event()
        self._slot = ExecutorSlot(self, settings.pools[0])
        self._watch = StoreWatch(
            self._store,
            accept_data_loss=settings.accept_data_loss,
            on_change=self._slot.tell_whether_to_claim,
        )
        self._served = ServedQueues(settings.pools, self._store, on_change=self._tell_queues)
        self._schedules = WorkerSchedules(self._store)
        self._used = Usage()
        self._tally = Tally()
        self._number = 0
        self._has_left = False  # and said goodbye: nobody has to clear up after it

    async def run(self) -> None:
        """Serve until the program says stop, or the worker is drained."""
        address, accept = self._app.address, self._settings.accept_data_loss
        trust = await check_server(address, self.stopping, accept_data_loss=accept)
        if not trust.is_trusted or self.stopping.is_set():
            return
        log_banner(self._name, self._settings, list(self._app.tasks), address, trust.server)
        self._say_what_is_not_possible()
        lock = WorkerLock(self._name)
        # No TemporaryDirectory: a forked copy of this program would remove it at its end.
        folder = WorkerFolder(lock)
        try:
            self._settings = msgspec.structs.replace(self._settings, directory=str(folder.path))
            self._logs = Logs(self._store, folder.path, self._is_running)
            lock.belongs_to(address, folder.path)
            await self._serve(address)
        finally:
            folder.close()
            self._clear_up(folder, lock)
        log.info("worker %s has stopped", self._name)

    def _clear_up(self, folder: WorkerFolder, lock: WorkerLock) -> None:
        """Leave behind, as a supervisor does, only what the next worker of this node is to send or take back."""
        are_left = self._logs.are_left
        if not are_left:
            shutil.rmtree(folder.path, ignore_errors=True)
        if self._has_left and not are_left:
            lock.remove()
        else:
            os.close(lock.descriptor)  # this process lives on, and would hold the lock

    async def _serve(self, address: Address) -> None:
        self._leases = Leases(
            self._name,
            self._settings,
            self._store,
            self._executors,
            served=self._served,
            schedules=self._schedules,
            on_drain=self._drain,
        )
        self._introduce()
        self._store.connect(address)
        try:
            await self._work()
        finally:
            try:
                await self._leave()
            finally:
                self._leases.pulse.close()

    def _say_what_is_not_possible(self) -> None:
        apart = [name for name, task in self._app.tasks.items() if (task.chosen.runner or "thread") not in IN_PROCESS]
        if apart:
            log.warning(
                "inside a program there are no processes for jobs: %s run in threads, whatever runner they name",
                ", ".join(apart),
            )
        if limited := [name for name, task in self._app.tasks.items() if task.chosen.run.needs_process]:
            log.warning(
                "jobs of %s need processes for their limits: they are left to other workers", ", ".join(limited)
            )

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            duties: list[Duty] = [
                self._leases.renew,
                self._leases.read_inbox,
                self._leases.exclusives.keep,
                self._leases.app_warnings.keep,
                self._served.keep,
                self._schedules.keep,
                self._look,
                self._watch.keep,
                self._logs.keep,
                self._logs.keep_small,
            ]
            running = [group.create_task(run_duty(duty)) for duty in duties]
            group.create_task(self._schedules.declare(self._app.declared.values()))
            keeping = group.create_task(self._slot.keep(group))
            await first(self.stopping.wait(), self._drained(keeping))
            await self._stop(self._slot)
            await keeping
            await cancel_all(running)

    def _drain(self) -> None:
        """Claim no more, and end when all jobs have, however long they take."""
        if not self.draining.is_set():
            log.info("worker %s is drained: it ends when its jobs have", self._name)
            self.draining.set()
            self._introduction.is_draining = True
            self._introduce()
            self._leases.renew_soon()

    async def _drained(self, keeping: asyncio.Task[None]) -> None:
        """Wait until its place is not kept any more, and the last executor has ended."""
        await asyncio.wait({keeping})
        while self._slot.monitored:
            await asyncio.wait(self._slot.monitored.values())

    def _introduce(self) -> None:
        self._leases.about = self._introduction.words(list(self._executors.values()), self._used)

    def _is_running(self, id: str, attempt: int) -> bool:
        return any(executor.holds(id, attempt) for executor in self._executors.values())

    async def _look(self) -> None:
        while True:
            self._used = await probes.call(usage_of, os.getpid())
            self._introduce()
            await asyncio.sleep(LOOK_EVERY)

    async def _stop(self, slot: ExecutorSlot) -> None:
        """Let jobs end or yield within the deadline; then nothing is waited for, not even the store."""
        seconds = self._settings.stop_within / 1000
        for executor in slot.monitored:
            executor.tell_to_stop(seconds)
        if slot.monitored:
            await asyncio.wait(slot.monitored.values(), timeout=seconds + GRACE)
        self._store.stop_retrying()
        await cancel_all(slot.monitored.values())

    # As the places of a worker need it

    @property
    def may_claim(self) -> bool:
        return self._watch.may_claim

    async def start_executor(self, pool: Pool) -> ExecutorProcess:
        self._number += 1
        name = f"{self._name}.{self._number}"
        ours, its = socket.socketpair()
        executor = ExecutorProcess(name, _ThisProcess(), *await open_ends(ours))
        start = Start(name=name, parent=os.getpid(), settings=self._settings, pool=pool, control=-1, pulse=-1)
        self._inside[executor] = Executor(self._app, start, control=its, zygote=None, pulse=self._leases.pulse)
        self._executors[name] = executor
        self._not_handed_back.add(executor)
        return executor

    def _tell_queues(self, _: str) -> None:
        if (queues := self._served.of(self._slot.pool)) is not None:
            for executor in self._slot.monitored:
                executor.send(messages.ServeQueues(queues))
        self._leases.renew_soon()

    async def monitor(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        if queues := self._served.of(slot.pool):
            executor.send(messages.ServeQueues(queues))
        executor.ready.set()
        if self.stopping.is_set():  # since it was started
            executor.tell_to_stop(0)
        hearing = asyncio.create_task(self._hear(executor, slot))
        try:
            await self._inside.pop(executor).run()
            await hearing
        finally:
            await cancel_all([hearing])
            del self._executors[executor.name]
            executor.close()
        await self._hand_back(executor)

    async def _hand_back(self, executor: ExecutorProcess) -> None:
        await self._leases.hand_back(executor)
        self._not_handed_back.discard(executor)

    async def _hear(self, executor: ExecutorProcess, slot: ExecutorSlot) -> None:
        async for message in executor.receive():
            executor.note(message)
            slot.heard(executor, message)
            self._leases.heard(message)
            self._tally.heard(message)

    def leave_if_idle(self) -> None:
        """There are no bursts here."""

    async def _leave(self) -> None:
        """Hand back what is left, and have the worker forgotten; if the store is away, at once."""
        self._store.stop_retrying()
        try:
            await self._logs.send(last=True)
            for executor in list(self._not_handed_back):
                await self._hand_back(executor)
            await self._store.run(commands.requeue_orphaned(worker=self._name, reason="the worker stopped"))
            self._has_left = True
        except errors.HoldfastError as error:
            log.warning("could not say goodbye, so jobs wait for the end of their leases: %s", error)
        await self._store.close()


def _settings(given: Mapping[str, Any]) -> WorkerSettings:
    names = Given.__annotations__
    if unknown := next((name for name in given if name not in names), None):
        raise errors.Invalid(f"a worker inside a program has no setting {unknown!r}{suggestion(unknown, names)}")
    settings = {**POOL_SETTINGS, **WORKER_SETTINGS}
    values = {name: settings[name].read(value, name) for name, value in given.items()}
    program = os.path.basename(sys.argv[0]) or "python"
    return make_settings(program, values, SettingsFile())
