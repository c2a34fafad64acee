"""Runners: each runs an attempt and returns how it ended. Here is decided which one, and whether it has a place free.

inside.py   async, thread           in the executor's own process
apart.py    fork, spawn, process    in processes apart from it
alone.py    the same                for a job that may have killed the process that forks them
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

from holdfast.job import option_table
from holdfast.job.outcome import Outcome, Release
from holdfast.store.commands import ClaimedJob
from holdfast.task import task
from holdfast.worker.attempt import Attempt
from holdfast.worker.messages import FORK, REUSE, SPAWN
from holdfast.worker.runners.endings import unable
from holdfast.worker.runners.inprocess_runner import AsyncRunner, Inside, ThreadRunner
from holdfast.worker.runners.process_runner import AloneRunner, Processes, ProcessRunner
from holdfast.worker.runners.zygote import Zygote
from holdfast.worker.settings import Pool

PATIENCE = 2.0  # seconds that a claimed job waits for a place before it is handed back
NOT_HERE = Release("it may kill its process, so not here", 1000)
NEEDS_PROCESS = Release("its limits need a process of its own, so not here", 1000)
INSIDE = ("async", "thread")
FORKED = ("fork", "process")


class Runner(Protocol):
    """Runs attempts in processes apart from this one."""

    async def run(self, attempt: Attempt) -> Outcome: ...

    def fork_no_more(self) -> None: ...


class Elsewhere(NamedTuple):
    """Jobs that the executors before this one still run: they take places of its own."""

    apart: int
    inside: int


NOWHERE = Elsewhere(0, 0)


def wanted(known: task.Task[..., Any], pool: Pool) -> option_table.Runner:
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
        self._inside = Inside(tasks, on_abandoned=on_abandoned)
        self._coroutines, self._threads = AsyncRunner(self._inside), ThreadRunner(self._inside, pool.concurrency)
        self._runners: dict[option_table.Runner, Runner] = {}
        self._alone: dict[option_table.Runner, Runner] = {}
        if self.processes:
            self._alone = {
                "fork": AloneRunner(self.processes, FORK),
                "spawn": AloneRunner(self.processes, SPAWN),
                "process": AloneRunner(self.processes, FORK),
            }
            self._runners = {
                "fork": ProcessRunner(self.processes, FORK),
                "spawn": ProcessRunner(self.processes, SPAWN),
                "process": ProcessRunner(self.processes, REUSE),
            }
        self._places = asyncio.Semaphore(pool.processes)
        self._apart: set[Attempt] = set()
        self._kinds: dict[task.Task[..., Any], option_table.Runner] = {}
        # Of the last jobs: were they apart? At first, some may be.
        self._recent = deque([any(self._kind(known) not in INSIDE for known in tasks.values())], maxlen=200)
        self._recently_apart = sum(self._recent)

    def room(self, attempts: int, elsewhere: Elsewhere = NOWHERE) -> int:
        """How many jobs can start now, if as many of them are apart as of the recent ones; half of that, to be safe.

        What finds no place all the same is handed back soon. Where no process is free, nothing is claimed: the first
        might need one, and would be handed back again and again, ahead of all others.
        """
        if any(attempt.pid is None for attempt in self._apart):
            return 0
        free = self._pool.concurrency - (attempts - len(self._apart)) - elsewhere.inside
        if self._recently_apart:
            processes = self._pool.processes - len(self._apart) - elsewhere.apart
            free = min(free, max(processes, processes * len(self._recent) // (2 * self._recently_apart)))
        return max(0, free)

    def are_inside(self, jobs: Iterable[ClaimedJob]) -> bool:
        """Whether these jobs would take no process, nor did recent ones; so that `room` is right before they begin."""
        return not self._recently_apart and all(
            job.task in self._tasks and self._kind_for(job) in INSIDE for job in jobs
        )

    def begin(self, attempt: Attempt) -> Coroutine[Any, Any, None] | None:
        """Start an attempt, which ends by itself. Returns what has to be awaited for that, if it runs apart."""
        if attempt.job.alone and not self.processes:
            attempt.end(NOT_HERE)
            return None
        kind = self._kind_for(attempt.job)
        if kind in INSIDE and attempt.run.needs_process:
            attempt.end(NEEDS_PROCESS)
            return None
        self._note(kind not in INSIDE)
        if kind in INSIDE:
            (self._coroutines if kind == "async" else self._threads).begin(attempt)
            return None
        self._apart.add(attempt)
        return self._run_apart((self._alone if attempt.job.alone else self._runners)[kind], attempt)

    def _note(self, is_apart: bool) -> None:
        if len(self._recent) == self._recent.maxlen:
            self._recently_apart -= self._recent[0]
        self._recent.append(is_apart)
        self._recently_apart += is_apart

    async def _run_apart(self, runner: Runner, attempt: Attempt) -> None:
        try:
            attempt.end(await self._run_in_place(runner, attempt))
        except Exception as error:
            attempt.end(unable(attempt, error))

    async def _run_in_place(self, runner: Runner, attempt: Attempt) -> Outcome:
        """Run an attempt once a place is free; not for ever, for others may have places free."""
        try:
            async with asyncio.timeout(PATIENCE) if self._places.locked() else nullcontext():
                await self._places.acquire()
        except TimeoutError:
            return Release("claimed ahead")
        try:
            if attempt.stop_reason or attempt.why:
                return Release(attempt.why or "stopping")
            return await runner.run(attempt)
        finally:
            self._places.release()

    def forget(self, attempt: Attempt) -> None:
        """It is over, and takes no place any more."""
        self._apart.discard(attempt)

    def fork_no_more(self) -> None:
        """Have no process wait for jobs to come: there will be none."""
        for runner in self._runners.values():
            runner.fork_no_more()

    def close(self) -> None:
        self._threads.close()
        self._inside.close()

    def _kind_for(self, job: ClaimedJob) -> option_table.Runner:
        """A job that may have killed an executor runs alone: in a process of its own, under a zygote of its own."""
        kind = self._kind(self._tasks[job.task])
        return self._safe("fork") if job.alone and kind in INSIDE else kind

    def _kind(self, known: task.Task[..., Any]) -> option_table.Runner:
        if (kind := self._kinds.get(known)) is None:
            kind = self._kinds[known] = self._safe(wanted(known, self._pool))
        return kind

    def _safe(self, kind: option_table.Runner) -> option_table.Runner:
        """Where the app has threads nothing is forked: a lock that one of them holds would never be released.

        The processes of the runner `process` are spawned then, and kept all the same.
        """
        if not self.processes and kind not in INSIDE:
            return "thread"
        return "spawn" if kind == "fork" and not self._can_fork else kind
