"""The jobs of an executor, from their start to the outcome that goes to the store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.job.options import UNREADABLE_RUN_OPTIONS
from holdfast.job.outcome import Outcome, Succeed, Unknown
from holdfast.store import AsyncStore
from holdfast.store.commands import ClaimedJob
from holdfast.worker import messages
from holdfast.worker.attempt import Attempt, ExecutorContext
from holdfast.worker.event_loop import remove_folder
from holdfast.worker.executor import saving
from holdfast.worker.executor.finishing import FinishQueue
from holdfast.worker.executor.job_log import JobLog
from holdfast.worker.executor.quota import Quota
from holdfast.worker.executor.supervisor_link import SupervisorLink
from holdfast.worker.lease_clock import LeaseClock
from holdfast.worker.output.files import FOLDER
from holdfast.worker.runners.endings import unable_to_run
from holdfast.worker.runners.selection import Runners

CreateTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class ActiveJobs:
    """Starts claimed jobs, reports their starts, and queues their outcomes. `on_change` wakes the executor.

    `runners` and `create_task` are set when the event loop runs.
    """

    runners: Runners
    create_task: CreateTask

    def __init__(
        self,
        executor: str,
        directory: Path,
        *,
        store: AsyncStore,
        supervisor: SupervisorLink,
        clock: LeaseClock,
        quota: Quota,
        job_log: JobLog,
        captures_output: bool,
        in_directory: bool,
        on_change: Callable[[], None],
    ) -> None:
        self.finishes = FinishQueue()
        self._store = store
        self._supervisor = supervisor
        self._quota = quota
        self._job_log = job_log
        self._on_change = on_change
        self._pid = os.getpid()
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._mismatches: set[str] = set()  # tasks whose results do not fit their annotations
        self._context = ExecutorContext(
            executor=executor,
            directory=str(directory),
            logs=str(directory.parent / FOLDER),
            captures_output=captures_output,
            in_directory=in_directory,
            on_start=self._report_start,
            on_end=self._end,
            on_first_save=self._start_saving,
            on_request=partial(saving.handle_request, store),
            renewed_at=lambda: clock.renewed_at,
        )

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._attempts.values()))

    def get(self, id: str, attempt: int) -> Attempt | None:
        return self._attempts.get((id, attempt))

    def begin(self, job: ClaimedJob, claimed_at: float) -> None:
        """Run a job whose claim was sent at `claimed_at`."""
        attempt = Attempt(job, self._context, claimed_at)
        self._attempts[attempt.key] = attempt
        try:
            if job.task not in self.runners.tasks or attempt.run is UNREADABLE_RUN_OPTIONS:
                attempt.end(Unknown())
            elif (running := self.runners.begin(attempt)) is not None:
                self.create_task(running)
        except Exception as error:
            attempt.end(unable_to_run(attempt, error))

    def _report_start(self, attempt: Attempt) -> None:
        """Tell the supervisor which process to kill if this one dies. A coroutine or thread has none of its own."""
        self._job_log.start(attempt)
        if attempt.pid != self._pid:
            job, pid, delay = attempt.job, attempt.pid or 0, attempt.start_delay or 0
            self._supervisor.send(messages.JobStarted(job.id, job.attempt, pid, delay, job.created))
            self._on_change()
            if attempt.run.exclusive:  # the supervisor must be able to kill it, even if a coroutine blocks this loop
                self._supervisor.flush()

    def _start_saving(self, attempt: Attempt) -> None:
        if attempt.saves:
            attempt.saver = self.create_task(saving.send_saves(self._store, attempt, attempt.saves))

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Finish an attempt, once everything that it saved is in the store and its directory is removed."""
        self._job_log.end(attempt, outcome)
        if type(outcome) is Succeed and outcome.note:
            self._report_mismatch(attempt.job, outcome.note)
        if attempt.saver or attempt.has_directory:
            self.create_task(self._clean_up(attempt, outcome))
        else:
            self._finish(attempt, outcome)

    def _report_mismatch(self, job: ClaimedJob, note: str) -> None:
        if job.task not in self._mismatches:
            self._mismatches.add(job.task)
            self._supervisor.send(messages.ResultMismatch(job.task, job.id, note))

    async def _clean_up(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.saver:
            await attempt.saver
        if attempt.has_directory:
            await remove_folder(attempt.directory)
        self._finish(attempt, outcome)

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        """Queue an outcome. One whose lease is lost is dropped: another executor owns the job."""
        del self._attempts[attempt.key]
        self.runners.forget(attempt)
        if self._quota.count(attempt):
            self._supervisor.send(messages.JobCounted())
        if attempt.is_lost:
            self._supervisor.send(messages.AttemptsEnded([attempt.key]))
        else:
            self.finishes.add(attempt.finish(outcome))
        self._on_change()
