"""Runners that give a job a process apart from the executor's, which the zygote forks.

    fork      a process for each job
    spawn     a process for each job, with an interpreter of its own that imports the app
    process   a process for many jobs, one after the other

A process that is to end gets SIGTERM; a second later it is killed, with its whole group.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from holdfast.calling import crashed
from holdfast.outcome import Outcome, Release
from holdfast.program import PROGRAM
from holdfast.worker import programs, wire, zygote
from holdfast.worker.attempt import SOFT, Attempt
from holdfast.worker.child import OVER, UNHEARD
from holdfast.worker.ending import ends_by_itself, forced_outcome
from holdfast.worker.stacks import stack_of
from holdfast.worker.system import kill_group
from holdfast.worker.watch import LAPSING, may_start

NO_PROCESS = Release("no process could be started", 1000)


class _End(NamedTuple):
    """How a process ended, and how many bytes of memory it had at most."""

    status: int
    memory: int

    def describe(self, attempt: Attempt) -> Outcome:
        if attempt.job.task == PROGRAM:
            asked = attempt.stop_reason if attempt.stop_reason == SOFT else ""
            return programs.ended(self.status, attempt.log, asked=asked)
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            return crashed("the job's process was killed", signal=number, memory=self.memory)
        code = os.WEXITSTATUS(self.status)
        words = "the job's process ended without an outcome"
        if code == UNHEARD:
            words = "the job closed its connection to the worker, so its outcome is not known"
        return crashed(words, exit_code=code, memory=self.memory)


class _Process(NamedTuple):
    """A process that the zygote has forked."""

    pid: int
    ended: asyncio.Future[_End]

    def ask_to_end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)

    async def kill(self, after: float) -> None:
        """Ask it to end, and so many seconds later kill it."""
        if after:
            self.ask_to_end()
            await asyncio.wait({self.ended}, timeout=after)
        if not self.ended.done():
            kill_group(self.pid)
            await self.ended


@dataclass(eq=False)
class JobProcess:
    """A process that runs jobs, and the connection to it."""

    process: _Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    has_begun: bool = False  # with the job that it was given last
    _turn: int = 0  # the number of that job, among those that it was given
    _is_told_to_end: bool = False  # and hears no more
    _answering: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def is_dead(self) -> bool:
        return self.process.ended.done()

    async def run(self, attempt: Attempt, *, stays: bool) -> Outcome:
        """Have it run a job, hear what it says, and see to it that it ends; or, if it `stays`, that the job does."""
        self.has_begun = False
        if not may_start(attempt):
            return LAPSING
        attempt.started(self.process.pid)
        self._turn += 1
        self.writer.write(wire.pack("call", self._turn, *attempt.call))
        said = asyncio.create_task(self._listen(attempt))
        ask = asyncio.create_task(self._pass_on_stop(attempt))
        try:
            stack = partial(stack_of, self.process.pid)
            ends = await ends_by_itself(attempt, said if stays else self.process.ended, stack)
            if not ends:
                self._is_told_to_end = True
                self.writer.write_eof()  # so that the process knows who sends the signal
                await self.process.kill(attempt.grace)
            heard = await said
        except Exception:  # of ours, or it said what makes no sense: nobody else ends it
            await self.process.kill(0)
            raise
        finally:
            said.cancel()
            ask.cancel()
        if not ends:
            return forced_outcome(attempt, heard)
        return heard or attempt.verdict or (await self.process.ended).describe(attempt)

    async def _listen(self, attempt: Attempt) -> Outcome | None:
        """Hear what a job says, until it has said how it ended, or its process is dead."""
        while (message := await wire.read(self.reader)) is not None:
            word, *rest = message
            if word == "outcome":
                return wire.unpack_outcome(rest)
            if word == "begins":
                self.has_begun = True
            elif word == "ask":
                self._start_answering(attempt, *rest)
            elif rest[0] == self._turn:  # not of a copy that an earlier job has left
                attempt.save(*rest[1:])
        return None

    def _start_answering(self, attempt: Attempt, turn: int, number: int, *question: Any) -> None:
        if turn != self._turn:
            self._tell("answer", number, *OVER)
            return
        answering = asyncio.create_task(self._answer(attempt, number, *question))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    async def _answer(self, attempt: Attempt, number: int, word: str, *parts: Any) -> None:
        self._tell("answer", number, *await attempt.request(word, *parts))

    def _tell(self, *message: Any) -> None:
        if not self._is_told_to_end:
            self.writer.write(wire.pack(*message))

    async def _pass_on_stop(self, attempt: Attempt) -> None:
        await attempt.stopping.wait()
        if attempt.interrupted.is_set():
            return
        if attempt.job.task != PROGRAM:
            self._tell("stop", attempt.stop_reason)
        elif attempt.stop_reason == SOFT:  # it reads no words of ours
            self.process.ask_to_end()


class Processes:
    """What the zygote does for an executor: it starts processes, and says how they ended."""

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

    async def start(self, how: bytes) -> JobProcess | None:
        """Have a process started: fork, spawn or keep, as the zygote calls it. None if there can be none."""
        ours, its = socket.socketpair()
        with its:
            process = await self._ask(how, its)
        if process is None:
            ours.close()
            return None
        return JobProcess(process, *await asyncio.open_connection(sock=ours))

    async def _ask(self, how: bytes, its: socket.socket) -> _Process | None:
        while True:
            try:
                socket.send_fds(self._control, [how], [its.fileno()])
                break
            except BlockingIOError:
                await asyncio.sleep(0.005)
            except ConnectionError:  # the zygote is dead, and this executor soon
                await asyncio.Event().wait()
        asked: asyncio.Future[_Process | None] = self._loop.create_future()
        self._asked.append(asked)
        return await asked


class FreshRunner:
    """Runs each job in a process of its own, that is forked or spawned for it."""

    def __init__(self, processes: Processes, how: bytes) -> None:
        self._processes = processes
        self._how = how

    async def run(self, attempt: Attempt) -> Outcome:
        process = await self._processes.start(self._how)
        if process is None:
            return NO_PROCESS
        try:
            return await process.run(attempt, stays=False)
        finally:
            process.writer.close()


class PoolRunner:
    """Runs jobs in processes that stay for the next ones. There are as many as ran jobs at once."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._idle: list[JobProcess] = []

    async def run(self, attempt: Attempt) -> Outcome:
        while self._idle:
            process = self._idle.pop()
            outcome = await self._run_in(process, attempt)
            if process.has_begun or not process.is_dead or attempt.interrupted.is_set():
                return outcome
            # It died of something else, before it heard of this job.
        started = await self._processes.start(zygote.KEEP)
        return NO_PROCESS if started is None else await self._run_in(started, attempt)

    async def _run_in(self, process: JobProcess, attempt: Attempt) -> Outcome:
        stays = False
        try:
            outcome = await process.run(attempt, stays=True)
            stays = not (process.is_dead or attempt.interrupted.is_set())
            return outcome
        finally:
            if stays:
                self._idle.append(process)
            else:
                process.writer.close()
