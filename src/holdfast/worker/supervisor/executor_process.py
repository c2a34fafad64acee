"""Whether an executor still hears what its supervisor says. One whose event loop a coroutine holds does not.

Then nothing in it can be stopped: not by a cancellation, nor by a time-out, which is kept by that loop. So it is asked
now and then, and killed if something is to be stopped and it has not answered for long. Its jobs run again, each in a
process of its own, where a time-out finds the one that it is meant for.

An executor's process as its supervisor sees it: how to start, hear, tell and kill it, and which leases it holds.
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
from holdfast.worker.settings import Pool, Start, WorkerSettings
from holdfast.worker.transport import READ_SIZE, Arriving, Decode, open_ends

DEAF_AFTER = 10.0  # seconds


class Responsiveness:
    """What one executor was asked and told, and has not answered yet."""

    def __init__(self) -> None:
        self.silent = 0.0  # seconds, as far as we were awake ourselves to hear an answer
        self.has_told = False  # that a job is to end, and since then it has not answered
        self.is_warned_of = False
        self._looked_at: float | None = None  # since the question, if it is not answered

    @property
    def is_deaf(self) -> bool:
        return self.silent > DEAF_AFTER

    def look(self, longest: float) -> bool:
        """Count the time since the last look, up to so much. Returns whether to ask: it has answered before."""
        now = time.monotonic()
        before, self._looked_at = self._looked_at, now
        if before is not None:
            self.silent += min(now - before, longest)
        return before is None

    def answered(self) -> None:
        self.silent, self._looked_at = 0.0, None
        self.has_told = self.is_warned_of = False


HEAR_EVERY = 0.02  # seconds

_decode: Decode[messages.FromExecutor] = messages.decoder(messages.FromExecutor)


class _Hold(NamedTuple):
    """A lease that is held: its length in milliseconds, and the job's process, 0 if it has none of its own."""

    lease: int
    patience: int = 0  # milliseconds after which something is to be done about a job that says nothing; 0: nothing is
    task: str = ""
    pid: int = 0
    created: int = 0  # when the job was, if it has a process; and when that began to run it
    since: float = 0.0
    stat: ProcessStat = ProcessStat()  # when it started: the pid alone may be another process by now

    def kill(self) -> None:
        """Kill the job's process with its group, if it has one and that is still there."""
        if self.pid and start_time(self.pid) == self.stat.started:
            kill_group(self.pid)


class JobProcess(NamedTuple):
    """A process of a job, since when it runs it, and the seconds on processors that it had used before."""

    id: str
    created: int
    attempt: int
    pid: int
    since: float
    used: float


class Process(Protocol):
    """What is asked of an executor's process."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...


class ExecutorProcess:
    """One executor, by the name that is never used again."""

    def __init__(
        self,
        name: str,
        process: Process,
        control: socket.socket,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.name = name
        self.born = boot_time()
        self.ready = asyncio.Event()  # it has imported the app
        self.is_due = asyncio.Event()  # to be replaced
        self.hurry: float | None = None  # seconds that its jobs have when it is replaced, or all the time they need
        self.is_idle = False  # in a burst: it has found nothing, and runs nothing
        self.is_retiring = False  # it claims no more
        self.is_leaving = False  # and of itself, as there is no more work
        self.waits_for_change = False  # it could not import the app, and the worker watches the app's files
        self.usage = Usage()
        self.hearing = Responsiveness()
        self._process = process
        self._control = control
        self._writer = writer
        self._held: dict[tuple[str, int], _Hold] = {}  # by (job, attempt)
        self._started: list[Started] = []
        self._has_said_all = False  # and we have heard it

    @classmethod
    async def start(cls, name: str, settings: WorkerSettings, pool: Pool, *, lock: int, pulse: int) -> ExecutorProcess:
        """Start an executor. There is no wait after the process has started: until it is registered it is an orphan."""
        ours, its = socket.socketpair()
        with its:
            control, writer = await open_ends(ours)
            start = Start(
                name=name, parent=os.getpid(), settings=settings, pool=pool, control=its.fileno(), pulse=pulse
            )
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "holdfast.entrypoints.executor", msgspec.json.encode(start)],
                    pass_fds=(its.fileno(), lock, pulse),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # a job in it that kills its group does not kill us
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
        """The process of a job; 0 if it has none of its own, or is not held."""
        return self._held.get((id, attempt), _Hold(0)).pid

    @property
    def processes(self) -> list[JobProcess]:
        """Those of the jobs that have one of their own."""
        return [
            JobProcess(id, hold.created, attempt, hold.pid, hold.since, hold.stat.cpu_seconds)
            for (id, attempt), hold in self._held.items()
            if hold.pid
        ]

    def holds(self, id: str, attempt: int) -> bool:
        return (id, attempt) in self._held

    @property
    def held(self) -> list[Lease]:
        return [Lease(self.name, id, attempt) for id, attempt in self._held]

    @property
    def running(self) -> list[tuple[str, str]]:
        """The jobs that it holds, and their tasks."""
        return [(id, hold.task) for (id, _), hold in self._held.items()]

    def may_have_begun(self, lease: Lease) -> bool:
        """Whether a job may have begun that the store says it holds: it tells us of each before that."""
        return not self._has_said_all or (lease.id, lease.attempt) in self._held

    @property
    def was_not_needed(self) -> bool:
        """Whether it was to be replaced before it was there, so that we have killed it."""
        return self.is_due.is_set() and not self.ready.is_set()

    @property
    def load(self) -> tuple[int, int]:
        """How many jobs it holds that have a process of their own, and how many that have none."""
        apart = sum(1 for hold in self._held.values() if hold.pid)
        return apart, len(self._held) - apart

    @property
    def shortest_lease(self) -> int | None:
        """In milliseconds; None if it holds none."""
        return min((hold.lease for hold in self._held.values()), default=None)

    def take_started(self) -> list[Started]:
        """Return what was started since this was last asked."""
        started, self._started = self._started, []
        return started

    async def receive(self) -> AsyncIterator[messages.FromExecutor]:
        """Yield what the executor says, until it is gone.

        What it says within `HEAR_EVERY` is heard at once: whoever is woken for each word takes the processor from the
        job that it is about.
        """
        arriving, loop = Arriving(_decode), asyncio.get_running_loop()
        with suppress(ConnectionError):
            while part := await loop.sock_recv(self._control, READ_SIZE):
                for message in arriving.add(part):
                    yield message
                await asyncio.sleep(HEAR_EVERY)
            self._has_said_all = True

    def note(self, message: messages.FromExecutor) -> None:
        """Record what the executor holds, and in which state it is."""
        match message:
            case messages.JobsClaimed(jobs):
                self.is_idle = False
                for job in jobs:
                    self._held[job.id, job.attempt] = _Hold(job.lease, job.patience, job.task)
            case messages.AttemptsEnded(attempts):
                for attempt in attempts:
                    self._held.pop(attempt, None)
            case messages.JobStarted():
                self._note_started(message)
            case messages.Pong():
                self.hearing.answered()
            case messages.Idle():
                self.is_idle = True
            case messages.Leaving():
                self.is_leaving = True
            case messages.Retiring():
                self.is_retiring = True
                self.is_due.set()

    def _note_started(self, job: messages.JobStarted) -> None:
        if hold := self._held.get((job.id, job.attempt)):
            self._held[job.id, job.attempt] = hold._replace(
                pid=job.pid, created=job.created, since=boot_time(), stat=process_stat(job.pid)
            )
            self._started.append(Started(self.name, job.id, job.attempt, job.pid, job.delay))

    def tell_to_stop(self, seconds: float) -> None:
        self.send(messages.Stop(seconds))

    def replace(self) -> None:
        """Have it claim no more, because another does."""
        if self.hurry is None:
            self.send(messages.Retire())
        else:
            self.tell_to_stop(self.hurry)

    def interrupt(self, id: str, attempt: int, reason: Literal["cancelled", "lost", "lapsing"]) -> None:
        """Have an attempt end early."""
        self.hearing.has_told = True
        self.send(messages.Interrupt(id, attempt, reason))

    def ask_whether_it_hears(self, every: float) -> None:
        """It answers, if user code lets it; whoever asks does so every so many seconds."""
        if self.ready.is_set() and self._held and self.hearing.look(every):
            self.send(messages.Ping())

    @property
    def is_overdue(self) -> bool:
        """Whether it has not answered for longer than a job in it may run, or be silent."""
        inside = [hold.patience / 1000 for hold in self._held.values() if hold.patience and not hold.pid]
        return bool(inside) and self.hearing.silent > min(inside)

    def send(self, message: messages.FromSupervisor) -> None:
        if not self._writer.is_closing():
            self._writer.write(messages.pack(message))

    async def wait(self) -> int:
        """Return the exit code of the process, once it is dead."""
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
        """Kill a job's process, if it has one of its own; what it has started is left to its executor's zygote."""
        if hold := self._held.get((id, attempt)):
            hold.kill()

    def kill_jobs(self) -> None:
        for hold in self._held.values():
            hold.kill()

    def close(self) -> None:
        self._control.close()
        self._writer.close()


def _environment(settings: WorkerSettings) -> dict[str, str] | None:
    """Where files change, compiled ones are not kept: they are told from old ones by whole seconds only."""
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
