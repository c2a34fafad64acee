"""A look at executors, from time to time: what each uses, and whether one is to be replaced.

Watches what the jobs of a worker use: memory and CPU of each process tree, over time.

A job is looked at when it has run for some seconds, so short ones cost nothing; then every few seconds, less often the
longer it has run, and where there are many or to look takes long. What was seen is told to the store now and then, and
at the end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from holdfast import errors
from holdfast.constants import MAX_WORKER_INFO, USAGE_BLOCK
from holdfast.job.usage import FIRST_STEP, Series
from holdfast.store import commands
from holdfast.store.commands import LogBlock
from holdfast.units import humanize, size_words
from holdfast.version import __version__
from holdfast.worker.linux import boot_time
from holdfast.worker.processes import Usage, usage_of, usage_of_tree
from holdfast.worker.retrying import RetryingStore
from holdfast.worker.settings import Pool, WorkerSettings
from holdfast.worker.supervisor.executor_process import ExecutorProcess, JobProcess
from holdfast.worker.supervisor.leases import Leases
from holdfast.worker.supervisor.slots import YOUNG, ExecutorSlot

log = logging.getLogger("holdfast.worker")

LOOK_EVERY = 1.0  # seconds, or as often as leases are renewed; less often where looking takes long
MAX_TASKS = 8192  # bytes of their names
MOST_APP = 1000  # characters of the app's name, which can be anything


def measure(pids: Collection[int]) -> dict[int, Usage]:
    """What executors use, each with its zygote and the processes of its jobs; and this process, alone."""
    return {pid: usage_of_tree(pid) for pid in pids} | {os.getpid(): usage_of(os.getpid())}


def why_to_replace(executor: ExecutorProcess, pool: Pool) -> str:
    """Return why an executor is to be replaced, or nothing."""
    age = round((boot_time() - executor.born) * 1000)
    if pool.max_age is not None and age >= pool.max_age:
        return f"it is {humanize(age // 1000 * 1000)} old"
    if pool.max_memory is not None and executor.usage.memory > pool.max_memory:
        return f"it uses {size_words(executor.usage.memory)} of memory"
    return ""


class HealthCheck:
    """Looks after the executors of a worker, and has it say what they use."""

    def __init__(
        self,
        settings: WorkerSettings,
        slots: Sequence[ExecutorSlot],
        executors: Mapping[str, ExecutorProcess],
        leases: Leases,
    ) -> None:
        self.introduction = WorkerReport(settings)
        self._slots = slots
        self._executors = executors
        self._leases = leases
        leases.about = self.introduction.words([], Usage())

    def know_tasks(self, tasks: list[str]) -> None:
        """An executor has imported the app: have the store told which tasks it has."""
        if tasks != self.introduction.tasks:
            self.introduction.tasks = tasks
            self._leases.about = self.introduction.words(list(self._executors.values()), Usage())
            self._leases.renew_soon()

    async def keep(self) -> None:
        """See what executors use, and replace those that are too old or too big."""
        while True:
            began = boot_time()
            usage = await asyncio.to_thread(measure, [executor.pid for executor in self._executors.values()])
            for executor in self._executors.values():
                executor.usage = usage.get(executor.pid, executor.usage)
            self._leases.about = self.introduction.words(list(self._executors.values()), usage[os.getpid()])
            for slot in self._slots:
                _check(slot)
            await asyncio.sleep(max(LOOK_EVERY, self._leases.interval, 20 * (boot_time() - began)))


def _check(slot: ExecutorSlot) -> None:
    executor = None if slot.is_over else slot.current
    if executor and not executor.is_due.is_set() and (why := why_to_replace(executor, slot.pool)):
        is_young = boot_time() - executor.born < YOUNG  # then the limit is too low: it will be so again and again
        log.log(logging.WARNING if is_young else logging.INFO, "executor %s is replaced: %s", executor.name, why)
        executor.is_due.set()


class WorkerReport:
    """What a worker says of itself to the store, as JSON."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._started = round(time.time() * 1000)
        self.is_draining = False
        self.tasks: list[str] | None = None  # of the app, once it is imported

    def words(self, executors: Sequence[ExecutorProcess], own: Usage) -> str:
        total = own
        for executor in executors:
            total = total.plus(executor.usage)
        about: dict[str, Any] = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "version": __version__,
            "app": self._settings.app[:MOST_APP],
            "started": self._started,
            "memory": total.memory,
            "cpu_seconds": round(total.cpu_seconds, 2),
            "queues": self._settings.queues,
            **({"draining": True} if self.is_draining else {}),
            **({"allow_exec": True} if self._settings.allow_exec else {}),
            **({} if self.tasks is None or _are_long(self.tasks) else {"tasks": self.tasks}),
            "executors": [_row(executor) for executor in executors],
        }
        return _shortened(about)


def _are_long(names: Sequence[str]) -> bool:
    """Whether names take more than their part of what may be said: some of them alone would mislead."""
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
    """Encode it; with fewer executors and then queues, if it is too long."""
    while len(text := msgspec.json.encode(about)) > MAX_WORKER_INFO:
        longest = "executors" if about["executors"] else "queues"
        about = {**about, longest: about[longest][: len(about[longest]) // 2]}
    return text.decode()


LONGEST_WAIT = 10.0  # seconds between looks at one job
TELL_FIRST, TELL_LAST = 6.0, 60.0  # seconds between tellings of one job: at first, and of one that runs for long
AT_ONCE = 32  # blocks in one call
PART = 0.02  # of one processor that looking may take
USED_BY_NEW = 0.05  # seconds on processors, before it runs a job


class Key(NamedTuple):
    """An attempt, as logs know it."""

    id: str
    created: int
    attempt: int


@dataclass
class _Watched:
    """A job's process, what it used so far, and when it was looked at and told of."""

    pid: int
    looked_at: float
    told_at: float
    cpu_seconds: float = 0.0  # that it had used then
    series: Series = field(default_factory=Series)
    is_new: bool = False  # there is something to tell

    def look(self) -> None:
        used, now = usage_of_tree(self.pid), boot_time()
        if used.memory:  # or it is gone
            self.series.add(now - self.looked_at, used.memory, max(0.0, used.cpu_seconds - self.cpu_seconds))
            self.looked_at, self.cpu_seconds, self.is_new = now, used.cpu_seconds, True

    def is_due(self, now: float) -> bool:
        return now - self.looked_at >= min(self.series.step, LONGEST_WAIT)

    def is_to_be_told(self, now: float) -> bool:
        return self.is_new and now - self.told_at >= min(TELL_LAST, max(TELL_FIRST, self.series.seconds / 10))


class UsageSampler:
    """Looks at the jobs that the executors of one worker hold."""

    def __init__(self, store: RetryingStore, executors: Mapping[str, ExecutorProcess]) -> None:
        self._store = store
        self._executors = executors
        self._watched: dict[Key, _Watched] = {}

    async def keep(self) -> None:
        await self._store.connected()
        while True:
            began = boot_time()
            await asyncio.to_thread(self._look, self._there())
            cost = boot_time() - began
            await self.tell()
            await asyncio.sleep(max(FIRST_STEP, cost / PART))

    def _there(self) -> dict[Key, JobProcess]:
        return {Key(*each[:3]): each for executor in self._executors.values() for each in executor.processes}

    def _look(self, there: dict[Key, JobProcess]) -> None:
        now = boot_time()
        for key, process in there.items():
            watched = self._watched.get(key)
            if watched is None and now - process.since >= FIRST_STEP:
                self._watched[key] = _first_look(process)
            elif watched and watched.is_due(now):
                watched.look()

    async def tell(self) -> None:
        """Tell of the jobs that have ended, and of those whose turn it is."""
        now, there = boot_time(), self._there()
        ended = {key: self._watched.pop(key) for key in list(self._watched) if key not in there}
        due = {key: watched for key, watched in self._watched.items() if watched.is_to_be_told(now)}
        due |= {key: watched for key, watched in ended.items() if watched.is_new}
        for watched in due.values():
            watched.told_at, watched.is_new = now, False
        await self._tell([LogBlock(*key, USAGE_BLOCK, watched.series.text()) for key, watched in due.items()])

    async def _tell(self, blocks: list[LogBlock]) -> None:
        for first in range(0, len(blocks), AT_ONCE):
            try:
                await self._store.run(commands.log(blocks[first : first + AT_ONCE]))
            except errors.StoreUnavailable:
                raise
            except errors.HoldfastError as error:  # a store without memory for it: the jobs go on
                log.error("what jobs use is not kept: %s", error)


def _first_look(process: JobProcess) -> _Watched:
    """What a process that ran other jobs before, as those that stay do, has used until now was for them."""
    if process.used <= USED_BY_NEW:
        watched = _Watched(process.pid, process.since, process.since, process.used)
        watched.look()
        return watched
    now = boot_time()
    return _Watched(process.pid, now, now, usage_of_tree(process.pid).cpu_seconds)
