"""Brings what jobs print from their files to the store, while they run, and what is left when they have ended.

A log is sent in blocks: the first ones, and the last ones as they grow. What lies between is not kept, here or in the
store. To send a block twice changes nothing, so nobody has to remember what was sent: after a crash the next worker of
the node sends all that is there.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast import commands, errors
from holdfast.commands import Block
from holdfast.limits import LOG_BLOCK, LOG_HEAD, LOG_TAIL
from holdfast.worker.output import FOLDER, LogName
from holdfast.worker.patient import PatientStore

log = logging.getLogger("holdfast.worker")

LOOK_EVERY = 0.3  # seconds
AT_ONCE = 32  # blocks in one call
LONGEST_LINE = 4096  # bytes, of what is shown here

IsRunning = Callable[[str, int], bool]


@dataclass
class _File:
    """A log on disk, and how much of it is sent, shown and given back to the disk."""

    name: LogName
    path: Path
    sent: int = 0
    shown: int = 0
    freed: int = LOG_HEAD * LOG_BLOCK

    def blocks(self, size: int) -> Iterator[Block]:
        """What is to be sent, from the first block that has grown."""
        last = (size - 1) // LOG_BLOCK
        with self.path.open("rb") as file:
            for number in range(self.sent // LOG_BLOCK, last + 1):
                if LOG_HEAD <= number <= last - LOG_TAIL:
                    continue
                file.seek(number * LOG_BLOCK)
                if data := file.read(LOG_BLOCK):
                    yield Block(self.name.id, self.name.created, self.name.attempt, number, data)

    def free(self, size: int) -> None:
        """Give back to the disk what nobody will read: a job may print without end."""
        end = (size // LOG_BLOCK - LOG_TAIL) * LOG_BLOCK
        if end > self.freed:
            _punch(self.path, self.freed, end - self.freed)
            self.freed = end


class Logs:
    """Sends the logs of a worker's jobs; with `show`, also prints them here."""

    def __init__(self, store: PatientStore, directory: Path, is_running: IsRunning, *, show: bool) -> None:
        self._store = store
        self._folder = directory / FOLDER
        self._is_running = is_running
        self._show = show
        self._files: dict[str, _File] = {}

    async def keep(self) -> None:
        await self._store.known()
        while True:
            await self.send()
            await asyncio.sleep(LOOK_EVERY)

    async def send(self) -> None:
        """Send what is new; and remove what is sent of attempts that have ended."""
        for file in await asyncio.to_thread(self._look):
            has_ended = not self._is_running(file.name.id, file.name.attempt)
            try:
                size = os.stat(file.path).st_size
                await self._send(file, size)
            except FileNotFoundError:
                self._files.pop(file.path.name, None)
                continue
            if has_ended:
                with suppress(OSError):
                    file.path.unlink()
                self._files.pop(file.path.name, None)

    def _look(self) -> list[_File]:
        found = []
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                name = LogName.parse(entry.name)
                if name:
                    found.append(self._files.setdefault(entry.name, _File(name, Path(entry.path))))
        return found

    async def _send(self, file: _File, size: int) -> None:
        if size <= file.sent:
            return
        if self._show:
            await asyncio.to_thread(_show, file, size)
        blocks = await asyncio.to_thread(lambda: list(file.blocks(size)))
        for first in range(0, len(blocks), AT_ONCE):
            await self._tell(blocks[first : first + AT_ONCE])
        file.sent = size
        await asyncio.to_thread(file.free, size)

    async def _tell(self, blocks: list[Block]) -> None:
        try:
            await self._store.run(commands.log(blocks))
        except errors.StoreUnavailable:
            raise
        except errors.HoldfastError as error:  # a store without memory for it: the job goes on
            log.error("the log of job %s is not kept: %s", blocks[0].id, error)


async def send_rest(store: PatientStore, directory: Path) -> None:
    """Send the logs that a dead worker has left."""
    await Logs(store, directory, lambda *_: False, show=False).send()


def _show(file: _File, size: int) -> None:
    """Print what is new, line by line, with the id of the job before each."""
    start = max(file.shown, size - LOG_TAIL * LOG_BLOCK)
    with file.path.open("rb") as source:
        source.seek(start)
        data = source.read(size - start)
    lines, newline, _ = data.rpartition(b"\n")
    for line in lines.split(b"\n") if newline else ():
        print(f"{file.name.id} | {line[:LONGEST_LINE].decode(errors='replace')}", file=sys.stdout)
    sys.stdout.flush()
    file.shown = start + len(lines) + len(newline)


def _punch(path: Path, offset: int, length: int) -> None:
    """Make a hole in a file: its size stays, and its place on the disk is free. Where that cannot be, it stays."""
    keep_size, punch_hole = 1, 2
    with suppress(OSError, AttributeError):
        descriptor = os.open(path, os.O_RDWR)
        try:
            ctypes.CDLL(None).fallocate(
                descriptor, keep_size | punch_hole, ctypes.c_longlong(offset), ctypes.c_longlong(length)
            )
        finally:
            os.close(descriptor)
