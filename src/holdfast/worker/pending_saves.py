"""Updates that a running job has saved and its executor has not sent to the store yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from holdfast.constants import MAX_NOTES


class Update(NamedTuple):
    """A checkpoint, progress and notes to store; None: unchanged."""

    checkpoint: bytes | None = None
    progress: str | None = None
    notes: tuple[str, ...] = ()

    def then(self, later: Update) -> Update:
        """Merge two updates: the later checkpoint and progress, and the latest notes of both."""
        return Update(
            self.checkpoint if later.checkpoint is None else later.checkpoint,
            self.progress if later.progress is None else later.progress,
            (self.notes + later.notes)[-MAX_NOTES:],
        )


class PendingSaves:
    """The updates of one attempt: added by the job, taken and acknowledged by the task that sends them."""

    def __init__(self) -> None:
        self.unsent: Update | None = None
        self._added = self._taken = self._sent = 0  # updates so far
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._acknowledged = asyncio.Condition()

    def add(self, update: Update) -> None:
        self._added += 1
        self.unsent = (self.unsent or Update()).then(update)
        self._changed.set()

    def put_back(self, update: Update) -> None:
        """Keep an update that could not be sent. Later updates take precedence."""
        self.unsent = update.then(self.unsent or Update())
        self._changed.set()

    def end(self) -> None:
        """The attempt has ended: no more updates come."""
        self._ended.set()
        self._changed.set()

    async def take(self) -> Update | None:
        """Wait for an update to send; None if the attempt has ended and nothing is left."""
        while self.unsent is None and not self._ended.is_set():
            self._changed.clear()
            await self._changed.wait()
        update, self.unsent = self.unsent, None
        self._taken = self._added
        return update

    async def acknowledge(self) -> None:
        """The store has the update that was taken last, or refused it for good."""
        self._sent = self._taken
        await self.wake_waiting()

    async def wake_waiting(self) -> None:
        """Let `all_sent` check again; the lease may be lost."""
        async with self._acknowledged:
            self._acknowledged.notify_all()

    async def all_sent(self, is_lost: Callable[[], bool]) -> bool:
        """Wait until all updates so far are stored. Return False if the lease was lost before."""
        added = self._added
        async with self._acknowledged:
            await self._acknowledged.wait_for(lambda: self._sent >= added or is_lost())
        return self._sent >= added

    async def ended_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._ended.wait()
        except TimeoutError:
            return False
