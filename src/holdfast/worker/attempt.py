"""An attempt: one run of one job, from its claim to its outcome, and everything that can interrupt it.

claim ──▶ Attempt ──▶ runner ──▶ outcome ──▶ finish
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import LeaseLost
from holdfast.job.options import RunOptions
from holdfast.job.outcome import Error, Outcome
from holdfast.names import id_to_file_name
from holdfast.running.link import Link
from holdfast.running.running_job import App, RunningJob
from holdfast.store.commands import ClaimedJob, Finish, Lease
from holdfast.task.call import Call, make_current
from holdfast.worker.output.files import append, log_path
from holdfast.worker.pending_saves import PendingSaves, Update

GRACE = 1.0  # seconds from the request to end until the attempt is killed or abandoned
WORKER, SOFT = "worker", "soft_timeout"  # stop reasons

_random = random.SystemRandom()  # a task may seed the other generator; forked workers would share its numbers

Notify = Callable[["Attempt"], None]
Request = Callable[..., Awaitable[tuple[str, Any]]]  # of an attempt: the request's name and its arguments


class ExecutorContext(NamedTuple):
    """What the attempts of an executor share: its name, its folders, and its callbacks."""

    executor: str
    directory: str  # that holds the directories of jobs
    logs: str  # that holds the logs of jobs
    captures_output: bool  # of jobs that share the executor's process
    in_directory: bool  # whether a job's own process runs in the directory of its attempt
    on_start: Notify
    on_end: Callable[[Attempt, Outcome], None]
    on_first_save: Notify
    on_request: Request
    renewed_at: Callable[[], float]  # when the last renewal was sent, by the clock of `boot_time`


class Attempt:
    """One run of one job."""

    is_renewed = False  # an exclusive job whose lease the supervisor has renewed
    pid: int | None = None
    start_delay: int | None = None  # milliseconds
    stop_reason = ""  # WORKER, SOFT
    interrupt_reason = ""  # cancelled, lost, stopped, stalled, timeout, memory, lapsing
    interrupt_outcome: Outcome | None = None  # the outcome for the limit that it exceeded
    outcome: Outcome | None = None
    may_have_directory = True
    saves: PendingSaves | None = None  # once it has saved something; most jobs never do
    saver: asyncio.Task[None] | None = None  # sends them
    read_stack: Callable[[], str] = str  # of a job that shares the executor's process; '' before it starts
    on_stop: Callable[[], object] | None = None
    on_interrupt: Callable[[], object] | None = None  # called once

    def __init__(self, job: ClaimedJob, context: ExecutorContext, requested_at: float) -> None:
        self.job = job
        self.run = RunOptions.decode(job.run)
        self.key = job.id, job.attempt
        self.claimed_at = self.active_at = time.monotonic()  # when the executor last received a message of the job
        self._context = context
        self._requested_at = requested_at  # when its claim was sent, by the clock of `boot_time`

    @property
    def has_limits(self) -> bool:
        """Whether it has to be watched while it runs."""
        return self.job.timeout > 0 or self.run.has_limits

    @property
    def is_lost(self) -> bool:
        return self.interrupt_reason == "lost"

    @property
    def lease(self) -> Lease:
        return Lease(self._context.executor, self.job.id, self.job.attempt)

    @property
    def directory(self) -> Path:
        return Path(self._directory)

    @property
    def has_directory(self) -> bool:
        return self.may_have_directory and self.directory.exists()

    @property
    def _directory(self) -> str:
        return f"{self._context.directory}/{self.job.attempt}-{id_to_file_name(self.job.id)}"

    @property
    def log(self) -> str:
        return log_path(self._context.logs, self.job.id, self.job.created, self.job.attempt)

    @property
    def captured_log(self) -> str:
        """The log that its output goes to if it shares the executor's process; '': none."""
        return self.log if self._context.captures_output else ""

    @property
    def call(self) -> Call:
        """The call, as its own process needs it."""
        job, folder = self.job, self._directory
        return Call(
            job.id,
            job.attempt,
            job.queue,
            job.task,
            job.payload,
            job.checkpoint,
            folder,
            self.log,
            job.run,
            self._context.in_directory,
            job.marks,
        )

    def make_current(self, link: Link, app: App | None) -> RunningJob:
        """Make it the current job of this context."""
        return make_current(self.job, link, directory=self._directory, app=app)

    def lease_requested_at(self) -> float:
        """When its lease was requested: by its claim, or by the last renewal, once renewals include it."""
        return max(self._requested_at, self._context.renewed_at()) if self.is_renewed else self._requested_at

    def started(self, pid: int) -> None:
        self.pid = pid
        self.active_at = time.monotonic()
        self.start_delay = round((self.active_at - self.claimed_at) * 1000)
        self._context.on_start(self)

    # Stopping and interrupting

    def stop(self, reason: str) -> None:
        """Let the job see `stopping`, so that it saves, and hands over or ends. Only the first call counts."""
        if self.stop_reason:
            return
        self.stop_reason = reason
        if self.on_stop:
            self.on_stop()

    def interrupt(self, reason: str, outcome: Outcome | None = None) -> None:
        """End it early. The first reason counts, unless the lease is lost."""
        is_first = not self.interrupt_reason
        if is_first or reason == "lost":
            self.interrupt_reason, self.interrupt_outcome = reason, outcome
        if is_first and self.on_interrupt and self.outcome is None:
            self.on_interrupt()

    @property
    def grace(self) -> float:
        """Seconds from the request to end until it is killed; none, if it would only use more memory."""
        if self.interrupt_reason == "memory":
            return 0.0
        return min(GRACE, self.job.lease / 16_000) if self.interrupt_reason == "lapsing" else GRACE

    def claimed_again(self) -> None:
        """Continue: the same attempt was claimed again, because the server lost its last writes.

        If it is already being interrupted, requeue the job when it ends.
        """
        if self.interrupt_reason:
            self.interrupt_reason = "rewound"

    # What the job saves, logs and requests

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        """Queue an update of the job for the store, unless the attempt has ended or was abandoned."""
        if self.outcome is not None:
            return
        self.active_at = time.monotonic()
        is_first = self.saves is None
        saves = self.saves = self.saves or PendingSaves()
        saves.add(Update(checkpoint, progress, () if note is None else (note,)))
        if is_first:
            self._context.on_first_save(self)

    async def flush(self) -> None:
        """Wait until everything that was saved so far is in the store.

        Raises:
            LeaseLost: it never will be.
        """
        if self.outcome is not None:
            raise LeaseLost(f"attempt {self.job.attempt} of job {self.job.id} has already ended: nothing was saved")
        if self.saves and not await self.saves.all_sent(lambda: self.is_lost):
            raise LeaseLost(f"attempt {self.job.attempt} of job {self.job.id} has lost its lease: nothing was saved")

    async def request(self, name: str, *arguments: Any) -> tuple[str, Any]:
        """Handle a request of the job: see `executor.saving`."""
        self.active_at = time.monotonic()
        return await self._context.on_request(self, name, *arguments)

    def write_log(self, lines: str) -> None:
        """Append to its log, unless it has ended: the log may have been sent and removed."""
        if self.outcome is None:
            append(self.log, lines)

    # Its end

    def end(self, outcome: Outcome) -> None:
        """Report its outcome. Only the first one counts: an abandoned job may still end later."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        if self.saves:
            self.saves.end()
        self._context.on_end(self, outcome)

    def finish(self, outcome: Outcome) -> Finish:
        job = self.job
        if type(outcome) is Error:
            outcome = outcome.with_wait(self.run.policy_for(outcome.group), _random.random())
        return Finish(job.id, job.attempt, outcome, self.pid, self.start_delay, job.created, self.pid is None)
