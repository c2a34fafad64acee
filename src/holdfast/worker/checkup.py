"""A look at executors, from time to time: what each uses, and whether one is to be replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.durations import humanize
from holdfast.sizes import size_words
from holdfast.worker.leases import Leases
from holdfast.worker.place import YOUNG, Place
from holdfast.worker.processes import ExecutorProcess
from holdfast.worker.settings import Pool, WorkerSettings
from holdfast.worker.system import boot_time
from holdfast.worker.usage import Usage, usage_of, usage_of_tree

log = logging.getLogger("holdfast.worker")

LOOK_EVERY = 1.0  # seconds, or as often as leases are renewed; less often where looking takes long
MOST_ABOUT = 16384  # bytes, as the store allows
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


class Checkup:
    """Looks after the executors of a worker, and has it say what they use."""

    def __init__(
        self,
        settings: WorkerSettings,
        places: Sequence[Place],
        executors: Mapping[str, ExecutorProcess],
        leases: Leases,
    ) -> None:
        self.introduction = Introduction(settings)
        self._places = places
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
            for place in self._places:
                _check(place)
            await asyncio.sleep(max(LOOK_EVERY, self._leases.interval, 20 * (boot_time() - began)))


def _check(place: Place) -> None:
    executor = None if place.is_over else place.current
    if executor and not executor.is_due.is_set() and (why := why_to_replace(executor, place.pool)):
        is_young = boot_time() - executor.born < YOUNG  # then the limit is too low: it will be so again and again
        log.log(logging.WARNING if is_young else logging.INFO, "executor %s is replaced: %s", executor.name, why)
        executor.is_due.set()


class Introduction:
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
    while len(text := msgspec.json.encode(about)) > MOST_ABOUT:
        longest = "executors" if about["executors"] else "queues"
        about = {**about, longest: about[longest][: len(about[longest]) // 2]}
    return text.decode()
