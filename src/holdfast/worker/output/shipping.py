"""Brings what jobs print from their files to the store, while they run, and what is left when they have ended.

A log is sent in blocks: the first ones, and the last ones as they grow. What lies between is not kept, here or in the
store. To send a block twice changes nothing, so nobody has to remember what was sent: after a crash the next worker of
the node sends all that is there.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from holdfast import errors
from holdfast.constants import LOG_BLOCK, LOG_HEAD, LOG_TAIL
from holdfast.store import commands
from holdfast.store.commands import LogBlock
from holdfast.text import printable
from holdfast.worker.linux import punch_hole
from holdfast.worker.output.console import Outlet
from holdfast.worker.output.files import FOLDER, LogName, is_open
from holdfast.worker.retrying import RetryingStore
from holdfast.worker.waiting import Threads

log = logging.getLogger("holdfast.worker")

LOOK_EVERY = 0.3  # seconds
AT_ONCE = 32  # blocks in one call, and files that are looked at together
LONGEST_LINE = 4096  # bytes, of what is shown here

_reading = Threads("logs", 2)

IsRunning = Callable[[str, int], bool]


@dataclass
class _File:
    """A log on disk, and how much of it is sent, shown and given back to the disk."""

    name: LogName
    path: Path
    sent: int = 0
    shown: int = 0
    freed: int = LOG_HEAD * LOG_BLOCK

    def blocks(self, size: int) -> Iterator[LogBlock]:
        """What is to be sent, from the first block that has grown."""
        last = (size - 1) // LOG_BLOCK
        with self.path.open("rb") as file:
            for number in range(self.sent // LOG_BLOCK, last + 1):
                if LOG_HEAD <= number <= last - LOG_TAIL:
                    continue
                file.seek(number * LOG_BLOCK)
                if data := file.read(LOG_BLOCK):
                    yield LogBlock(self.name.id, self.name.created, self.name.attempt, number, data)

    def free(self, size: int) -> None:
        """Give back to the disk what nobody will read: a job may print without end."""
        end = (size // LOG_BLOCK - LOG_TAIL) * LOG_BLOCK
        if end > self.freed:
            punch_hole(self.path, self.freed, end - self.freed)
            self.freed = end


class _News(NamedTuple):
    """What is to be sent of a file of this size. If it is over, nobody writes to it any more."""

    file: _File
    size: int
    blocks: list[LogBlock]
    is_over: bool


class Logs:
    """Sends the logs of a worker's jobs; with an outlet, also shows them there."""

    def __init__(
        self, store: RetryingStore, directory: Path, is_running: IsRunning, *, outlet: Outlet | None = None
    ) -> None:
        self._store = store
        self._folder = directory / FOLDER
        self._is_running = is_running
        self._outlet = outlet
        self._files: dict[str, _File] = {}
        self._looking = Lock()
        self._is_refused = False  # by a store that has no memory left

    async def keep(self) -> None:
        await self._store.connected()
        while True:
            await self.send()
            await asyncio.sleep(LOOK_EVERY)

    async def keep_small(self) -> None:
        """Save the disk, also while the store is away and nothing is sent."""
        while True:
            await _reading.call(self._free)
            await asyncio.sleep(LOOK_EVERY)

    def _free(self) -> None:
        for file in self._look():
            file.free(_size(file.path))

    async def send(self, *, last: bool = False) -> bool:
        """Send what is new; and remove what is sent of attempts that have ended, or of all, at the `last` time.

        Returns whether the store took it. One without memory does not: then it stays here, to be sent again.
        """
        found = await _reading.call(self._look)
        for first in range(0, len(found), AT_ONCE):
            part = found[first : first + AT_ONCE]
            ended = [last or not self._is_running(file.name.id, file.name.attempt) for file in part]
            news = await _reading.call(self._read_all, part, ended, last)
            blocks = [block for each in news for block in each.blocks]
            for place in range(0, len(blocks), AT_ONCE):
                if not await self._tell(blocks[place : place + AT_ONCE]):
                    return False
            await _reading.call(self._settle, news)
        return True

    @property
    def are_left(self) -> bool:
        """Whether there is something to send that nobody has sent."""
        return any(file.sent < size for file in self._look() if (size := _size(file.path)))

    def _look(self) -> list[_File]:
        with self._looking, suppress(OSError):
            names = [(entry, LogName.parse(entry.name)) for entry in os.scandir(self._folder)]
            self._files = {
                entry.name: self._files.get(entry.name) or _File(name, Path(entry.path))
                for entry, name in names
                if name
            }
        return list(self._files.values())

    def _read_all(self, files: list[_File], ended: list[bool], last: bool) -> list[_News]:
        news = []
        for file, has_ended in zip(files, ended, strict=True):
            is_over = has_ended and (last or not is_open(file.path))  # before it is read
            with suppress(OSError):  # it is gone: the job's process removes what stayed empty
                size = os.stat(file.path).st_size
                if size > file.sent or is_over:
                    news.append(self._read(file, size, is_over))
        return news

    def _read(self, file: _File, size: int, is_over: bool) -> _News:
        if self._outlet and size > 0:
            self._outlet.write(_shown(file, size, is_over))
        return _News(file, size, list(file.blocks(size)) if size > file.sent else [], is_over)

    def _settle(self, news: list[_News]) -> None:
        for each in news:
            each.file.sent = max(each.file.sent, each.size)
            if each.is_over:
                each.file.path.unlink(missing_ok=True)

    async def _tell(self, blocks: list[LogBlock]) -> bool:
        try:
            await self._store.run(commands.log(blocks))
        except errors.StoreUnavailable:
            raise
        except errors.StoreFull as error:
            if not self._is_refused:
                log.error("logs stay on this machine until the store takes them: %s", error)
            self._is_refused = True
            return False
        except errors.HoldfastError as error:  # it would be refused again
            log.error("the log of job %s is not kept: %s", blocks[0].id, error)
        self._is_refused = False
        return True


async def send_rest(store: RetryingStore, directory: Path) -> bool:
    """Send the logs that a dead worker has left. Returns whether the store took them."""
    return await Logs(store, directory, lambda *_: False).send(last=True)


def _shown(file: _File, size: int, is_over: bool) -> str:
    """What is new, line by line, with the id of the job before each; at the end, also what is no whole line."""
    start = max(file.shown, size - LOG_TAIL * LOG_BLOCK)
    with file.path.open("rb") as source:
        source.seek(start)
        data = source.read(size - start)
    lines, newline, rest = data.rpartition(b"\n")
    file.shown = start + len(lines) + len(newline)
    texts = lines.split(b"\n") if newline else []
    words = (
        printable(text[:LONGEST_LINE].decode(errors="replace").rstrip("\r"), tabs=True)
        for text in ([*texts, rest] if is_over and rest else texts)
    )
    return "".join(f"{file.name.id} | {line}\n" for line in words)


def _size(path: Path) -> int:
    with suppress(OSError):
        return os.stat(path).st_size
    return 0
