"""What jobs printed, as the client reads it: a log at one moment, or as it grows.

    jobs.logs(id).text
    for part in jobs.follow_logs(id): print(part.text, end="")

A log belongs to an attempt. Of a long one the beginning and the end are kept: a line of ours says how much is left out.
"""

from __future__ import annotations

import time
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from holdfast.constants import LOG_BLOCK
from holdfast.errors import Invalid, JobNotFound
from holdfast.job.job import FINAL
from holdfast.job.logs import Log, LogPart
from holdfast.names import check_id
from holdfast.store import Steps, Store, Stores, adrive, commands, drive

LOOK_EVERY = 0.3  # seconds; workers send what is new as often
QUIET = 4  # looks without news after the end of a job: what its worker has not sent by then is not waited for


def logs(_: Stores, id: str, /, *, attempt: int | None = None) -> Steps[Log]:
    """Return what an attempt of a job printed, and wrote by `current_job().log`: the last that did, or this one.

    The first 64 KiB and the last 192 are kept, of the last 10 attempts.

    Raises:
        JobNotFound: there is none of this id.
    """
    found: commands.LogReply = yield commands.logs(check_id(id), _checked(attempt))
    if attempt is None and found.attempts and found.attempt not in found.attempts:  # the last one is silent so far
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
    """Iterate over what a job prints, as it does, until it has ended; or until one `attempt` has.

    It begins with what the last attempt, or the given one, has printed so far; of that, with `tail`, the last so many
    lines. Then come the attempts after it.

    Raises:
        JobNotFound: there is none of this id, or no more.
    """
    return follow(self.store, Following(id, attempt, tail), time.sleep)


async def afollow_logs(
    self: Stores, id: str, /, *, attempt: int | None = None, tail: int | None = None
) -> AsyncIterator[LogPart]:
    """Iterate over what a job prints, as `follow_logs` does."""
    import asyncio

    following = Following(id, attempt, tail)
    while not following.is_over:
        for part in await adrive(following.look(), self.async_store.run):
            yield part
        if not following.is_over:
            await asyncio.sleep(LOOK_EVERY)


def follow(store: Store, following: Following, sleep: Callable[[float], object]) -> Iterator[LogPart]:
    """Look again and again, until it is over."""
    while not following.is_over:
        yield from drive(following.look(), store.run)
        if not following.is_over:
            sleep(LOOK_EVERY)


class Following:
    """Where somebody is who reads a log as it grows."""

    def __init__(self, id: str, attempt: int | None, tail: int | None) -> None:
        if tail is not None and (type(tail) is not int or tail < 0):
            raise Invalid(f"tail is {tail!r}; it must be a number of lines")
        self._id = check_id(id)
        self._only = _checked(attempt)
        self._tail = tail
        self._attempt = attempt
        self._quiet = 0  # looks since the end that brought nothing
        self._begin()
        self.is_over = False

    def _begin(self) -> None:
        self._read = 0  # bytes of this attempt
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def look(self) -> Steps[list[LogPart]]:
        """Return what is new; of what there is at first, only the end may be wanted."""
        parts = yield from self._look()
        if self._tail is not None:
            parts, self._tail = self._last_lines(parts, self._tail), None
        return parts

    def _look(self) -> Steps[list[LogPart]]:
        """Return what is new. The job may begin another attempt at any time."""
        block = self._read // LOG_BLOCK
        found: commands.LogReply = yield commands.logs(self._id, self._attempt, block=block)
        if self._attempt is None:
            if not found.attempts:
                return (yield from self._nothing_new())
            self._attempt = found.attempts[-1]
            if found.attempt != self._attempt:
                return (yield from self._look())
        if parts := self._take(found):
            self._quiet = 0
            return parts
        later = [number for number in found.attempts if number > found.attempt]
        if later and self._only is None:
            self._attempt = later[0]
            self._begin()
            return (yield from self._look())
        return (yield from self._nothing_new()) if found.has_ended else []

    def _nothing_new(self) -> Steps[list[LogPart]]:
        """See whether the job has ended; a log may come late, but not for ever."""
        (job,) = yield commands.get([self._id])
        if job is None:
            raise JobNotFound(f"there is no job {self._id} any more")
        is_last_word = job["state"] in FINAL or self._has_ended(job)
        self._quiet = self._quiet + 1 if is_last_word else 0
        self.is_over = self._quiet > QUIET
        return []

    def _has_ended(self, job: dict[str, Any]) -> bool:
        """Whether the only attempt that is wanted has; the job may go on for long."""
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
        lines = b"".join(part.data for part in parts).splitlines(keepends=True)
        data = b"".join(lines[-wanted:] if wanted else [])
        if not data:
            return []
        self._decoder.reset()  # it begins at a line, and may end within a character
        return [LogPart(parts[0].attempt, data, self._decoder.decode(data))]


def _blocks(found: commands.LogReply) -> list[tuple[int, bytes]]:
    """What was printed, block by block: the one before the first is about the use of the machine."""
    return sorted((number, data) for number, data in found.blocks.items() if number >= 0)


def _checked(attempt: Any) -> int | None:
    if attempt is not None and (type(attempt) is not int or attempt < 1):
        raise Invalid(f"attempt is {attempt!r}; it must be a number from 1")
    return attempt
