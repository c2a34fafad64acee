"""An executor's process as its supervisor sees it: how to start, hear, tell and kill it, and which leases it holds."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from holdfast.commands import Held, Started
from holdfast.worker import wire
from holdfast.worker.settings import Start, WorkerSettings
from holdfast.worker.system import kill_group


class ExecutorProcess:
    """One executor, by the name that is never used again."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.name = name
        self._process = process
        self._control = control
        self._writer: asyncio.StreamWriter | None = None
        self._held: dict[tuple[str, int], int] = {}  # (job, attempt) -> process id, 0 if it has none of its own
        self._started: list[Started] = []

    @classmethod
    def start(cls, name: str, settings: WorkerSettings, lock: int, pulse: int) -> ExecutorProcess:
        ours, its = socket.socketpair()
        start = Start(name=name, parent=os.getpid(), settings=settings, control=its.fileno(), pulse=pulse)
        with its:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.worker.main", msgspec.json.encode(start)],
                pass_fds=(its.fileno(), lock, pulse),
                stdin=subprocess.DEVNULL,
            )
        return cls(name, process, ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def held(self) -> list[Held]:
        return [Held(self.name, id, attempt) for id, attempt in self._held]

    def take_started(self) -> list[Started]:
        """Return what was started since this was last asked."""
        started, self._started = self._started, []
        return started

    async def messages(self) -> AsyncIterator[list[Any]]:
        reader, self._writer = await asyncio.open_connection(sock=self._control)
        while (message := await wire.read(reader)) is not None:
            yield message

    def note(self, word: str, rows: list[Any]) -> None:
        """Keep the books of what the executor holds, as it tells us."""
        if word == "claimed":
            self._held.update(dict.fromkeys(_pairs(rows), 0))
        elif word == "ended":
            for pair in _pairs(rows):
                self._held.pop(pair, None)
        elif word == "started":
            id, attempt, pid, delay = rows
            if (id, attempt) in self._held:
                self._held[id, attempt] = pid
                self._started.append(Started(self.name, id, attempt, pid, delay))

    def send(self, *message: Any) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.pack(*message))

    async def wait(self) -> int:
        """Return the exit code of the process, once it is dead."""
        while (code := self._process.poll()) is None:
            await _readable(os.pidfd_open(self._process.pid))
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()

    def kill_jobs(self) -> None:
        for pid in self._held.values():
            if pid:
                kill_group(pid)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _pairs(rows: list[Any]) -> Iterable[tuple[str, int]]:
    return zip(rows[::2], rows[1::2], strict=True)


async def _readable(pidfd: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
