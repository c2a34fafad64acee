"""Sends the logs of jobs to the store, while they run and after their end.

A log is sent in blocks: the first ones, and the last ones as they grow. Those in between are not kept, on disk or in
the store. Sending a block twice changes nothing, so no process has to remember what was sent: after a crash, the next
worker of the node sends everything that is there.
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
from holdfast.worker.event_loop import Threads
from holdfast.worker.linux import punch_hole
from holdfast.worker.output.console import ConsoleStream
from holdfast.worker.output.files import FOLDER, LogName, is_open
from holdfast.worker.retrying_store import RetryingStore

log = logging.getLogger("holdfast.worker")

SEND_INTERVAL = 0.3  # seconds
BATCH = 32  # blocks in one call, and files that are read together
MAX_LINE = 4096  # bytes of a line that is shown

_reading = Threads("logs", 2)

IsRunning = Callable[[str, int], bool]


@dataclass
class _File:
    """A log on disk, and how much of it is sent, shown and freed."""

    name: LogName
    path: Path
    sent: int = 0
    shown: int = 0
    freed: int = LOG_HEAD * LOG_BLOCK

    def blocks(self, size: int) -> Iterator[LogBlock]:
        """Yield the blocks to send, from the first one that has grown."""
        last = (size - 1) // LOG_BLOCK
        with self.path.open("rb") as file:
            for number in range(self.sent // LOG_BLOCK, last + 1):
                if LOG_HEAD <= number <= last - LOG_TAIL:
                    continue
                file.seek(number * LOG_BLOCK)
                if data := file.read(LOG_BLOCK):
                    yield LogBlock(self.name.id, self.name.created, self.name.attempt, number, data)

    def free(self, size: int) -> None:
        """Free the blocks that are not kept: a job may print without end."""
        end = (size // LOG_BLOCK - LOG_TAIL) * LOG_BLOCK
        if end > self.freed:
            punch_hole(self.path, self.freed, end - self.freed)
            self.freed = end


class _Unsent(NamedTuple):
    """The blocks to send of a file of this size. If it is over, no process writes to it any more."""

    file: _File
    size: int
    blocks: list[LogBlock]
    is_complete: bool


class LogShipper:
    """Sends the logs of a worker's jobs; with a `console`, also prints them there."""

    def __init__(
        self, store: RetryingStore, directory: Path, is_running: IsRunning, *, console: ConsoleStream | None = None
    ) -> None:
        self._store = store
        self._folder = directory / FOLDER
        self._is_running = is_running
        self._console = console
        self._files: dict[str, _File] = {}
        self._listing = Lock()
        self._is_refused = False  # by a store that is out of memory

    async def run(self) -> None:
        await self._store.connected()
        while True:
            await self.send()
            await asyncio.sleep(SEND_INTERVAL)

    async def free_space(self) -> None:
        """Free disk space, also while the store is unavailable and nothing is sent."""
        while True:
            await _reading.call(self._free)
            await asyncio.sleep(SEND_INTERVAL)

    def _free(self) -> None:
        for file in self._list():
            file.free(_size(file.path))

    async def send(self, *, last: bool = False) -> bool:
        """Send new output, and remove the logs of attempts that have ended; the `last` time, of all attempts.

        Return False if the store is out of memory: the logs stay here, and are sent again.
        """
        found = await _reading.call(self._list)
        for first in range(0, len(found), BATCH):
            part = found[first : first + BATCH]
            ended = [last or not self._is_running(file.name.id, file.name.attempt) for file in part]
            unsent = await _reading.call(self._read_all, part, ended, last)
            blocks = [block for each in unsent for block in each.blocks]
            for place in range(0, len(blocks), BATCH):
                if not await self._send_blocks(blocks[place : place + BATCH]):
                    return False
            await _reading.call(self._mark_sent, unsent)
        return True

    @property
    def has_unsent(self) -> bool:
        """Whether any output is not sent yet."""
        return any(file.sent < size for file in self._list() if (size := _size(file.path)))

    def _list(self) -> list[_File]:
        with self._listing, suppress(OSError):
            names = [(entry, LogName.parse(entry.name)) for entry in os.scandir(self._folder)]
            self._files = {
                entry.name: self._files.get(entry.name) or _File(name, Path(entry.path))
                for entry, name in names
                if name
            }
        return list(self._files.values())

    def _read_all(self, files: list[_File], ended: list[bool], last: bool) -> list[_Unsent]:
        unsent = []
        for file, has_ended in zip(files, ended, strict=True):
            is_complete = has_ended and (last or not is_open(file.path))  # checked before it is read
            with suppress(OSError):  # removed: the job's process removes an empty log
                size = os.stat(file.path).st_size
                if size > file.sent or is_complete:
                    unsent.append(self._read(file, size, is_complete))
        return unsent

    def _read(self, file: _File, size: int, is_complete: bool) -> _Unsent:
        if self._console and size > 0:
            self._console.write(_new_lines(file, size, is_complete))
        return _Unsent(file, size, list(file.blocks(size)) if size > file.sent else [], is_complete)

    def _mark_sent(self, unsent: list[_Unsent]) -> None:
        for each in unsent:
            each.file.sent = max(each.file.sent, each.size)
            if each.is_complete:
                each.file.path.unlink(missing_ok=True)

    async def _send_blocks(self, blocks: list[LogBlock]) -> bool:
        try:
            await self._store.run(commands.log(blocks))
        except errors.StoreUnavailable:
            raise
        except errors.StoreFull as error:
            if not self._is_refused:
                log.error("logs stay on this machine until the store accepts them: %s", error)
            self._is_refused = True
            return False
        except errors.HoldfastError as error:  # it would be refused again
            log.error("dropped a part of the log of job %s: %s", blocks[0].id, error)
        self._is_refused = False
        return True


async def send_remaining_logs(store: RetryingStore, directory: Path) -> bool:
    """Send the logs that a dead worker left. Return whether the store accepted them."""
    return await LogShipper(store, directory, lambda *_: False).send(last=True)


def _new_lines(file: _File, size: int, is_complete: bool) -> str:
    """Return the new lines, each with the id of the job; at the end, also an incomplete one."""
    start = max(file.shown, size - LOG_TAIL * LOG_BLOCK)
    with file.path.open("rb") as source:
        source.seek(start)
        data = source.read(size - start)
    lines, newline, rest = data.rpartition(b"\n")
    file.shown = start + len(lines) + len(newline)
    texts = lines.split(b"\n") if newline else []
    words = (
        printable(text[:MAX_LINE].decode(errors="replace").rstrip("\r"), tabs=True)
        for text in ([*texts, rest] if is_complete and rest else texts)
    )
    return "".join(f"{file.name.id} | {line}\n" for line in words)


def _size(path: Path) -> int:
    with suppress(OSError):
        return os.stat(path).st_size
    return 0
