"""The duties that every worker has, whether its executors are processes or it is embedded in a program.

A duty runs for as long as the worker does. One that fails is restarted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast import errors
from holdfast.worker import messages
from holdfast.worker.event_loop import Duty, cancel_all
from holdfast.worker.output.console import ConsoleStream
from holdfast.worker.output.shipping import LogShipper
from holdfast.worker.processes import Usage
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.supervisor.banner import Tally
from holdfast.worker.supervisor.declarations import Declarations
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.supervisor.health import WorkerReport
from holdfast.worker.supervisor.leases import Leases
from holdfast.worker.supervisor.libraries import Libraries
from holdfast.worker.supervisor.limits import WorkerLimits
from holdfast.worker.supervisor.schedules import WorkerSchedules
from holdfast.worker.supervisor.served_queues import ServedQueues
from holdfast.worker.supervisor.shared_queues import SharedQueues
from holdfast.worker.supervisor.slots import ExecutorSlot
from holdfast.worker.supervisor.store_watch import StoreWatch
from holdfast.worker.supervisor.subscriptions import WorkerSubscriptions

log = logging.getLogger("holdfast.worker")

RESTART_DELAY = 1.0  # seconds


class WorkerDuties:
    """What a worker does for its executors. `on_work` is called when there may be new work."""

    def __init__(
        self,
        worker: str,
        settings: WorkerSettings,
        store: RetryingStore,
        executors: Mapping[str, ExecutorProcess],
        slots: Sequence[ExecutorSlot],
        *,
        console: ConsoleStream | None = None,
        on_work: Callable[[], None] = lambda: None,
        starts_processes: bool = True,
    ) -> None:
        self._worker = worker
        self._executors = executors
        self._slots = slots
        self._on_work = on_work
        self._usage = Usage()  # of this process
        self._report = WorkerReport(settings)
        self.draining = asyncio.Event()
        self.served = ServedQueues(settings.pools, store)
        self.schedules = WorkerSchedules(store)
        self.subscriptions = WorkerSubscriptions(worker, store)
        self.declarations = Declarations(WorkerLimits(store), self.schedules, self.subscriptions)
        self.leases = Leases(
            worker,
            settings,
            store,
            executors,
            served=self.served,
            schedules=self.schedules,
            on_drain=self._drain,
            on_loss=self.declarations.declare_again,
        )
        self.logs = LogShipper(store, Path(settings.directory), self._is_running, console=console)
        self.store_watch = StoreWatch(store, accept_data_loss=settings.accept_data_loss, on_change=self._claims_changed)
        self.shared_queues = SharedQueues(
            store,
            self.served,
            executors,
            slots,
            may_claim=lambda: self.store_watch.may_claim and not settings.burst,
            starts_processes=starts_processes,
        )
        self.libraries = Libraries(store)
        self.tally = Tally()
        self.publish(self._usage)

    @property
    def table(self) -> tuple[Duty, ...]:
        """All duties, in the order in which they start."""
        return (
            self.leases.renew,
            self.leases.read_inbox,
            self.leases.exclusive.run,
            self.leases.app_warnings.run,
            self.served.run,
            self.declarations.run,
            self.schedules.run,
            self.subscriptions.run,
            self.shared_queues.run,
            self.store_watch.run,
            self.libraries.run,
            self.logs.run,
            self.logs.free_space,
        )

    @asynccontextmanager
    async def running(self, *more: Duty) -> AsyncIterator[asyncio.TaskGroup]:
        """Run all duties, and more, while the body does. Yields their task group."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_duty(duty)) for duty in (*self.table, *more)]
            yield group
            await cancel_all(tasks)

    def handle(self, executor: ExecutorProcess, slot: ExecutorSlot, message: messages.FromExecutor) -> None:
        """Handle a message of an executor."""
        self.shared_queues.handle(executor, message)
        executor.note(message)
        slot.handle(executor, message)
        self.leases.handle(message)
        self.tally.handle(message)
        if isinstance(message, messages.JobsClaimed):
            self._on_work()

    def publish(self, usage: Usage) -> None:
        """Update the report that the next renewal stores, with the usage of this process."""
        self._usage = usage
        self.leases.about = self._report.encode(list(self._executors.values()), usage)

    def set_app(self, tasks: list[str], in_process: list[str], revision: int) -> None:
        """Report the app. A later executor may have imported other code."""
        report = self._report
        if (tasks, in_process, revision) != (report.tasks, report.in_process, report.revision):
            report.tasks, report.in_process, report.revision = tasks, in_process, revision
            self.publish(self._usage)
            self.leases.renew_soon()

    def _drain(self, who: str) -> None:
        """Stop claiming, and exit when all jobs have finished, however long they take."""
        if not self.draining.is_set():
            asked = f", as {who} requested" if who else ""
            log.info("worker %s is draining%s: it exits when its jobs have finished", self._worker, asked)
            self.draining.set()
            self._report.is_draining = True
            self.publish(self._usage)
            self.leases.renew_soon()

    def _is_running(self, id: str, attempt: int) -> bool:
        return any(executor.holds(id, attempt) for executor in self._executors.values())

    def _claims_changed(self) -> None:
        for slot in self._slots:
            slot.allow_claims()


async def run_duty(duty: Duty) -> None:
    """Run a duty for as long as the worker lives. One that fails is logged and restarted.

    A refusal of the store is logged once, because it may be refused every time.
    """
    refused = ""
    while True:
        try:
            await duty()
        except errors.StoreUnavailable:
            log.debug("the store is unavailable and no longer retried")  # RetryingStore has logged it
        except errors.HoldfastError as error:
            if str(error) != refused:
                log.error("a duty of the supervisor failed; restarting it every second: %s", error)
            refused = str(error)
        except Exception:
            log.exception("a duty of the supervisor failed; restarting it")
        await asyncio.sleep(RESTART_DELAY)
