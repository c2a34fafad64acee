"""An attempt: a claimed job on its way through an executor, and all that may happen to it from outside.

claim ──▶ Attempt ──▶ runner ──▶ outcome ──▶ finish
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.calling import Call
from holdfast.commands import Claimed, Finish, Held
from holdfast.errors import LeaseLost
from holdfast.limits import MOST_NOTES
from holdfast.names import file_name
from holdfast.outcome import Outcome
from holdfast.run import Run
from holdfast.worker.output import LogName, append

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
            (self.notes + later.notes)[-MOST_NOTES:],
        )


class Attempt:
    """One run of one job. `interrupted` is set when it must end before its time; `why` says why."""

    def __init__(
        self,
        job: Claimed,
        executor: str,
        directory: Path,
        *,
        on_start: Announce,
        on_first_save: Announce,
        on_request: Request,
        lease_from: Callable[[], float],
        captured: bool = True,
    ) -> None:
        self._on_start = on_start
        self._on_first_save = on_first_save
        self._on_request = on_request
        self.lease_from = lease_from  # when the claim or the last renewal was sent, by the clock of `boot_time`
        self.is_renewed = False  # by the supervisor; only exclusive jobs are told
        self.job = job
        self.run = Run.decode(job.run)
        self.held = Held(executor, job.id, job.attempt)
        self.directory = directory / f"{job.attempt}-{file_name(job.id)}"
        name = LogName(job.id, job.created, job.attempt)
        self.log = str(name.path(directory.parent))
        self.output = self.log if captured else ""  # where what it prints goes, if it shares its process
        self.claimed_at = time.monotonic()
        self.pid: int | None = None
        self.start_delay: int | None = None
        self.heard_at = self.claimed_at  # when the job last said something
        self.stopping = asyncio.Event()
        self.stop_reason = ""  # WORKER, SOFT
        self.interrupted = asyncio.Event()
        self.why = ""  # cancelled, lost, stopped, stalled, memory, lapsing
        self.verdict: Outcome | None = None  # what that means for the job, if it is no wish
        self.saver: asyncio.Task[None] | None = None
        self.look: Callable[[], str] = str  # what it does just now, if it has no process of its own; nothing yet
        self._unsaved: Said | None = None
        self._said = self._taken = self._sent = 0  # how often something was said, and how much of it is sent
        self._all_sent = asyncio.Condition()
        self._news = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def key(self) -> tuple[str, int]:
        return self.job.id, self.job.attempt

    @property
    def call(self) -> Call:
        job = self.job
        folder = str(self.directory)
        return Call(job.id, job.attempt, job.queue, job.task, job.payload, job.checkpoint, folder, self.log, job.run)

    def started(self, pid: int) -> None:
        self.pid = pid
        self.heard_at = time.monotonic()
        self.start_delay = round((self.heard_at - self.claimed_at) * 1000)
        self._on_start(self)

    def stop(self, reason: str) -> None:
        """Let the job see that it is to save, and yield or end."""
        self.stop_reason = self.stop_reason or reason
        self.stopping.set()

    def interrupt(self, why: str, verdict: Outcome | None = None) -> None:
        """End it early. What came first counts, but for a lost lease."""
        if not self.why or why == "lost":
            self.why, self.verdict = why, verdict
        self.interrupted.set()

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
        if self.interrupted.is_set():
            self.why = "rewound"

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        """Keep what the job said until it is sent."""
        self.heard_at = time.monotonic()
        self._said += 1
        self._keep((self._unsaved or Said()).and_then(Said(checkpoint, progress, () if note is None else (note,))))

    def _keep(self, said: Said) -> None:
        self._unsaved = said
        self._news.set()
        if self.saver is None:
            self._on_first_save(self)

    def write_log(self, lines: str) -> None:
        """Write lines to its log, unless it has ended: then that may have been sent, and be gone."""
        if not self._ended.is_set():
            append(self.log, lines)

    async def request(self, word: str, *parts: Any) -> tuple[str, Any]:
        """What the job asks for: see `requests`."""
        self.heard_at = time.monotonic()
        return await self._on_request(self, word, *parts)

    def save_again(self, said: Said) -> None:
        """It could not be sent. What the job said since then counts more."""
        self._keep(said.and_then(self._unsaved or Said()))

    async def unsaved(self) -> Said | None:
        """Wait for what is to be sent; it then counts as sent. None if the attempt has ended and all is sent."""
        while self._unsaved is None and not self._ended.is_set():
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
        async with self._all_sent:
            await self._all_sent.wait_for(lambda: self._sent >= said or self.why == "lost")
        if self._sent < said:
            raise LeaseLost(f"attempt {self.job.attempt} of job {self.job.id} has lost its lease: nothing was saved")

    def end(self) -> None:
        """No more will be saved."""
        self._ended.set()
        self._news.set()

    async def has_ended_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._ended.wait()
        except TimeoutError:
            return False

    def finish(self, outcome: Outcome) -> Finish:
        is_unstarted = self.pid is None
        return Finish(
            self.job.id, self.job.attempt, outcome, self.pid, self.start_delay, self.job.created, is_unstarted
        )
