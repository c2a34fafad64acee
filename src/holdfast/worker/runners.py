"""Runners: each runs an attempt and returns how it ended.

    fork    a process of its own for each job, forked from the zygote
    async   a task of the executor's event loop

An attempt that is interrupted is first asked, then forced: a process by TERM and KILL to its whole group, a coroutine
by cancellation. Of what it says afterwards only a success is heard: it may have been faster.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from holdfast.outcome import Cancelled, Outcome, Release, Succeed
from holdfast.task import Task
from holdfast.worker import wire, zygote
from holdfast.worker.attempt import Attempt
from holdfast.worker.call import crashed, failed, raised, returned
from holdfast.worker.child import UNHEARD
from holdfast.worker.system import kill_group

TERM_TO_KILL = 1.0  # seconds


class Runner(Protocol):
    async def run(self, attempt: Attempt) -> Outcome: ...


def _forced_outcome(attempt: Attempt, heard: Outcome | None) -> Outcome:
    """What the end of an attempt means that did not end by itself; of a lost one nobody will hear."""
    if isinstance(heard, Succeed):
        return heard
    if not attempt.interrupted.is_set():
        words = f"the job ran for longer than its timeout of {attempt.job.timeout / 1000:g} s and was stopped"
        return failed("Timeout", words, group="timeout")
    return Cancelled() if attempt.why == "cancelled" else Release(attempt.why)


async def _ends_by_itself(attempt: Attempt, end: asyncio.Future[Any]) -> bool:
    """Wait for an attempt to end, to be interrupted, or to reach its time limit. Returns whether it ended."""
    stop = asyncio.create_task(attempt.interrupted.wait())
    either: list[asyncio.Future[Any]] = [end, stop]
    try:
        await asyncio.wait(either, timeout=attempt.job.timeout / 1000 or None, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    return end.done()


class AsyncRunner:
    """Runs coroutine functions in this event loop.

    One that does not end when it is cancelled is abandoned: nothing can stop it but the end of this process.
    `on_change` is called when one is abandoned, or ends after all.
    """

    def __init__(self, tasks: Mapping[str, Task[..., Any]], on_change: Callable[[], None]) -> None:
        self._tasks = tasks
        self._on_change = on_change
        self.abandoned: set[asyncio.Task[Outcome]] = set()

    async def run(self, attempt: Attempt) -> Outcome:
        attempt.started(os.getpid())
        work = asyncio.create_task(self._call(attempt))
        if await _ends_by_itself(attempt, work):
            return work.result()
        work.cancel()
        await asyncio.wait({work}, timeout=TERM_TO_KILL)
        if not work.done():
            self._abandon(work)
        return _forced_outcome(attempt, work.result() if work.done() else None)

    def _abandon(self, work: asyncio.Task[Outcome]) -> None:
        self.abandoned.add(work)
        work.add_done_callback(self._take_back)
        self._on_change()

    def _take_back(self, work: asyncio.Task[Outcome]) -> None:
        self.abandoned.discard(work)
        self._on_change()

    async def _call(self, attempt: Attempt) -> Outcome:
        task = self._tasks[attempt.job.task]
        attempt.call.introduce(_InProcess(attempt))
        try:
            args, kwargs = task.signature.decode(attempt.job.payload)
            return returned(task, await task.function(*args, **kwargs))
        except BaseException as error:
            # A cancellation of ours too: this task ends here anyway, and what it returns is not heard.
            return raised(error)


class _InProcess:
    """The link of a job that runs in its executor."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def save(self, checkpoint: bytes | None, progress: str | None) -> None:
        self._attempt.save(checkpoint, progress)

    @property
    def stopping(self) -> bool:
        return self._attempt.stopping.is_set()


class _End(NamedTuple):
    """How a process ended, and how many bytes of memory it had at most."""

    status: int
    memory: int

    def describe(self) -> Outcome:
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            hint = "; out of memory?" if number == signal.SIGKILL else ""
            return crashed(f"the job's process was killed{hint}", signal=number, memory=self.memory)
        code = os.WEXITSTATUS(self.status)
        words = "the job's process ended without an outcome"
        if code == UNHEARD:
            words = "the job closed its connection to the worker, so its outcome is not known"
        return crashed(words, exit_code=code, memory=self.memory)


class _Process(NamedTuple):
    """A job's process."""

    pid: int
    ended: asyncio.Future[_End]

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        await asyncio.wait({self.ended}, timeout=TERM_TO_KILL)
        if not self.ended.done():
            kill_group(self.pid)
            await self.ended


class ForkRunner:
    """Runs each job in a process that the zygote forks."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._control.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(control, self._hear)
        self._asked: deque[asyncio.Future[_Process | None]] = deque()  # the zygote answers in order
        self._processes: dict[int, _Process] = {}
        self.gone = asyncio.Event()

    def _hear(self) -> None:
        try:
            message = self._control.recv(64)
        except BlockingIOError:
            return
        except ConnectionError:
            message = b""
        if not message:
            self._loop.remove_reader(self._control)
            self.gone.set()
            return
        word, pid, *rest = message.split()
        if word == b"ended":
            self._processes.pop(int(pid)).ended.set_result(_End(*map(int, rest)))
        elif word == b"refused":
            self._asked.popleft().set_result(None)
        else:
            process = self._processes[int(pid)] = _Process(int(pid), self._loop.create_future())
            self._asked.popleft().set_result(process)

    async def run(self, attempt: Attempt) -> Outcome:
        ours, its = socket.socketpair()
        with its:
            process = await self._fork(its)
        if process is None:
            ours.close()
            return Release("no process could be started", 1000)
        attempt.started(process.pid)
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            writer.write(wire.pack(*attempt.call))
            return await self._follow(attempt, process, reader, writer)
        finally:
            writer.close()

    async def _fork(self, its: socket.socket) -> _Process | None:
        """Ask the zygote for a process with this end of a connection; None if there can be none."""
        while True:
            try:
                socket.send_fds(self._control, [zygote.FORK], [its.fileno()])
                break
            except BlockingIOError:
                await asyncio.sleep(0.005)
            except ConnectionError:  # the zygote is dead, and this executor soon
                await asyncio.Event().wait()
        asked: asyncio.Future[_Process | None] = self._loop.create_future()
        self._asked.append(asked)
        return await asked

    async def _follow(
        self, attempt: Attempt, process: _Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Outcome:
        """Hear what the process says, and see to it that it ends."""
        said = asyncio.create_task(self._listen(attempt, reader))
        ask = asyncio.create_task(self._pass_on_stop(attempt, writer))
        try:
            ends = await _ends_by_itself(attempt, process.ended)
            if not ends:
                writer.write_eof()  # so that the process knows who sends the signal
                await process.kill()
            heard = await said
        finally:
            said.cancel()
            ask.cancel()
        if not ends:
            return _forced_outcome(attempt, heard)
        return heard or process.ended.result().describe()

    async def _listen(self, attempt: Attempt, reader: asyncio.StreamReader) -> Outcome | None:
        """Hear what a job's process says, until it has said how it ended, or is dead."""
        while (message := await wire.read(reader)) is not None:
            if message[0] == "outcome":
                return wire.unpack_outcome(message[1:])
            attempt.save(*message[1:])
        return None

    async def _pass_on_stop(self, attempt: Attempt, writer: asyncio.StreamWriter) -> None:
        await attempt.stopping.wait()
        if not attempt.interrupted.is_set():
            writer.write(wire.pack("stop"))
