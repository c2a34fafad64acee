"""A running job without a worker: what it says is heard by the test."""

from __future__ import annotations

import msgspec

from holdfast.running.link import DetachedLink
from holdfast.running.running_job import RunningJob


class Listener(DetachedLink):
    """A link that remembers what was said, and stops when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[bytes] = []
        self.progress: list[dict[str, object]] = []
        self.notes: list[str] = []

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        self.notes += [] if note is None else [note]
        if checkpoint is not None:
            self.checkpoints.append(checkpoint)
        if progress is not None:
            self.progress.append(msgspec.json.decode(progress))


def running(link: Listener, checkpoint: bytes = b"") -> RunningJob:
    return RunningJob(link, id="j", attempt=1, task="t", queue="q", checkpoint=checkpoint)
