"""The job that runs: what a task sees of itself, by `current_job()`.

    job = current_job()
    for page in job.each(range(1000)):   # resumes where the last attempt was, reports progress, yields at a deploy
        ...

Outside of a worker it is a detached job that keeps what is saved in memory, so a task can be called as a function.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.codec import decode_checkpoint, encode_checkpoint
from holdfast.errors import Invalid, TooBig
from holdfast.limits import MOST_CHECKPOINT, MOST_NOTE
from holdfast.names import check_text

T = TypeVar("T")

SAVE_EVERY = 0.2  # seconds, at most, by `each`
LONGEST_MESSAGE = 200


class HandOver(BaseException):
    """Leaves a task that yields because its worker stops. Not an Exception: tasks that catch those still yield."""


class Link(Protocol):
    """Where a running job's words go. Both return at once."""

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None: ...

    @property
    def stopping(self) -> bool: ...


@dataclass
class Detached:
    """A link that leads nowhere."""

    stopping: bool = False

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        """What is saved stays with the job."""


class RunningJob:
    """One attempt at a job, as its task sees it."""

    def __init__(
        self,
        link: Link,
        *,
        id: str,
        attempt: int,
        task: str,
        queue: str,
        checkpoint: bytes = b"",
        directory: Path | None = None,
    ) -> None:
        self.id = id
        self.attempt = attempt
        self.task = task
        self.queue = queue
        self._link = link
        self._checkpoint = checkpoint
        self._directory = directory

    @property
    def stopping(self) -> bool:
        """Whether the worker is to stop: then save, and return or call `yield_now`; the job goes on elsewhere."""
        return self._link.stopping

    @property
    def directory(self) -> Path:
        """A directory of this attempt's own, made when first asked for and removed when the attempt has ended."""
        if self._directory is None:
            import tempfile

            self._directory = Path(tempfile.mkdtemp(prefix="holdfast-job-"))
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._directory

    def save(self, value: object, *, progress: float | None = None, message: str | None = None) -> None:
        """Keep where the job is, for its next attempt to find. Returns at once.

        Raises:
            Invalid: the value cannot be stored, or `progress` is not from 0 to 1.
            TooBig: it is over 256 KiB.
        """
        checkpoint = encode_checkpoint(value)
        if len(checkpoint) > MOST_CHECKPOINT:
            raise TooBig(f"the checkpoint has {len(checkpoint)} bytes; {MOST_CHECKPOINT} are allowed: save a reference")
        self._checkpoint = checkpoint
        self._link.save(self._checkpoint, _progress_text(progress, message))

    def report(self, progress: float, message: str | None = None) -> None:
        """Say how far the job is, from 0 to 1, without saving anything."""
        self._link.save(None, _progress_text(progress, message))

    def note(self, words: str) -> None:
        """Add an entry to the job's history, up to 1,000 bytes of text. Returns at once."""
        size = len(check_text(words, "the note").encode())
        if size == 0:
            raise Invalid("the note is empty; it must be a text")
        if size > MOST_NOTE:
            raise TooBig(f"the note has {size} bytes; {MOST_NOTE} are allowed")
        self._link.save(None, None, words)

    def checkpoint(self, kind: type[T], default: T) -> T:
        """Return what was saved last, by this attempt or one before, as a value of `kind`; else `default`."""
        return decode_checkpoint(self._checkpoint, kind) if self._checkpoint else default

    def yield_now(self) -> None:
        """Hand the job back: it goes on from its checkpoint, ahead of later jobs, and no attempt is charged."""
        raise HandOver

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate over items, resuming after those that earlier attempts have done.

        Only the position is kept, not the variables of the task: what it computes from the items must be outside of
        it, or be saved by it. For a sum, say, use `checkpoint` and `save`.

        The position is the job's checkpoint. It is kept a few times a second: after a crash, what was done since then
        is done again.
        """
        total = len(items) if isinstance(items, Sized) else None
        done = self.checkpoint(int, 0)
        saved_at = time.monotonic()
        for item in islice(items, done, None):
            yield item
            done += 1
            if self.stopping or time.monotonic() - saved_at >= SAVE_EVERY or done == total:
                self.save(done, progress=done / total if total else None)
                saved_at = time.monotonic()
                if self.stopping and done != total:
                    self.yield_now()


def _progress_text(progress: float | None, message: str | None) -> str | None:
    if progress is None and message is None:
        return None
    said: dict[str, Any] = {}
    if progress is not None:
        if not 0 <= progress <= 1:
            raise Invalid(f"progress is {progress!r}; it must be from 0 to 1")
        said["progress"] = round(progress, 4)
    if message is not None:
        said["message"] = message[:LONGEST_MESSAGE]
    return msgspec.json.encode(said).decode()


_current: ContextVar[RunningJob | None] = ContextVar("holdfast_job", default=None)


def current_job() -> RunningJob:
    """Return the job that is running here; outside of a worker, a detached one."""
    job = _current.get()
    if job is None:
        job = RunningJob(Detached(), id="detached", attempt=1, task="", queue="")
        _current.set(job)
    return job


def set_current_job(job: RunningJob) -> None:
    _current.set(job)
