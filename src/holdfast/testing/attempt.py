"""One attempt at a job, made in the process of the test, and connected to the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.running.channel import Detached
from holdfast.store import Store, commands
from holdfast.store.commands import ClaimedJob, Lease
from holdfast.task.call import Call, Interrupted


class StoreChannel(Detached):
    """Saves the checkpoints and steps of a job to the store at once, where it learns of a cancellation."""

    def __init__(self, store: Store, lease: Lease, *, stopping: bool) -> None:
        super().__init__(stopping)
        self._store = store
        self._lease = lease

    def ask(self, word: str, *parts: Any) -> tuple[str, Any]:
        if word != "once":
            return super().ask(word, *parts)
        step, result = parts
        return "", self._store.run(commands.once(self._lease, step, result))

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        notes = [] if note is None else [note]
        if self._store.run(commands.save(self._lease, checkpoint, progress=progress, notes=notes)):
            raise Interrupted


def call_from(job: ClaimedJob, directory: Path) -> Call:
    return Call(job.id, job.attempt, job.queue, job.task, job.payload, job.checkpoint, str(directory), run=job.run)
