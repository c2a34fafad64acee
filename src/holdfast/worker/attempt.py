"""An attempt: a claimed job on its way through an executor, and all that may happen to it from outside.

    claim ──▶ Attempt ──▶ runner ──▶ outcome ──▶ finish

Most jobs say nothing, and nobody stops them: what is only needed then is made when it is first used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.constants import MAX_NOTES
from holdfast.errors import LeaseLost
from holdfast.job.options import PLAIN, Run
from holdfast.job.outcome import Outcome
from holdfast.names import file_name
from holdfast.running.channel import Link
from holdfast.running.running_job import App, RunningJob
from holdfast.store.commands import ClaimedJob, Finish, Lease
from holdfast.task.call import Call, make_current
from holdfast.worker.output.files import append, log_path

ASKED_TO_FORCED = 1.0  # seconds
WORKER, SOFT = "worker", "soft_timeout"  # why an attempt is to stop

Announce = Callable[["Attempt"], None]
Request = Callable[..., Awaitable[tuple[str, Any]]]  # the attempt, a word, and what belongs to it


class Said(NamedTuple):
    """What a job said that is not in the store yet; None: as it was."""

    checkpoint: bytes | None = None
    progress: str | None = None
    notes: tuple[str, ...] = ()

    def and_then(self, later: Said) -> Said:
        """The last checkpoint and progress count; and all notes, if they are not too many."""
        return Said(
            self.checkpoint if later.checkpoint is None else later.checkpoint,
            self.progress if later.progress is None else later.progress,
            (self.notes + later.notes)[-MAX_NOTES:],
        )


class House(NamedTuple):
    """What the attempts of an executor have in common: its name and folders, and who hears of them."""

    executor: str
    directory: str  # where each may have a directory
    logs: str  # where each may have a log
    captured: bool  # whether what jobs print that share its process goes there
    on_start: Announce
    on_end: Callable[[Attempt, Outcome], None]
    on_first_save: Announce
    on_request: Request
    renewed_at: Callable[[], float]  # when the last renewal was sent, by the clock of `boot_time`


class Attempt:
    """One run of one job. `why` says why it must end before its time, if it must."""

    is_renewed = False  # by the supervisor; only exclusive jobs are told
    pid: int | None = None
    start_delay: int | None = None
    stop_reason = ""  # WORKER, SOFT
    why = ""  # cancelled, lost, stopped, stalled, memory, lapsing
    verdict: Outcome | None = None  # what that means for the job, if it is no wish
    outcome: Outcome | None = None  # how it ended
    may_have_directory = True
    saver: asyncio.Task[None] | None = None
    look: Callable[[], str] = str  # what it does just now, if it has no process of its own; nothing yet
    on_stop: Callable[[], object] | None = None
    on_interrupt: Callable[[], object] | None = None  # called once
    _unsaved: Said | None = None
    _said = _taken = _sent = 0  # how often something was said, and how much of it is sent

    def __init__(self, job: ClaimedJob, house: House, asked_at: float) -> None:
        self.job = job
        self.run = Run.decode(job.run)
        self.key = job.id, job.attempt
        self.claimed_at = self.heard_at = time.monotonic()  # when the job last said something
        self._house = house
        self._asked_at = asked_at  # when its claim was sent, by the clock of `boot_time`

    @cached_property
    def _news(self) -> asyncio.Event:
        return asyncio.Event()

    @cached_property
    def _ended(self) -> asyncio.Event:
        return asyncio.Event()

    @cached_property
    def _all_sent(self) -> asyncio.Condition:
        return asyncio.Condition()

    @property
    def has_limits(self) -> bool:
        """Whether it has to be watched while it runs."""
        return self.job.timeout > 0 or self.run is not PLAIN

    @property
    def held(self) -> Lease:
        return Lease(self._house.executor, self.job.id, self.job.attempt)

    @property
    def directory(self) -> Path:
        return Path(self._directory)

    @property
    def has_directory(self) -> bool:
        return self.may_have_directory and self.directory.exists()

    @property
    def _directory(self) -> str:
        return f"{self._house.directory}/{self.job.attempt}-{file_name(self.job.id)}"

    @property
    def log(self) -> str:
        return log_path(self._house.logs, self.job.id, self.job.created, self.job.attempt)

    @property
    def output(self) -> str:
        """Where what it prints goes, if it shares its process."""
        return self.log if self._house.captured else ""

    @property
    def call(self) -> Call:
        """What is told to a process of its own."""
        job, folder = self.job, self._directory
        return Call(job.id, job.attempt, job.queue, job.task, job.payload, job.checkpoint, folder, self.log, job.run)

    def make_current(self, link: Link, app: App | None) -> RunningJob:
        """Make it the current job of this context."""
        return make_current(self.job, link, directory=self._directory, app=app)

    def lease_from(self) -> float:
        """When its lease was asked for: by its claim, or by the last renewal, once that is known to be its own too."""
        return max(self._asked_at, self._house.renewed_at()) if self.is_renewed else self._asked_at

    def started(self, pid: int) -> None:
        self.pid = pid
        self.heard_at = time.monotonic()
        self.start_delay = round((self.heard_at - self.claimed_at) * 1000)
        self._house.on_start(self)

    def stop(self, reason: str) -> None:
        """Let the job see that it is to save, and yield or end."""
        if self.stop_reason:  # it was told, and a program would be asked to end again
            return
        self.stop_reason = reason
        if self.on_stop:
            self.on_stop()

    def interrupt(self, why: str, verdict: Outcome | None = None) -> None:
        """End it early. What came first counts, but for a lost lease."""
        is_first = not self.why
        if is_first or why == "lost":
            self.why, self.verdict = why, verdict
        if is_first and self.on_interrupt and self.outcome is None:
            self.on_interrupt()

    @property
    def grace(self) -> float:
        """Seconds from when it is asked to end until it is forced: none, if it would only take more memory."""
        if self.why == "memory":
            return 0.0
        return min(ASKED_TO_FORCED, self.job.lease / 16_000) if self.why == "lapsing" else ASKED_TO_FORCED

    def claimed_again(self) -> None:
        """The store forgot the claim, as a server does that lost its last writes, and now made the very same one again.

        So the attempt has its right back, and goes on. If it is about to end because it was lost, it hands the job
        back.
        """
        if self.why:
            self.why = "rewound"

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        """Keep what the job said until it is sent; unless it has been given up."""
        if self.outcome is not None:
            return
        self.heard_at = time.monotonic()
        self._said += 1
        self._keep((self._unsaved or Said()).and_then(Said(checkpoint, progress, () if note is None else (note,))))

    def _keep(self, said: Said) -> None:
        self._unsaved = said
        self._news.set()
        if self.saver is None:
            self._house.on_first_save(self)

    def write_log(self, lines: str) -> None:
        """Write lines to its log, unless it has ended: then that may have been sent, and be gone."""
        if self.outcome is None:
            append(self.log, lines)

    async def request(self, word: str, *parts: Any) -> tuple[str, Any]:
        """What the job asks for: see `requests`."""
        self.heard_at = time.monotonic()
        return await self._house.on_request(self, word, *parts)

    def save_again(self, said: Said) -> None:
        """It could not be sent. What the job said since then counts more."""
        self._keep(said.and_then(self._unsaved or Said()))

    async def unsaved(self) -> Said | None:
        """Wait for what is to be sent; it then counts as sent. None if the attempt has ended and all is sent."""
        while self._unsaved is None and self.outcome is None:
            self._news.clear()
            await self._news.wait()
        said, self._unsaved = self._unsaved, None
        self._taken = self._said
        return said

    async def sent(self, *, lost: bool = False) -> None:
        """What was to be sent is done with; or, with the lease, lost."""
        if not lost:
            self._sent = self._taken
        async with self._all_sent:
            self._all_sent.notify_all()

    async def all_sent(self) -> None:
        """Wait until all that was said so far is in the store.

        Raises:
            LeaseLost: it never will be.
        """
        said = self._said
        if self.outcome is not None:
            raise LeaseLost(f"attempt {self.job.attempt} of job {self.job.id} has ended already: nothing was saved")
        async with self._all_sent:
            await self._all_sent.wait_for(lambda: self._sent >= said or self.why == "lost")
        if self._sent < said:
            raise LeaseLost(f"attempt {self.job.attempt} of job {self.job.id} has lost its lease: nothing was saved")

    def end(self, outcome: Outcome) -> None:
        """It has ended, or is taken for ended, and no more will be saved. What it says of that later is not heard."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        if self.saver:
            self._ended.set()
            self._news.set()
        self._house.on_end(self, outcome)

    async def has_ended_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._ended.wait()
        except TimeoutError:
            return False

    def finish(self, outcome: Outcome) -> Finish:
        job = self.job
        return Finish(job.id, job.attempt, outcome, self.pid, self.start_delay, job.created, self.pid is None)
