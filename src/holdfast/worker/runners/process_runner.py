"""Runners that give a job a process apart from the executor's, which the zygote forks.

    fork      a process for each job
    spawn     a process for each job, with an interpreter of its own that imports the app
    process   a process for many jobs, one after the other

A process that is to end gets SIGTERM; a second later it is killed, with its whole group.

Running a job that may have killed its zygote or its executor: under a zygote of its own (see `zygote`).

Whatever it kills this time, only its own attempt crashes: it is charged, and its neighbours do not notice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from holdfast.job.outcome import Outcome, Release
from holdfast.task.call import crash_outcome
from holdfast.task.program import PROGRAM
from holdfast.worker import messages
from holdfast.worker.attempt import SOFT, Attempt
from holdfast.worker.messages import REUSE, ProcessKind
from holdfast.worker.processes import kill_group
from holdfast.worker.runners import programs
from holdfast.worker.runners.child import OVER, UNHEARD
from holdfast.worker.runners.endings import ends_by_itself, forced_outcome
from holdfast.worker.runners.run_limits import LAPSING, may_start
from holdfast.worker.stacks import stack_of
from holdfast.worker.transport import READ_SIZE, Arriving, Decode

NO_PROCESS = Release("no process could be started", 1000)
_WITH_ITS_ZYGOTE = -2  # the status of a process that its zygote did not live to report
_decode_from_job: Decode[messages.FromJob] = messages.decoder(messages.FromJob)
_decode_from_zygote: Decode[messages.FromZygote] = messages.decoder(messages.FromZygote)


class _End(NamedTuple):
    """How a process ended, and how many bytes of memory it had at most."""

    status: int
    memory: int

    def describe(self, attempt: Attempt) -> Outcome:
        if self.status == _WITH_ITS_ZYGOTE:
            words = (
                "the job's process died with the one that had forked it, which the job, or what it started, has killed"
            )
            return crash_outcome(words)
        if self.status == messages.UNKNOWN_STATUS:
            return crash_outcome("the job's process ended without an outcome; its exit code is not known")
        if attempt.job.task == PROGRAM:
            asked = attempt.stop_reason if attempt.stop_reason == SOFT else ""
            return programs.ended(self.status, attempt.log, asked=asked)
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            return crash_outcome("the job's process was killed", signal=number, memory=self.memory)
        code = os.WEXITSTATUS(self.status)
        words = "the job's process ended without an outcome"
        if code == UNHEARD:
            words = "the job closed its connection to the worker, so its outcome is not known"
        return crash_outcome(words, exit_code=code, memory=self.memory)


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


class _Connection:
    """Our end of a connection to a process. `hear` gets each message; at the end None, or why no more is understood."""

    def __init__(self, ours: socket.socket, hear: Callable[[messages.FromJob | Exception | None], None]) -> None:
        ours.setblocking(False)
        self._socket = ours
        self._number = ours.fileno()  # the loop would describe a socket that it does not know, by four system calls
        self._hear = hear
        self._arriving = Arriving(_decode_from_job)
        self._unsent = bytearray()
        self._is_held_up = False  # the other end does not read
        self._is_over = False  # our part of it, once all is sent
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._number, self._read)

    def send(self, message: bytes) -> None:
        self._unsent += message
        if not self._is_held_up:
            self._write()

    def end(self) -> None:
        """There is no more to say."""
        self._is_over = True
        if not self._is_held_up:
            self._write()

    def close(self) -> None:
        self._loop.remove_reader(self._number)
        self._hold_up(False)
        self._socket.close()

    def _hold_up(self, is_held_up: bool) -> None:
        if is_held_up and not self._is_held_up:
            self._loop.add_writer(self._number, self._write)
        elif self._is_held_up and not is_held_up:
            self._loop.remove_writer(self._number)
        self._is_held_up = is_held_up

    def _write(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # nobody will read it any more
            self._unsent.clear()
        self._hold_up(bool(self._unsent))
        if self._is_over and not self._unsent:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        end = None
        try:
            part = self._received()
            for message in self._arriving.add(part):
                self._hear(message)
            if part:
                return
        except BlockingIOError:
            return
        except Exception as error:  # what arrives is no message: nor is anything after it
            end = error
        self._loop.remove_reader(self._number)
        self._hear(end)

    def _received(self) -> bytes:
        try:
            return self._socket.recv(READ_SIZE)
        except ConnectionError:
            return b""


class JobProcess:
    """A process that runs jobs, and the connection to it. It may not have been forked yet, and perhaps cannot be."""

    def __init__(self, forked: asyncio.Future[_Process | None], ours: socket.socket) -> None:
        self.has_begun = False  # with the job that it was given last
        self._forked = forked
        self._connection = _Connection(ours, self._hear)
        self._attempt: Attempt | None = None  # of which it has not said how it ended
        self._said: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._turn = 0  # the number of the job, among those that it was given
        self._is_silent = False  # it will say no more
        self._is_told_to_end = False  # and hears no more
        self._replying: set[asyncio.Task[None]] = set()

    @property
    def is_dead(self) -> bool:
        if not self._forked.done():
            return False
        process = self._forked.result()
        return process is None or process.ended.done()

    async def run(self, attempt: Attempt, *, stays: bool) -> Outcome:
        """Have it run a job, hear what it says, and see to it that it ends; or, if it `stays`, that the job does."""
        self.has_begun = False
        process = await self._forked
        if process is None:
            return NO_PROCESS
        if attempt.why or attempt.stop_reason:  # since it was asked for
            return Release(attempt.why or "stopping")
        if not may_start(attempt):
            return LAPSING
        attempt.started(process.pid)
        attempt.on_stop = partial(self._pass_on_stop, attempt, process)
        self._give(attempt)
        try:
            stack = partial(stack_of, process.pid)
            ends = await ends_by_itself(attempt, self._said if stays else process.ended, stack)
            if not ends:
                self._is_told_to_end = True
                self._connection.end()  # so that the process knows who sends the signal
                await process.kill(attempt.grace)
            heard = await self._said
        except Exception:  # of ours, or it said what makes no sense: nobody else ends it
            await process.kill(0)
            raise
        finally:
            self._attempt = attempt.on_stop = None
        if not ends:
            return forced_outcome(attempt, heard)
        return heard or attempt.verdict or (await process.ended).describe(attempt)

    def close(self) -> None:
        """Let it go: one that waits for a job ends."""
        self._connection.close()

    def _give(self, attempt: Attempt) -> None:
        self._turn += 1
        self._attempt = attempt
        self._said = asyncio.get_running_loop().create_future()
        if self._is_silent:
            self._said.set_result(None)
        self._connection.send(messages.pack(messages.RunCall(self._turn, [*attempt.call])))

    def _hear(self, message: messages.FromJob | Exception | None) -> None:
        try:
            if message is None:
                self._is_silent = True
                self._end(None)
            elif isinstance(message, Exception):
                self._hear_no_more(message)
            else:
                self._handle(message)
        except Exception as error:  # it makes no sense
            self._fail(error)

    def _hear_no_more(self, error: Exception) -> None:
        """Kill it: it may wait for ever to be heard, and so would its job, or the next one."""
        self._is_silent = True
        if self._attempt:
            self._fail(error)
        if self._forked.done() and (process := self._forked.result()) and not process.ended.done():
            kill_group(process.pid)

    def _fail(self, error: Exception) -> None:
        if not self._said.done():
            self._said.set_exception(error)

    def _handle(self, message: messages.FromJob) -> None:
        """Handle a message of a job, until it has ended, or its process is dead."""
        match message:
            case messages.JobEnded():
                self._end(message.outcome)
            case messages.JobReceived():
                self.has_begun = True
            case messages.Request():
                self._start_replying(message)
            case messages.Save(turn, checkpoint, progress, note):
                if self._attempt and turn == self._turn:  # not of a copy that an earlier job has left
                    self._attempt.save(checkpoint, progress, note)

    def _end(self, outcome: Outcome | None) -> None:
        self._attempt = None
        if not self._said.done():
            self._said.set_result(outcome)

    def _start_replying(self, request: messages.Request) -> None:
        if not self._attempt or request.turn != self._turn:
            self._send(messages.Reply(request.number, *OVER))
            return
        replying = asyncio.create_task(self._reply(self._attempt, request))
        self._replying.add(replying)
        replying.add_done_callback(self._replying.discard)

    async def _reply(self, attempt: Attempt, request: messages.Request) -> None:
        self._send(messages.Reply(request.number, *await attempt.request(request.name, *request.arguments)))

    def _send(self, message: messages.ToJob) -> None:
        if not self._is_told_to_end:
            self._connection.send(messages.pack(message))

    def _pass_on_stop(self, attempt: Attempt, process: _Process) -> None:
        if attempt.why:  # it is to end at once
            return
        if attempt.job.task != PROGRAM:
            self._send(messages.StopJob(attempt.stop_reason))
        elif attempt.stop_reason == SOFT:  # it reads no words of ours
            process.ask_to_end()


class Processes:
    """What a zygote does for an executor: it starts processes, and says how they ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._control.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(control, self._hear)
        self._asked: deque[asyncio.Future[_Process | None]] = deque()  # the zygote answers in order
        self._processes: dict[int, _Process] = {}
        self.gone = asyncio.Event()

    def _hear(self) -> bool:
        """Take one message. Returns whether there was one."""
        try:
            packet = self._control.recv(messages.MAX_PACKET)
        except BlockingIOError:
            return False
        except ConnectionError:
            packet = b""
        if not packet:
            self._loop.remove_reader(self._control)
            self.gone.set()
            return False
        match _decode_from_zygote(packet):
            case messages.ProcessStarted(pid):
                process = self._processes[pid] = _Process(pid, self._loop.create_future())
                self._asked.popleft().set_result(process)
            case messages.ProcessRefused():
                self._asked.popleft().set_result(None)
            case messages.ProcessEnded(pid, status, memory):
                self._processes.pop(pid).ended.set_result(_End(status, memory))
        return True

    def start(self, kind: ProcessKind) -> JobProcess:
        """Have a process started."""
        ours, its = socket.socketpair()
        asked: asyncio.Future[_Process | None] = self._loop.create_future()
        self._ask(kind, its, asked)
        return JobProcess(asked, ours)

    async def start_zygote(self) -> Processes | None:
        """Have a zygote started for one job. None, if this machine has nothing left."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked: asyncio.Future[_Process | None] = self._loop.create_future()
        self._ask(messages.ALONE, its, asked)
        guard = await asked
        if guard is None:
            ours.close()
            return None
        own = Processes(ours)
        guard.ended.add_done_callback(lambda _: own.settle())
        return own

    def settle(self) -> None:
        """The zygote is dead, and whatever it forked: what it has not reported ended with it."""
        if self._control.fileno() == -1:  # closed: nobody waits for it
            return
        while self._hear():
            pass
        for asked in self._asked:
            asked.set_result(None)
        for process in self._processes.values():
            process.ended.set_result(_End(_WITH_ITS_ZYGOTE, 0))

    def close(self) -> None:
        """Let the zygote end, with all that it forked."""
        self._loop.remove_reader(self._control)
        self._control.close()

    def _ask(self, kind: ProcessKind, its: socket.socket, asked: asyncio.Future[_Process | None]) -> None:
        try:
            socket.send_fds(self._control, [messages.encode(messages.StartProcess(kind))], [its.fileno()])
        except BlockingIOError:
            self._loop.call_later(0.005, self._ask, kind, its, asked)
            return
        except ConnectionError:  # the zygote is dead, and this executor soon; or it is one job's, and will be settled
            self._asked.append(asked)
        except OSError:  # this machine has nothing left
            asked.set_result(None)
        else:
            self._asked.append(asked)
        its.close()


class ProcessRunner:
    """Runs jobs in processes that are forked, spawned, or kept, for the next ones.

    Of those that are kept there are as many as ran jobs at once. A process that is forked for one job is forked ahead:
    when a job has ended, for the next one, while the store is still asked for it.
    """

    def __init__(self, processes: Processes, kind: ProcessKind) -> None:
        self._processes = processes
        self._kind = kind
        self._waiting: list[JobProcess] = []
        self._forks_ahead = kind == messages.FORK

    async def run(self, attempt: Attempt) -> Outcome:
        while self._waiting:
            process = self._waiting.pop()
            outcome = await self._run_in(process, attempt)
            if process.has_begun or not process.is_dead or attempt.why:
                return outcome
            # It died of something else, before it heard of this job, which so has not started.
            attempt.pid = attempt.start_delay = None
        return await self._run_in(self._processes.start(self._kind), attempt)

    async def _run_in(self, process: JobProcess, attempt: Attempt) -> Outcome:
        stays = False
        try:
            outcome = await process.run(attempt, stays=self._kind == REUSE)
            stays = self._kind == REUSE and not (process.is_dead or attempt.why)
            return outcome
        finally:
            if stays:
                self._waiting.append(process)
            else:
                process.close()
            if self._forks_ahead and process.has_begun:
                self._fork_ahead()

    def _fork_ahead(self) -> None:
        with suppress(OSError):  # out of descriptors, for a while
            self._waiting.append(self._processes.start(self._kind))

    def fork_no_more(self) -> None:
        """Fork none ahead, as no more jobs will come. What waits ends; a job that is here already gets a new one."""
        self._forks_ahead = False
        while self._waiting:
            self._waiting.pop().close()


class AloneRunner:
    """Runs each job in a process that is forked or spawned by a zygote for this job."""

    def __init__(self, processes: Processes, kind: ProcessKind) -> None:
        self._processes = processes
        self._kind = kind

    async def run(self, attempt: Attempt) -> Outcome:
        own = await self._processes.start_zygote()
        if own is None:
            return NO_PROCESS
        try:
            process = own.start(self._kind)
            try:
                return await process.run(attempt, stays=False)
            finally:
                process.close()
        finally:
            own.close()

    def fork_no_more(self) -> None:
        """Nothing is forked ahead."""
