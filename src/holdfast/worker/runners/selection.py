"""Which runner a job gets, and whether it has a free slot.

async, thread           in the executor's own process: async_runner.py, thread_runner.py
fork, spawn, process    in a process of the job's own: process_runner.py
alone                   the same, under a zygote of its own, for a job that may have killed its executor
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

from holdfast.job import option_table
from holdfast.job.outcome import Outcome, Release
from holdfast.store.commands import ClaimedJob
from holdfast.task import task
from holdfast.worker.attempt import Attempt
from holdfast.worker.messages import FORK, REUSE, SPAWN, PredecessorLoad
from holdfast.worker.runners.async_runner import AsyncRunner
from holdfast.worker.runners.endings import unable_to_run
from holdfast.worker.runners.inprocess_job import InProcessJobs
from holdfast.worker.runners.process_runner import AloneRunner, ProcessRunner
from holdfast.worker.runners.thread_runner import ThreadRunner
from holdfast.worker.runners.zygote import Zygote
from holdfast.worker.runners.zygote_client import ZygoteClient
from holdfast.worker.settings import Pool

SLOT_TIMEOUT = 2.0  # seconds that a claimed job waits for a slot before it is requeued
RECENT = 200  # jobs
NEEDS_ZYGOTE = Release("it must run alone; an embedded worker cannot", 1000)
NEEDS_PROCESS = Release("its limits need a runner with a process per job", 1000)
IN_PROCESS = ("async", "thread")
FORKED = ("fork", "process")


class Runner(Protocol):
    """Runs attempts in processes of their own."""

    async def run(self, attempt: Attempt) -> Outcome: ...

    def stop_forking_ahead(self) -> None: ...


NO_LOAD = PredecessorLoad(0, 0)


def chosen_runner(known: task.Task[..., Any], pool: Pool) -> option_table.Runner:
    """Return the runner that a task declares, or else that of its pool."""
    return known.effective_options.runner or ("async" if known.is_async else pool.runner)


def refusal(tasks: Mapping[str, task.Task[..., Any]], pool: Pool) -> str:
    """Explain why a pool cannot run the tasks of an app; '' if it can."""
    for name, known in tasks.items():
        runner = chosen_runner(known, pool)
        if runner in IN_PROCESS and known.effective_options.run.needs_process:
            options = " and ".join(known.effective_options.run.options_needing_process)
            return (
                f"task {name} is declared with {options}, which the runner {runner} of pool {pool.name} cannot enforce:"
                " give the task the runner fork, spawn or process, or start the worker with one of them (--runner)"
            )
    return ""


class Runners:
    """All runners of an executor; without a zygote, only those in its own process.

    `on_abandoned` is called with each attempt that does not end when asked to.
    """

    def __init__(
        self,
        tasks: Mapping[str, task.Task[..., Any]],
        pool: Pool,
        zygote: Zygote | None,
        *,
        on_abandoned: Callable[[Attempt], None],
    ) -> None:
        self.tasks = tasks
        self._pool = pool
        self._can_fork = zygote is not None and zygote.can_fork
        self.zygote = zygote and ZygoteClient(zygote.control)
        self._inprocess = InProcessJobs(tasks, on_abandoned=on_abandoned)
        self._coroutines = AsyncRunner(self._inprocess)
        self._threads = ThreadRunner(self._inprocess, pool.concurrency)
        self._runners: dict[option_table.Runner, Runner] = {}
        self._alone: dict[option_table.Runner, Runner] = {}
        if self.zygote:
            self._runners = {
                "fork": ProcessRunner(self.zygote, FORK),
                "spawn": ProcessRunner(self.zygote, SPAWN),
                "process": ProcessRunner(self.zygote, REUSE),
            }
            self._alone = {
                "fork": AloneRunner(self.zygote, FORK),
                "spawn": AloneRunner(self.zygote, SPAWN),
                "process": AloneRunner(self.zygote, FORK),
            }
        self._slots = asyncio.Semaphore(pool.processes)
        self._in_processes: set[Attempt] = set()
        self._kinds: dict[task.Task[..., Any], option_table.Runner] = {}
        # Whether each recent job took a process. At first, assume so if any task would.
        self._recent = deque([any(self._kind(known) not in IN_PROCESS for known in tasks.values())], maxlen=RECENT)
        self._recent_processes = sum(self._recent)

    def room(self, attempts: int, predecessors: PredecessorLoad = NO_LOAD) -> int:
        """Return how many jobs can start now, if they need processes at most twice as often as recent jobs did.

        A job that finds no slot after all is requeued soon. While no process is free, nothing is claimed: the first
        job might need one, and would be requeued again and again, ahead of all others.
        """
        if any(attempt.pid is None for attempt in self._in_processes):
            return 0
        free = self._pool.concurrency - (attempts - len(self._in_processes)) - predecessors.inprocess
        if self._recent_processes:
            processes = self._pool.processes - len(self._in_processes) - predecessors.processes
            free = min(free, max(processes, processes * len(self._recent) // (2 * self._recent_processes)))
        return max(0, free)

    def need_no_process(self, jobs: Iterable[ClaimedJob]) -> bool:
        """Return whether neither these nor recent jobs take a process, so that `room` is exact before they begin."""
        return not self._recent_processes and all(
            job.task in self.tasks and self._kind_for(job) in IN_PROCESS for job in jobs
        )

    def begin(self, attempt: Attempt) -> Coroutine[Any, Any, None] | None:
        """Start an attempt. Return the coroutine that has to be awaited for that, if it takes a process."""
        if attempt.job.alone and not self.zygote:
            attempt.end(NEEDS_ZYGOTE)
            return None
        kind = self._kind_for(attempt.job)
        if kind in IN_PROCESS and attempt.run.needs_process:
            attempt.end(NEEDS_PROCESS)
            return None
        self._note_recent(kind not in IN_PROCESS)
        if kind in IN_PROCESS:
            (self._coroutines if kind == "async" else self._threads).begin(attempt)
            return None
        self._in_processes.add(attempt)
        return self._run((self._alone if attempt.job.alone else self._runners)[kind], attempt)

    def _note_recent(self, takes_process: bool) -> None:
        if len(self._recent) == self._recent.maxlen:
            self._recent_processes -= self._recent[0]
        self._recent.append(takes_process)
        self._recent_processes += takes_process

    async def _run(self, runner: Runner, attempt: Attempt) -> None:
        try:
            attempt.end(await self._run_in_slot(runner, attempt))
        except Exception as error:
            attempt.end(unable_to_run(attempt, error))

    async def _run_in_slot(self, runner: Runner, attempt: Attempt) -> Outcome:
        """Run an attempt once a slot is free; requeue it if none is free soon, as other workers may have one."""
        try:
            async with asyncio.timeout(SLOT_TIMEOUT) if self._slots.locked() else nullcontext():
                await self._slots.acquire()
        except TimeoutError:
            return Release("no slot was free in time")
        try:
            if attempt.stop_reason or attempt.interrupt_reason:
                return Release(attempt.interrupt_reason or "stopping")
            return await runner.run(attempt)
        finally:
            self._slots.release()

    def forget(self, attempt: Attempt) -> None:
        """Note that an attempt has ended, and occupies no slot."""
        self._in_processes.discard(attempt)

    def stop_forking_ahead(self) -> None:
        """Have no process wait for the next job: there will be none."""
        for runner in self._runners.values():
            runner.stop_forking_ahead()

    def close(self) -> None:
        self._threads.close()
        self._inprocess.close()

    def _kind_for(self, job: ClaimedJob) -> option_table.Runner:
        """A job that may have killed an executor runs alone: in a process of its own, under a zygote of its own."""
        kind = self._kind(self.tasks[job.task])
        return self._safe("fork") if job.alone and kind in IN_PROCESS else kind

    def _kind(self, known: task.Task[..., Any]) -> option_table.Runner:
        if (kind := self._kinds.get(known)) is None:
            kind = self._kinds[known] = self._safe(chosen_runner(known, self._pool))
        return kind

    def _safe(self, kind: option_table.Runner) -> option_table.Runner:
        """Replace a runner that is impossible here.

        An app with threads is never forked: a lock that one of them holds would never be released in the child. The
        processes of the runner `process` are spawned then; they are still reused.
        """
        if not self.zygote and kind not in IN_PROCESS:
            return "thread"
        return "spawn" if kind == "fork" and not self._can_fork else kind
