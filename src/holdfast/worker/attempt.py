"""An attempt: a claimed job on its way through an executor, and all that may happen to it from outside.

claim ──▶ Attempt ──▶ runner ──▶ outcome ──▶ finish
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.commands import Claimed, Finish, Held
from holdfast.outcome import Outcome


class Attempt:
    """One run of one job. `interrupted` is set when it must end before its time; `why` says why."""

    def __init__(self, job: Claimed, executor: str, directory: Path, announce: Callable[[Attempt], None]) -> None:
        self._announce = announce
        self.job = job
        self.held = Held(executor, job.id, job.attempt)
        self.directory = directory / f"{job.attempt}-{job.id.replace('/', '_')}"
        self.claimed_at = time.monotonic()
        self.pid: int | None = None
        self.start_delay: int | None = None
        self.stopping = asyncio.Event()
        self.interrupted = asyncio.Event()
        self.why = ""  # cancelled, lost, stopped
        self.saving = asyncio.Event()
        self._checkpoint: bytes | None = None
        self._progress: str | None = None

    def started(self, pid: int) -> None:
        self.pid = pid
        self.start_delay = round((time.monotonic() - self.claimed_at) * 1000)
        self._announce(self)

    def interrupt(self, why: str) -> None:
        """End it early. A lost lease counts more than a wish."""
        if not self.why or why == "lost":
            self.why = why
        self.interrupted.set()

    def save(self, checkpoint: bytes | None, progress: str | None) -> None:
        """Keep what the job said until it is sent; only the last counts."""
        self._checkpoint = self._checkpoint if checkpoint is None else checkpoint
        self._progress = self._progress if progress is None else progress
        self.saving.set()

    def unsaved(self) -> tuple[bytes | None, str | None]:
        """Return what is to be sent, which then counts as sent."""
        said = self._checkpoint, self._progress
        self._checkpoint = self._progress = None
        self.saving.clear()
        return said

    def finish(self, outcome: Outcome) -> Finish:
        return Finish(self.job.id, self.job.attempt, outcome, self.pid, self.start_delay)
