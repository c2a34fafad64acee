"""Memory and CPU time of executors and jobs.

HealthCheck measures executors, and replaces those that are too old or use too much memory. UsageSampler samples the
process tree of each job: first after a few seconds, so that short jobs cost nothing, then less and less often, and less
often still if sampling takes long. Samples are stored from time to time, and when the job ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from holdfast import errors
from holdfast.constants import MAX_WORKER_INFO, USAGE_BLOCK
from holdfast.job.usage import FIRST_STEP, Series
from holdfast.store import commands
from holdfast.store.commands import LogBlock
from holdfast.units import humanize, humanize_size
from holdfast.version import __version__
from holdfast.worker.linux import boot_time
from holdfast.worker.processes import Usage, usage_of, usage_of_tree
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.settings import Pool, WorkerSettings
from holdfast.worker.supervisor.executor_process import ExecutorProcess, JobProcessInfo
from holdfast.worker.supervisor.leases import Leases
from holdfast.worker.supervisor.slots import YOUNG_AGE, ExecutorSlot

log = logging.getLogger("holdfast.worker")

CHECK_INTERVAL = 1.0  # seconds, or as often as leases are renewed; less often if a check takes long
MAX_TASKS = 8192  # bytes of their names
MAX_APP = 1000  # characters of the app's name


def measure(pids: Collection[int]) -> dict[int, Usage]:
    """Return the usage of executors, each with its zygote and the processes of its jobs, and of this process alone."""
    return {pid: usage_of_tree(pid) for pid in pids} | {os.getpid(): usage_of(os.getpid())}


def replacement_reason(executor: ExecutorProcess, pool: Pool) -> str:
    """Return why an executor is due for replacement; empty if it is not."""
    age = round((boot_time() - executor.born) * 1000)
    if pool.max_age is not None and age >= pool.max_age:
        return f"it is {humanize(age // 1000 * 1000)} old"
    if pool.max_memory is not None and executor.usage.memory > pool.max_memory:
        return f"it uses {humanize_size(executor.usage.memory)} of memory"
    return ""


class HealthCheck:
    """Measures the executors of a worker, reports their usage, and replaces them when they are due."""

    def __init__(
        self,
        slots: Sequence[ExecutorSlot],
        executors: Mapping[str, ExecutorProcess],
        leases: Leases,
        *,
        publish: Callable[[Usage], None],
    ) -> None:
        self._slots = slots
        self._executors = executors
        self._leases = leases
        self._publish = publish

    async def run(self) -> None:
        while True:
            began = boot_time()
            usage = await asyncio.to_thread(measure, [executor.pid for executor in self._executors.values()])
            for executor in self._executors.values():
                executor.usage = usage.get(executor.pid, executor.usage)
            self._publish(usage[os.getpid()])
            for slot in self._slots:
                _replace_if_due(slot)
            await asyncio.sleep(max(CHECK_INTERVAL, self._leases.interval, 20 * (boot_time() - began)))


def _replace_if_due(slot: ExecutorSlot) -> None:
    executor = None if slot.is_closed else slot.current
    if executor and not executor.is_due.is_set() and (why := replacement_reason(executor, slot.pool)):
        is_young = boot_time() - executor.born < YOUNG_AGE  # the limit is too low: this will repeat
        log.log(logging.WARNING if is_young else logging.INFO, "replacing executor %s: %s", executor.name, why)
        executor.is_due.set()


class WorkerReport:
    """What a worker reports about itself to the store, as JSON."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._started = round(time.time() * 1000)
        self.is_draining = False
        self.tasks: list[str] | None = None  # known once the app is imported
        self.in_process: list[str] = []  # the tasks that take none of the pool's processes
        self.revision = 0  # of the app; 0: it has none

    def encode(self, executors: Sequence[ExecutorProcess], own: Usage) -> str:
        total = own
        for executor in executors:
            total = total.plus(executor.usage)
        about: dict[str, Any] = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "version": __version__,
            "app": self._settings.app[:MAX_APP],
            **({"revision": self.revision} if self.revision else {}),
            "started": self._started,
            "memory": total.memory,
            "cpu_seconds": round(total.cpu_seconds, 2),
            "queues": self._settings.queues,
            "pools": [_pool_row(pool) for pool in self._settings.pools],
            **({"draining": True} if self.is_draining else {}),
            **({"allow_exec": True} if self._settings.allow_exec else {}),
            **({} if self.tasks is None or _too_long(self.tasks) else self._describe_tasks(self.tasks)),
            "executors": [_row(executor) for executor in executors],
        }
        return _shortened(about)

    def _describe_tasks(self, tasks: list[str]) -> dict[str, list[str]]:
        fits = self.in_process and not _too_long([*tasks, *self.in_process])
        return {"tasks": tasks, **({"in_process": self.in_process} if fits else {})}


def _pool_row(pool: Pool) -> dict[str, Any]:
    """Describe which queues a pool serves, and how many jobs it runs at once in processes and in executors."""
    return {
        "queues": pool.queues,
        "order": pool.order,
        "processes": pool.processes * pool.executors,
        "concurrency": pool.concurrency * pool.executors,
    }


def _too_long(names: Sequence[str]) -> bool:
    """Return whether names exceed their share of the report: listing only some would mislead."""
    return sum(len(name) + 3 for name in names) > MAX_TASKS


def _row(executor: ExecutorProcess) -> dict[str, Any]:
    return {
        "name": executor.name,
        "pid": executor.pid,
        "memory": executor.usage.memory,
        "cpu_seconds": round(executor.usage.cpu_seconds, 2),
        "jobs": len(executor.held),
    }


def _shortened(about: dict[str, Any]) -> str:
    """Encode a report. If it is too long, executors, then all pools, and then queues are left out."""
    while len(text := msgspec.json.encode(about)) > MAX_WORKER_INFO:
        if about["executors"] or not about.get("pools"):
            longest = "executors" if about["executors"] else "queues"
            about = {**about, longest: about[longest][: len(about[longest]) // 2]}
        else:
            about = {**about, "pools": []}  # some of them would mislead
    return text.decode()


MAX_SAMPLE_INTERVAL = 10.0  # seconds between samples of one job
MIN_STORE_INTERVAL, MAX_STORE_INTERVAL = (
    6.0,
    60.0,
)  # seconds between storing samples of one job; longer the longer it runs
BATCH = 32  # blocks in one call
MAX_CPU = 0.02  # of one processor that sampling may use
NEW_PROCESS_CPU = 0.05  # seconds of CPU that a new process uses before it runs a job


class Key(NamedTuple):
    """An attempt, as the key of its log."""

    id: str
    created: int
    attempt: int


@dataclass
class _Sampled:
    """A job's process, its usage so far, and when it was sampled and stored."""

    pid: int
    sampled_at: float
    stored_at: float
    cpu_seconds: float = 0.0  # at the last sample
    series: Series = field(default_factory=Series)
    is_unsaved: bool = False

    def sample(self) -> None:
        used, now = usage_of_tree(self.pid), boot_time()
        if used.memory:  # or it has exited
            self.series.add(now - self.sampled_at, used.memory, max(0.0, used.cpu_seconds - self.cpu_seconds))
            self.sampled_at, self.cpu_seconds, self.is_unsaved = now, used.cpu_seconds, True

    def needs_sample(self, now: float) -> bool:
        return now - self.sampled_at >= min(self.series.step, MAX_SAMPLE_INTERVAL)

    def needs_saving(self, now: float) -> bool:
        return self.is_unsaved and now - self.stored_at >= min(
            MAX_STORE_INTERVAL, max(MIN_STORE_INTERVAL, self.series.seconds / 10)
        )


class UsageSampler:
    """Samples the jobs that the executors of one worker hold."""

    def __init__(self, store: RetryingStore, executors: Mapping[str, ExecutorProcess]) -> None:
        self._store = store
        self._executors = executors
        self._sampled: dict[Key, _Sampled] = {}

    async def run(self) -> None:
        await self._store.connected()
        while True:
            began = boot_time()
            await asyncio.to_thread(self._sample, self._running())
            cost = boot_time() - began
            await self.save()
            await asyncio.sleep(max(FIRST_STEP, cost / MAX_CPU))

    def _running(self) -> dict[Key, JobProcessInfo]:
        return {Key(*each[:3]): each for executor in self._executors.values() for each in executor.processes}

    def _sample(self, running: dict[Key, JobProcessInfo]) -> None:
        now = boot_time()
        for key, process in running.items():
            sampled = self._sampled.get(key)
            if sampled is None and now - process.since >= FIRST_STEP:
                self._sampled[key] = _first_sample(process)
            elif sampled and sampled.needs_sample(now):
                sampled.sample()

    async def save(self) -> None:
        """Store the samples of jobs that have ended, and of those that are due."""
        now, running = boot_time(), self._running()
        ended = {key: self._sampled.pop(key) for key in list(self._sampled) if key not in running}
        due = {key: sampled for key, sampled in self._sampled.items() if sampled.needs_saving(now)}
        due |= {key: sampled for key, sampled in ended.items() if sampled.is_unsaved}
        for sampled in due.values():
            sampled.stored_at, sampled.is_unsaved = now, False
        await self._save([LogBlock(*key, USAGE_BLOCK, sampled.series.text()) for key, sampled in due.items()])

    async def _save(self, blocks: list[LogBlock]) -> None:
        for first in range(0, len(blocks), BATCH):
            try:
                await self._store.run(commands.log(blocks[first : first + BATCH]))
            except errors.StoreUnavailable:
                raise
            except errors.HoldfastError as error:  # the store is out of memory: the jobs continue
                log.error("the memory and CPU usage of jobs is not stored: %s", error)


def _first_sample(process: JobProcessInfo) -> _Sampled:
    """Sample a process for the first time. If it ran other jobs before, its usage so far is theirs."""
    if process.used <= NEW_PROCESS_CPU:
        sampled = _Sampled(process.pid, process.since, process.since, process.used)
        sampled.sample()
        return sampled
    now = boot_time()
    return _Sampled(process.pid, now, now, usage_of_tree(process.pid).cpu_seconds)
