"""Watches what the jobs of a worker use: memory and CPU of each process tree, over time.

A job is looked at when it has run for some seconds, so short ones cost nothing; then every few seconds, less often the
longer it has run, and where there are many or to look takes long. What was seen is told to the store now and then, and
at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast import commands, errors
from holdfast.commands import Block
from holdfast.usage import FIRST_STEP, Series
from holdfast.worker.patient import PatientStore
from holdfast.worker.processes import ExecutorProcess, JobProcess
from holdfast.worker.system import boot_time
from holdfast.worker.usage import usage_of_tree

log = logging.getLogger("holdfast.worker")

LONGEST_WAIT = 10.0  # seconds between looks at one job
TELL_FIRST, TELL_LAST = 6.0, 60.0  # seconds between tellings of one job: at first, and of one that runs for long
AT_ONCE = 32  # blocks in one call
PART = 0.02  # of one processor that looking may take
USED_BY_NEW = 0.05  # seconds on processors, before it runs a job
USAGE = -1  # the number of the block


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


class Sampling:
    """Looks at the jobs that the executors of one worker hold."""

    def __init__(self, store: PatientStore, executors: Mapping[str, ExecutorProcess]) -> None:
        self._store = store
        self._executors = executors
        self._watched: dict[Key, _Watched] = {}

    async def keep(self) -> None:
        await self._store.known()
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
        await self._tell([Block(*key, USAGE, watched.series.text()) for key, watched in due.items()])

    async def _tell(self, blocks: list[Block]) -> None:
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
