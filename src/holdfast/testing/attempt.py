"""One attempt at a job, made in the process of the test. What it says goes to the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import commands
from holdfast.calling import Call, Interrupted
from holdfast.commands import Claimed, Held
from holdfast.store import Store


class Link:
    """What a job says goes to the store at once. There it hears that it is to be cancelled."""

    def __init__(self, store: Store, held: Held, *, stopping: bool) -> None:
        self._store = store
        self._held = held
        self.stopping = stopping

    @property
    def stop_reason(self) -> str:
        return "worker" if self.stopping else ""

    def ask(self, word: str, *parts: Any) -> tuple[str, Any]:
        if word == "flush":
            return "", None
        step, result = parts
        return "", self._store.run(commands.once(self._held, step, result))

    async def aask(self, word: str, *parts: Any) -> tuple[str, Any]:
        return self.ask(word, *parts)

    def log(self, lines: str) -> None:
        """A test sees it printed."""
        print(lines, end="")

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        notes = [] if note is None else [note]
        if self._store.run(commands.save(self._held, checkpoint, progress=progress, notes=notes)):
            raise Interrupted


def call_of(job: Claimed, directory: Path) -> Call:
    return Call(job.id, job.attempt, job.queue, job.task, job.payload, job.checkpoint, str(directory), run=job.run)
