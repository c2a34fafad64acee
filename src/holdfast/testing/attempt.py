"""An attempt of a job that runs in the process of a test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.running.link import DetachedLink
from holdfast.store import Store, commands
from holdfast.store.commands import ClaimedJob, Lease
from holdfast.task.call import Call, Interrupted


class StoreLink(DetachedLink):
    """Sends what a job saves, its fields and steps to the store at once; the reply tells whether it was cancelled."""

    def __init__(self, store: Store, lease: Lease, *, stopping: bool) -> None:
        super().__init__(stopping)
        self._store = store
        self._lease = lease

    def request(self, name: str, *arguments: Any) -> tuple[str, Any]:
        if name == "attach":
            fields, remove = arguments
            found = self._store.run(commands.attach_held(self._lease, fields, remove=remove))
            if found.cancelling:
                raise Interrupted
            return "", found.fields
        if name == "tag":
            return self._tag(*arguments)
        if name != "once":
            return super().request(name, *arguments)
        step, result = arguments
        return "", self._store.run(commands.once(self._lease, step, result))

    def _tag(self, tags: Sequence[str], remove: Sequence[str]) -> tuple[str, Any]:
        found = self._store.run(commands.tag_held(self._lease, tags, remove=remove))
        if found.cancelling:
            raise Interrupted
        return "", found.tags

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        notes = [] if note is None else [note]
        if self._store.run(commands.save(self._lease, checkpoint, progress=progress, notes=notes)):
            raise Interrupted


def call_of(job: ClaimedJob, directory: Path) -> Call:
    """Return the call that runs a claimed job, with this working directory."""
    return Call(
        job.id,
        job.attempt,
        job.queue,
        job.task,
        job.payload,
        job.checkpoint,
        str(directory),
        run=job.run,
        marks=job.marks,
    )
