"""A job's process as its executor sees it: the connection to it, what the job sends, and how the process ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from holdfast.job.outcome import Outcome, Release
from holdfast.task.call import crash_outcome
from holdfast.task.program import PROGRAM
from holdfast.worker import messages
from holdfast.worker.attempt import SOFT, Attempt
from holdfast.worker.processes import kill_group
from holdfast.worker.runners import programs
from holdfast.worker.runners.child import JOB_ENDED, NO_CONNECTION
from holdfast.worker.runners.endings import forced_outcome, wait_for_end
from holdfast.worker.runners.run_limits import LAPSING, may_start
from holdfast.worker.stacks import stack_of
from holdfast.worker.transport import READ_SIZE, Decode, MessageBuffer

NO_PROCESS = Release("no process could be started", 1000)
DIED_WITH_ZYGOTE = -2  # the status of a process whose zygote died before it could report it

_decode: Decode[messages.FromJob] = messages.decoder(messages.FromJob)


class ProcessEnd(NamedTuple):
    """How a process ended, and how many bytes of memory it used at most."""

    status: int
    memory: int

    def outcome(self, attempt: Attempt) -> Outcome:
        """Return the outcome of an attempt that has reported none."""
        if self.status == DIED_WITH_ZYGOTE:
            return crash_outcome(
                "the job's process died with its parent, the zygote, which the job or a process of it has killed"
            )
        if self.status == messages.UNKNOWN_STATUS:
            return crash_outcome("the job's process ended without an outcome; its exit code is not known")
        if attempt.job.task == PROGRAM:
            asked = attempt.stop_reason if attempt.stop_reason == SOFT else ""
            name = programs.program_name(attempt.job.payload)
            return programs.program_outcome(self.status, attempt.log, program=name, asked=asked)
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            return crash_outcome("the job's process was killed", signal=number, memory=self.memory)
        code = os.WEXITSTATUS(self.status)
        words = "the job's process ended without an outcome"
        if code == NO_CONNECTION:
            words = "the job closed its connection to the worker, so its outcome is not known"
        return crash_outcome(words, exit_code=code, memory=self.memory)


class ForkedProcess(NamedTuple):
    """A process that the zygote has forked."""

    pid: int
    ended: asyncio.Future[ProcessEnd]

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)

    async def kill(self, after: float) -> None:
        """Terminate the process, and kill it if it has not ended after some seconds."""
        if after:
            self.terminate()
            await asyncio.wait({self.ended}, timeout=after)
        if not self.ended.done():
            kill_group(self.pid)
            await self.ended


class _Connection:
    """The connection to a process.

    `on_message` gets each message; at the end None, or the error after which no message can be read.
    """

    def __init__(self, ours: socket.socket, on_message: Callable[[messages.FromJob | Exception | None], None]) -> None:
        ours.setblocking(False)
        self._socket = ours
        self._number = ours.fileno()  # for a socket object, the loop would make four system calls more
        self._on_message = on_message
        self._buffer = MessageBuffer(_decode)
        self._unsent = bytearray()
        self._is_blocked = False  # the other end does not read
        self._is_ending = False  # once everything is sent
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._number, self._read)

    def send(self, message: messages.ToJob) -> None:
        self._unsent += messages.pack(message)
        if not self._is_blocked:
            self._write()

    def end(self) -> None:
        """Close our direction, once everything is sent."""
        self._is_ending = True
        if not self._is_blocked:
            self._write()

    def close(self) -> None:
        self._loop.remove_reader(self._number)
        self._set_blocked(False)
        self._socket.close()

    def _set_blocked(self, is_blocked: bool) -> None:
        if is_blocked and not self._is_blocked:
            self._loop.add_writer(self._number, self._write)
        elif self._is_blocked and not is_blocked:
            self._loop.remove_writer(self._number)
        self._is_blocked = is_blocked

    def _write(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the other end is closed
            self._unsent.clear()
        self._set_blocked(bool(self._unsent))
        if self._is_ending and not self._unsent:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        end = None
        try:
            part = self._received()
            for message in self._buffer.add(part):
                self._on_message(message)
            if part:
                return
        except BlockingIOError:
            return
        except Exception as error:  # not a message; nothing after it can be read either
            end = error
        self._loop.remove_reader(self._number)
        self._on_message(end)

    def _received(self) -> bytes:
        try:
            return self._socket.recv(READ_SIZE)
        except ConnectionError:
            return b""


class JobProcess:
    """A process that runs jobs; its fork may be pending, or may have failed."""

    def __init__(self, forked: asyncio.Future[ForkedProcess | None], ours: socket.socket) -> None:
        self.has_job = False  # the process has received the last job
        self._forked = forked
        self._connection = _Connection(ours, self._receive)
        self._attempt: Attempt | None = None  # whose outcome is not known yet
        self._reported: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._turn = 0  # the number of the job among those of this process
        self._is_silent = False  # no more messages come from it
        self._is_ending = False  # no more messages are sent to it
        self._replying: set[asyncio.Task[None]] = set()

    @property
    def is_dead(self) -> bool:
        if not self._forked.done():
            return False
        process = self._forked.result()
        return process is None or process.ended.done()

    async def run(self, attempt: Attempt, *, stays: bool) -> Outcome:
        """Run a job until its process has ended; or, if the process `stays`, until the job has."""
        self.has_job = False
        process = await self._forked
        if process is None:
            return NO_PROCESS
        if attempt.interrupt_reason or attempt.stop_reason:  # while the process was forked
            return Release(attempt.interrupt_reason or "stopping")
        if not may_start(attempt):
            return LAPSING
        attempt.started(process.pid)
        attempt.on_stop = partial(self._pass_on_stop, attempt, process)
        self._send_call(attempt)
        try:
            read_stack = partial(stack_of, process.pid)
            ends = await wait_for_end(attempt, self._reported if stays else process.ended, read_stack)
            if not ends:
                self._is_ending = True
                self._connection.end()  # so the process knows that SIGTERM comes from us
                await process.kill(attempt.grace)
            reported = await self._reported
        except Exception:  # an error of ours, or a message that makes no sense: nobody else ends the process
            await process.kill(0)
            raise
        finally:
            self._attempt = attempt.on_stop = None
        if not ends:
            return forced_outcome(attempt, reported)
        return reported or attempt.interrupt_outcome or (await process.ended).outcome(attempt)

    def close(self) -> None:
        """Close the connection: a process that waits for a job ends."""
        self._connection.close()

    def _send_call(self, attempt: Attempt) -> None:
        self._turn += 1
        self._attempt = attempt
        self._reported = asyncio.get_running_loop().create_future()
        if self._is_silent:
            self._reported.set_result(None)
        self._connection.send(messages.RunCall(self._turn, [*attempt.call]))

    def _receive(self, message: messages.FromJob | Exception | None) -> None:
        try:
            if message is None:
                self._is_silent = True
                self._end(None)
            elif isinstance(message, Exception):
                self._kill_unreadable(message)
            else:
                self._handle(message)
        except Exception as error:  # the message makes no sense
            self._fail(error)

    def _kill_unreadable(self, error: Exception) -> None:
        """Kill a process that sends invalid messages: it, and its jobs, might wait forever for a reply."""
        self._is_silent = True
        if self._attempt:
            self._fail(error)
        if self._forked.done() and (process := self._forked.result()) and not process.ended.done():
            kill_group(process.pid)

    def _fail(self, error: Exception) -> None:
        if not self._reported.done():
            self._reported.set_exception(error)

    def _handle(self, message: messages.FromJob) -> None:
        match message:
            case messages.JobEnded():
                self._end(message.outcome)
            case messages.JobReceived():
                self.has_job = True
            case messages.Request():
                self._start_replying(message)
            case messages.Save(turn, checkpoint, progress, note):
                if self._attempt and turn == self._turn:  # not of a copy that an earlier job left behind
                    self._attempt.save(checkpoint, progress, note)

    def _end(self, outcome: Outcome | None) -> None:
        self._attempt = None
        if not self._reported.done():
            self._reported.set_result(outcome)

    def _start_replying(self, request: messages.Request) -> None:
        if not self._attempt or request.turn != self._turn:
            self._send(messages.Reply(request.number, *JOB_ENDED))
            return
        replying = asyncio.create_task(self._reply(self._attempt, request))
        self._replying.add(replying)
        replying.add_done_callback(self._replying.discard)

    async def _reply(self, attempt: Attempt, request: messages.Request) -> None:
        self._send(messages.Reply(request.number, *await attempt.request(request.name, *request.arguments)))

    def _send(self, message: messages.ToJob) -> None:
        if not self._is_ending:
            self._connection.send(message)

    def _pass_on_stop(self, attempt: Attempt, process: ForkedProcess) -> None:
        if attempt.interrupt_reason:  # the process is being killed
            return
        if attempt.job.task != PROGRAM:
            self._send(messages.StopJob(attempt.stop_reason))
        elif attempt.stop_reason == SOFT:  # a program reads no messages
            process.terminate()
