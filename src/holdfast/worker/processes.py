"""An executor's process as its supervisor sees it: how to start, hear, tell and kill it, and which leases it holds."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from holdfast.commands import Held, Started
from holdfast.worker import wire
from holdfast.worker.settings import Start, WorkerSettings
from holdfast.worker.system import kill_group


class ExecutorProcess:
    """One executor, by the name that is never used again."""

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.name = name
        self._process = process
        self._reader = reader
        self._writer = writer
        self._held: dict[tuple[str, int], int] = {}  # (job, attempt) -> process id, 0 if it has none of its own
        self._started: list[Started] = []
        self._unanswered: dict[tuple[str, int], float] = {}  # (job, attempt) -> when we said that it is to stop

    @classmethod
    async def start(cls, name: str, settings: WorkerSettings, lock: int, pulse: int) -> ExecutorProcess:
        """Start an executor. There is no wait after the process has started: until it is registered it is an orphan."""
        ours, its = socket.socketpair()
        with its:
            reader, writer = await asyncio.open_connection(sock=ours)
            start = Start(name=name, parent=os.getpid(), settings=settings, control=its.fileno(), pulse=pulse)
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "holdfast.worker.main", msgspec.json.encode(start)],
                    pass_fds=(its.fileno(), lock, pulse),
                    stdin=subprocess.DEVNULL,
                )
            except BaseException:
                writer.close()
                raise
        return cls(name, process, reader, writer)

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
        """Yield what the executor says, until it is gone."""
        while (message := await wire.read(self._reader)) is not None:
            yield message

    def note(self, word: str, rows: list[Any]) -> None:
        """Keep the books of what the executor holds, as it tells us."""
        if word == "claimed":
            self._held.update(dict.fromkeys(_pairs(rows), 0))
        elif word == "ended":
            for pair in _pairs(rows):
                self._held.pop(pair, None)
        elif word == "heard":
            self._unanswered.pop((rows[0], rows[1]), None)
        elif word == "started":
            id, attempt, pid, delay = rows
            if (id, attempt) in self._held:
                self._held[id, attempt] = pid
                self._started.append(Started(self.name, id, attempt, pid, delay))

    def tell_to_stop(self, seconds: float) -> None:
        self._send("stop", seconds)

    def tell_of(self, word: str, id: str, attempt: int) -> None:
        """Say that a job is cancelled or lost. The executor answers, if user code lets it."""
        self._unanswered.setdefault((id, attempt), time.monotonic())
        self._send(word, id, attempt)

    def is_deaf(self, seconds: float) -> bool:
        """Whether it has not answered for so long: a coroutine holds its event loop."""
        return any(time.monotonic() - since > seconds for since in self._unanswered.values())

    def _send(self, *message: Any) -> None:
        if not self._writer.is_closing():
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
