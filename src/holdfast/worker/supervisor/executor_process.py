"""An executor's process as the supervisor sees it: start it, exchange messages, kill it, and track its leases.

An executor is unresponsive while a coroutine blocks its event loop. Then no job in it can be stopped: cancellations and
timeouts are handled by that loop. So the supervisor pings it, and kills an unresponsive executor that has to stop a
job. Its jobs run again, each in its own process, where a timeout hits only the job that it is meant for.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Literal, NamedTuple, Protocol

import msgspec

from holdfast.store.commands import Lease, Started
from holdfast.worker import messages
from holdfast.worker.linux import boot_time
from holdfast.worker.processes import ProcessStat, Usage, kill_group, process_stat, start_time
from holdfast.worker.settings import ExecutorStart, Pool, WorkerSettings
from holdfast.worker.transport import READ_SIZE, Decode, MessageBuffer, ignoring_unknown, open_reader_and_writer

UNRESPONSIVE_TIMEOUT = 10.0  # seconds
READ_INTERVAL = 0.02  # seconds


class Responsiveness:
    """How long an executor has not answered a ping."""

    def __init__(self) -> None:
        self.silent = 0.0  # seconds, without those in which the supervisor itself did not run
        self.has_interrupts = False  # it was sent an Interrupt since its last answer
        self.is_logged = False
        self._checked_at: float | None = None  # None if every ping was answered

    @property
    def is_unresponsive(self) -> bool:
        return self.silent > UNRESPONSIVE_TIMEOUT

    def check(self, interval: float) -> bool:
        """Add the time since the last check, up to the interval of checks. Return whether to send a ping."""
        now = time.monotonic()
        before, self._checked_at = self._checked_at, now
        if before is not None:
            self.silent += min(now - before, interval)
        return before is None

    def answered(self) -> None:
        self.silent, self._checked_at = 0.0, None
        self.has_interrupts = self.is_logged = False


_decode: Decode[messages.FromExecutor | None] = ignoring_unknown(messages.decoder(messages.FromExecutor), "executor")


class _HeldJob(NamedTuple):
    """A job that the executor holds."""

    lease: int  # milliseconds
    max_silence: int = 0  # milliseconds that the executor may be unresponsive; 0: no limit
    task: str = ""
    pid: int = 0  # 0 if it shares the executor's process
    created: int = 0  # when the job was created; only known if it has its own process
    since: float = 0.0  # when that process started to run it
    stat: ProcessStat = ProcessStat()  # when it started: the pid alone may be another process by now

    def kill(self) -> None:
        """Kill the job's own process and its group, if it still exists."""
        if self.pid and start_time(self.pid) == self.stat.started:
            kill_group(self.pid)


class JobProcessInfo(NamedTuple):
    """A job's own process, as the sampler needs it."""

    id: str
    created: int
    attempt: int
    pid: int
    since: float  # when it started to run the job
    used: float  # seconds of CPU before that


class PopenLike(Protocol):
    """The part of `subprocess.Popen` that is used."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...


class ExecutorProcess:
    """One executor. Its name is never used again."""

    def __init__(
        self,
        name: str,
        process: PopenLike,
        control: socket.socket,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.name = name
        self.born = boot_time()
        self.ready = asyncio.Event()  # it has imported the app
        self.is_due = asyncio.Event()  # for replacement
        self.deadline: float | None = None  # seconds for its jobs when it is replaced; None: no deadline
        self.is_idle = False  # in burst mode: its queues are empty, and no job runs
        self.is_retiring = False  # it stops claiming
        self.is_leaving = False  # because there is no work
        self.waits_for_change = False  # it could not import the app, and the worker watches the app's files
        self.usage = Usage()
        self.responsiveness = Responsiveness()
        self._process = process
        self._control = control
        self._writer = writer
        self._held: dict[tuple[str, int], _HeldJob] = {}  # by (job, attempt)
        self._started: list[Started] = []
        self._all_received = False  # it has closed the connection after its last message

    @classmethod
    async def start(
        cls, name: str, settings: WorkerSettings, pool: Pool, *, lock: int, lease_clock: int
    ) -> ExecutorProcess:
        """Start an executor. Nothing is awaited once the process runs: until it is registered it is an orphan."""
        ours, theirs = socket.socketpair()
        with theirs:
            control, writer = await open_reader_and_writer(ours)
            start = ExecutorStart(
                name=name,
                parent=os.getpid(),
                settings=settings,
                pool=pool,
                control=theirs.fileno(),
                lease_clock=lease_clock,
            )
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "holdfast.entrypoints.executor", msgspec.json.encode(start)],
                    pass_fds=(theirs.fileno(), lock, lease_clock),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # a job in it that kills its process group does not kill the supervisor
                    env=_environment(settings),
                )
            except BaseException:
                control.close()
                writer.close()
                raise
        return cls(name, process, control, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    def pid_of(self, id: str, attempt: int) -> int:
        """Return the pid of a job; 0 if it shares the executor's process, or is not held."""
        return self._held.get((id, attempt), _HeldJob(0)).pid

    @property
    def processes(self) -> list[JobProcessInfo]:
        """The jobs that have their own process."""
        return [
            JobProcessInfo(id, job.created, attempt, job.pid, job.since, job.stat.cpu_seconds)
            for (id, attempt), job in self._held.items()
            if job.pid
        ]

    def task_of(self, id: str, attempt: int) -> str:
        """Return the task of a job; "" if it is not held."""
        return self._held.get((id, attempt), _HeldJob(0)).task

    def holds(self, id: str, attempt: int) -> bool:
        return (id, attempt) in self._held

    @property
    def held(self) -> list[Lease]:
        return [Lease(self.name, id, attempt) for id, attempt in self._held]

    @property
    def running(self) -> list[tuple[str, str]]:
        """The ids and tasks of the jobs that it holds."""
        return [(id, job.task) for (id, _), job in self._held.items()]

    def may_have_started(self, lease: Lease) -> bool:
        """Return whether a leased job may have started: the executor reports each job before it starts."""
        return not self._all_received or (lease.id, lease.attempt) in self._held

    @property
    def was_superseded(self) -> bool:
        """Whether it became due for replacement before it was ready, and was killed."""
        return self.is_due.is_set() and not self.ready.is_set()

    @property
    def load(self) -> tuple[int, int]:
        """The number of jobs that have their own process, and the number of those that share the executor's."""
        processes = sum(1 for job in self._held.values() if job.pid)
        return processes, len(self._held) - processes

    @property
    def shortest_lease(self) -> int | None:
        """In milliseconds; None if it holds no lease."""
        return min((job.lease for job in self._held.values()), default=None)

    def take_started(self) -> list[Started]:
        """Return the jobs that were started since the last call."""
        started, self._started = self._started, []
        return started

    async def receive(self) -> AsyncIterator[messages.FromExecutor]:
        """Yield the messages of the executor until it closes the connection.

        Messages are read once per `READ_INTERVAL`: a supervisor that woke for each would take CPU time from the job.
        """
        buffer, loop = MessageBuffer(_decode), asyncio.get_running_loop()
        with suppress(ConnectionError):
            while part := await loop.sock_recv(self._control, READ_SIZE):
                for message in buffer.add(part):
                    if message is not None:
                        yield message
                await asyncio.sleep(READ_INTERVAL)
            self._all_received = True

    def note(self, message: messages.FromExecutor) -> None:
        """Record the leases and the state of the executor."""
        match message:
            case messages.JobsClaimed(jobs):
                self.is_idle = False
                for job in jobs:
                    self._held[job.id, job.attempt] = _HeldJob(job.lease, job.max_silence, job.task)
            case messages.AttemptsEnded(attempts):
                for attempt in attempts:
                    self._held.pop(attempt, None)
            case messages.JobStarted():
                self._note_started(message)
            case messages.Pong():
                self.responsiveness.answered()
            case messages.Idle():
                self.is_idle = True
            case messages.Leaving():
                self.is_leaving = True
            case messages.Retiring():
                self.is_retiring = True
                self.is_due.set()

    def _note_started(self, job: messages.JobStarted) -> None:
        if held := self._held.get((job.id, job.attempt)):
            self._held[job.id, job.attempt] = held._replace(
                pid=job.pid, created=job.created, since=boot_time(), stat=process_stat(job.pid)
            )
            self._started.append(Started(self.name, job.id, job.attempt, job.pid, job.delay))

    def stop(self, seconds: float) -> None:
        self.send(messages.Stop(seconds))

    def replace(self) -> None:
        """Stop it from claiming: its successor claims."""
        if self.deadline is None:
            self.send(messages.Retire())
        else:
            self.stop(self.deadline)

    def interrupt(self, id: str, attempt: int, reason: Literal["cancelled", "lost", "lapsing"]) -> None:
        """End an attempt early."""
        self.responsiveness.has_interrupts = True
        self.send(messages.Interrupt(id, attempt, reason))

    def ping(self, interval: float) -> None:
        """Check that it answers, unless its last ping is unanswered. Called once per interval, in seconds."""
        if self.ready.is_set() and self._held and self.responsiveness.check(interval):
            self.send(messages.Ping())

    @property
    def is_overdue(self) -> bool:
        """Whether it has been unresponsive for longer than the limits of one of its jobs allow."""
        limits = [job.max_silence / 1000 for job in self._held.values() if job.max_silence and not job.pid]
        return bool(limits) and self.responsiveness.silent > min(limits)

    def send(self, message: messages.FromSupervisor) -> None:
        if not self._writer.is_closing():
            self._writer.write(messages.pack(message))

    async def wait(self) -> int:
        """Wait for the process to exit and return its exit code."""
        while (code := self._process.poll()) is None:
            try:
                pidfd = os.pidfd_open(self._process.pid)
            except OSError:  # out of descriptors, or it has just ended
                await asyncio.sleep(0.1)
            else:
                await _readable(pidfd)
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()

    def kill_job(self, id: str, attempt: int) -> None:
        """Kill a job's own process, if it has one; the zygote of its executor kills what it has started."""
        if job := self._held.get((id, attempt)):
            job.kill()

    def kill_jobs(self) -> None:
        for job in self._held.values():
            job.kill()

    def close(self) -> None:
        self._control.close()
        self._writer.close()


def _environment(settings: WorkerSettings) -> dict[str, str] | None:
    """With --reload, write no compiled files: they are compared with their sources by whole seconds only."""
    return os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} if settings.reload else None


async def _readable(pidfd: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
