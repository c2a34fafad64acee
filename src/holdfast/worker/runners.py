"""Runners: each runs an attempt and returns how it ended. Here is decided which one, and whether it has a place free.

inside.py   async, thread           in the executor's own process
apart.py    fork, spawn, process    in processes apart from it
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from holdfast import options, task
from holdfast.commands import Claimed
from holdfast.outcome import Outcome, Release
from holdfast.worker.apart import FreshRunner, PoolRunner, Processes
from holdfast.worker.attempt import Attempt
from holdfast.worker.ending import Runner
from holdfast.worker.inside import Abandoned, AsyncRunner, ThreadRunner
from holdfast.worker.settings import Pool
from holdfast.worker.zygote import FORK, SPAWN, Zygote

PATIENCE = 2.0  # seconds that a claimed job waits for a place before it is handed back
NOT_HERE = Release("it may kill its process, so not here", 1000)
NEEDS_PROCESS = Release("its limits need a process of its own, so not here", 1000)
INSIDE = ("async", "thread")
FORKED = ("fork", "process")


class Elsewhere(NamedTuple):
    """Jobs that the executors before this one still run: they take places of its own."""

    apart: int
    inside: int


NOWHERE = Elsewhere(0, 0)


def wanted(known: task.Task[..., Any], pool: Pool) -> options.Runner:
    """The runner that a task names, or else its worker."""
    return known.chosen.runner or ("async" if known.is_async else pool.runner)


def refusal(tasks: Mapping[str, task.Task[..., Any]], pool: Pool) -> str:
    """Say why a pool cannot run the tasks of an app; '' if it can."""
    for name, known in tasks.items():
        if wanted(known, pool) in INSIDE and known.chosen.run.needs_process:
            return (
                f"task {name} is declared with {' and '.join(known.chosen.run.needing)}, which the runner "
                f"{wanted(known, pool)} of pool {pool.name} cannot keep: give the task a runner that can (fork, spawn, "
                "process), or start the worker with one"
            )
    return ""


class Runners:
    """All runners of an executor; without a zygote, only those inside of this process.

    `on_abandoned` is called with each attempt that none of them can get rid of.
    """

    def __init__(
        self,
        tasks: Mapping[str, task.Task[..., Any]],
        pool: Pool,
        zygote: Zygote | None,
        *,
        on_abandoned: Callable[[Attempt], None],
    ) -> None:
        self._tasks = tasks
        self._pool = pool
        self._can_fork = zygote is not None and zygote.can_fork
        self.processes = zygote and Processes(zygote.control)
        abandoned = Abandoned(on_abandoned)
        self._threads = ThreadRunner(tasks, abandoned, pool.concurrency)
        self._runners: dict[options.Runner, Runner] = {
            "async": AsyncRunner(tasks, abandoned),
            "thread": self._threads,
        }
        if self.processes:
            self._runners |= {
                "fork": FreshRunner(self.processes, FORK),
                "spawn": FreshRunner(self.processes, SPAWN),
                "process": PoolRunner(self.processes),
            }
        self._inside = asyncio.Semaphore(pool.concurrency)
        self._apart = asyncio.Semaphore(pool.processes)
        # Of the last jobs: were they apart? At first, some may be.
        self._recent = deque([any(self._kind(known) not in INSIDE for known in tasks.values())], maxlen=200)

    def room(self, attempts: Collection[Attempt], elsewhere: Elsewhere = NOWHERE) -> int:
        """How many jobs can start now, if as many of them are apart as of the recent ones; half of that, to be safe.

        What finds no place all the same is handed back soon. Where no process is free, nothing is claimed: the first
        might need one, and would be handed back again and again, ahead of all others.
        """
        if any(attempt.pid is None for attempt in attempts):
            return 0
        here = sum(1 for attempt in attempts if attempt.pid != os.getpid())
        apart = here + elsewhere.apart
        free = self._pool.concurrency - (len(attempts) - here) - elsewhere.inside
        if often := sum(self._recent):
            processes = self._pool.processes - apart
            free = min(free, max(processes, processes * len(self._recent) // (2 * often)))
        return max(0, free)

    async def run(self, attempt: Attempt) -> Outcome:
        if attempt.job.alone and not self.processes:
            return NOT_HERE
        kind = self._kind_for(attempt.job)
        if kind in INSIDE and attempt.run.needs_process:
            return NEEDS_PROCESS
        self._recent.append(kind not in INSIDE)
        async with self._place(self._inside if kind in INSIDE else self._apart) as free:
            if not free:
                return Release("claimed ahead")
            if attempt.stopping.is_set() or attempt.interrupted.is_set():
                return Release(attempt.why or "stopping")
            return await self._runners[kind].run(attempt)

    def close(self) -> None:
        self._threads.close()

    @asynccontextmanager
    async def _place(self, places: asyncio.Semaphore) -> AsyncIterator[bool]:
        """Have a place to run; not for ever, for others may have places free."""
        try:
            async with asyncio.timeout(PATIENCE):
                await places.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            places.release()

    def _kind_for(self, job: Claimed) -> options.Runner:
        """A job that may have killed an executor runs alone: in a process of its own, whatever its kind."""
        kind = self._kind(self._tasks[job.task])
        return self._safe("fork") if job.alone and kind in INSIDE else kind

    def _kind(self, known: task.Task[..., Any]) -> options.Runner:
        return self._safe(wanted(known, self._pool))

    def _safe(self, kind: options.Runner) -> options.Runner:
        """Where the app has threads nothing is forked: a lock that one of them holds would never be released."""
        if not self.processes and kind not in INSIDE:
            return "thread"
        return "spawn" if kind in FORKED and not self._can_fork else kind
