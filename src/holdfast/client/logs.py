"""The output of jobs: read a log, or follow it as it grows.

    jobs.logs(id).text
    for part in jobs.follow_logs(id): print(part.text, end="")

Each attempt has its own log. Of a long log the beginning and the end are retained, with a line between them that gives
the number of omitted bytes.
"""

from __future__ import annotations

import time
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from holdfast.constants import LOG_BLOCK, USAGE_BLOCK
from holdfast.errors import Invalid, JobNotFound
from holdfast.job.job import FINAL
from holdfast.job.logs import Log, LogPart
from holdfast.names import check_id
from holdfast.store import AsyncStore, Steps, Store, Stores, adrive, commands, drive

POLL_INTERVAL = 0.3  # seconds; workers send output as often
MAX_EMPTY_POLLS = 4  # after the end of a job, before output that its worker has not sent is given up


def logs(_: Stores, id: str, /, *, attempt: int | None = None) -> Steps[Log]:
    """Return the output of an attempt, including `current_job().log`; by default of the last attempt that has any.

    The first 64 and the last 192 KiB of the last 10 attempts are retained.

    Raises:
        JobNotFound: no job has this id.
    """
    found: commands.LogReply = yield commands.logs(check_id(id), _check_attempt(attempt))
    if attempt is None and found.attempts and found.attempt not in found.attempts:  # the last attempt has no output yet
        found = yield commands.logs(id, found.attempts[-1])
    head, left_out, tail = b"", 0, b""
    for number, data in _blocks(found):
        missing = number * LOG_BLOCK - len(head) - left_out - len(tail)
        left_out += missing
        if left_out:
            tail += data
        else:
            head += data
    return Log(attempt or (found.attempt if found.attempts else 0), found.attempts, head, left_out, tail)


def follow_logs(self: Stores, id: str, /, *, attempt: int | None = None, tail: int | None = None) -> Iterator[LogPart]:
    """Iterate over the output of a job as it is written, until the job, or the given `attempt`, has ended.

    It starts with the output so far of the last attempt, or the given one; with `tail`, only with that number of lines.
    Later attempts follow.

    Raises:
        JobNotFound: no job has this id, or it was deleted.
    """
    return follow(self.store, LogReader(id, attempt, tail), time.sleep)


async def afollow_logs(
    self: Stores, id: str, /, *, attempt: int | None = None, tail: int | None = None
) -> AsyncIterator[LogPart]:
    """Iterate over the output of a job, like `follow_logs`."""
    async for part in afollow(self.async_store, LogReader(id, attempt, tail)):
        yield part


async def afollow(store: AsyncStore, reader: LogReader) -> AsyncIterator[LogPart]:
    """Poll a log until it is complete, like `follow`."""
    import asyncio

    while not reader.is_complete:
        for part in await adrive(reader.poll(), store.run):
            yield part
        if not reader.is_complete:
            await asyncio.sleep(POLL_INTERVAL)


def follow(store: Store, reader: LogReader, sleep: Callable[[float], object]) -> Iterator[LogPart]:
    """Poll a log until it is complete."""
    while not reader.is_complete:
        yield from drive(reader.poll(), store.run)
        if not reader.is_complete:
            sleep(POLL_INTERVAL)


class LogReader:
    """Reads a growing log: remembers its position, and follows from attempt to attempt.

    It begins behind what was `read` before: the number of an attempt, and how many of its bytes.
    """

    def __init__(self, id: str, attempt: int | None, tail: int | None, *, read: tuple[int, int] | None = None) -> None:
        if tail is not None and (type(tail) is not int or tail < 0):
            raise Invalid(f"tail is {tail!r}; it must be a number of lines")
        self._id = check_id(id)
        self._only = _check_attempt(attempt)
        self._tail = tail
        self._attempt, begin = read or (attempt, 0)
        self._empty_polls = 0  # since the end
        self._begin(begin)
        self.is_complete = False

    def _begin(self, read: int = 0) -> None:
        self._read = read  # bytes of this attempt
        self._decoder = getincrementaldecoder("utf-8")("replace")

    @property
    def read(self) -> int:
        """How many bytes of the attempt were returned or left out."""
        return self._read

    def poll(self) -> Steps[list[LogPart]]:
        """Return new output; of the first output only the last lines, if `tail` is given."""
        parts = yield from self._poll()
        if self._tail is not None:
            parts, self._tail = self._last_lines(parts, self._tail), None
        return parts

    def _poll(self) -> Steps[list[LogPart]]:
        """Return new output, of this attempt or, once it is complete, of the next one."""
        block = self._read // LOG_BLOCK
        found: commands.LogReply = yield commands.logs(self._id, self._attempt, block=block)
        if self._attempt is None:
            if not found.attempts:
                return (yield from self._nothing_new())
            self._attempt = found.attempts[-1]
            if found.attempt != self._attempt:
                return (yield from self._poll())
        if parts := self._take(found):
            self._empty_polls = 0
            return parts
        later = [number for number in found.attempts if number > found.attempt]
        if later and self._only is None:
            self._attempt = later[0]
            self._begin()
            return (yield from self._poll())
        return (yield from self._nothing_new()) if found.has_ended else []

    def _nothing_new(self) -> Steps[list[LogPart]]:
        """Check whether the job has ended; its last output may arrive a little later."""
        (job,) = yield commands.get([self._id])
        if job is None:
            raise JobNotFound(f"job {self._id} was deleted")
        has_ended = job["state"] in FINAL or self._has_attempt_ended(job)
        self._empty_polls = self._empty_polls + 1 if has_ended else 0
        self.is_complete = self._empty_polls > MAX_EMPTY_POLLS
        return []

    def _has_attempt_ended(self, job: dict[str, Any]) -> bool:
        """Return whether the given attempt has ended, if one was given; the job may continue for long."""
        if self._only is None:
            return False
        number = int(job["attempt"])
        return number > self._only or (number == self._only and job["state"] != "running")

    def _take(self, found: commands.LogReply) -> list[LogPart]:
        parts = []
        for number, data in _blocks(found):
            start = number * LOG_BLOCK
            left_out, new = max(0, start - self._read), data[max(0, self._read - start) :]
            if new:
                self._read += left_out + len(new)
                parts.append(LogPart(found.attempt, new, self._decoder.decode(new), left_out))
        return parts

    def _last_lines(self, parts: list[LogPart], wanted: int) -> list[LogPart]:
        data = last_lines(b"".join(part.data for part in parts), wanted)
        if not data:
            return []
        self._decoder.reset()  # data starts with a line, but may end within a character
        return [LogPart(parts[0].attempt, data, self._decoder.decode(data))]


def last_lines(data: bytes, wanted: int) -> bytes:
    """Return the last lines of output. A carriage return does not end one: progress bars print many."""
    end = len(data) - data.endswith(b"\n")
    for _ in range(wanted):
        end = data.rfind(b"\n", 0, end)
        if end < 0:
            return data
    return data[end + 1 :] if wanted else b""


def _blocks(found: commands.LogReply) -> list[tuple[int, bytes]]:
    """Return the output, block by block, without the block of resource usage."""
    return sorted((number, data) for number, data in found.blocks.items() if number != USAGE_BLOCK)


def _check_attempt(attempt: Any) -> int | None:
    if attempt is not None and (type(attempt) is not int or attempt < 1):
        raise Invalid(f"attempt is {attempt!r}; it must be a number from 1")
    return attempt
