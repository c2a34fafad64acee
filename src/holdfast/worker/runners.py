"""Runners: each runs an attempt and returns how it ended.

    fork    a process of its own for each job, forked from the zygote
    async   a task of the executor's event loop

An attempt that is interrupted is first asked, then forced: a process by TERM and KILL to its whole group, a coroutine
by cancellation. What it says afterwards is not heard.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from holdfast import failure, running
from holdfast.failure import Failure
from holdfast.outcome import Cancelled, Crash, Error, Outcome, Release, Succeed, outcome_of
from holdfast.task import Task
from holdfast.worker import wire, zygote
from holdfast.worker.attempt import Attempt
from holdfast.worker.system import kill_group

TERM_TO_KILL = 1.0  # seconds


class Runner(Protocol):
    async def run(self, attempt: Attempt) -> Outcome: ...


def interrupted_outcome(why: str) -> Outcome:
    """What the end of an attempt means that was forced to end; of a lost one nobody will hear."""
    return Cancelled() if why == "cancelled" else Release(why)


def timed_out(attempt: Attempt) -> Outcome:
    message = f"the job ran for longer than its timeout of {attempt.job.timeout / 1000:g} s and was stopped"
    described = Failure(type="Timeout", message=message, group="timeout", fingerprint="timeout")
    return Error(failure.encode(described), "timeout")


def crashed(words: str, *, exit_code: int | None = None, signal: int | None = None) -> Outcome:
    return Crash(failure.encode(Failure.of_crash(words, exit_code=exit_code, signal=signal)))


def _limit(attempt: Attempt) -> float | None:
    return attempt.job.timeout / 1000 or None


class AsyncRunner:
    """Runs coroutine functions in this event loop."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._tasks = tasks

    async def run(self, attempt: Attempt) -> Outcome:
        attempt.started(os.getpid())
        work = asyncio.create_task(self._call(attempt))
        stop = asyncio.create_task(attempt.interrupted.wait())
        try:
            await asyncio.wait({work, stop}, timeout=_limit(attempt), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            work.cancel()
            await asyncio.wait({work}, timeout=TERM_TO_KILL)
            return interrupted_outcome(attempt.why) if attempt.interrupted.is_set() else timed_out(attempt)
        finally:
            stop.cancel()

    async def _call(self, attempt: Attempt) -> Outcome:
        job = attempt.job
        task = self._tasks[job.task]
        running.set_current_job(
            running.RunningJob(
                _InProcess(attempt),
                id=job.id,
                attempt=job.attempt,
                task=job.task,
                queue=job.queue,
                checkpoint=job.checkpoint,
                directory=attempt.directory,
            )
        )
        try:
            args, kwargs = task.signature.decode(job.payload)
            value = await task.function(*args, **kwargs)
            return Succeed(task.signature.result.encode(value, f"the result of task {job.task}"))
        except running.HandOver:
            return Release("handed over")
        except asyncio.CancelledError as error:
            # Cancelled by us, the outcome is not heard; by itself, it is an error like another.
            return outcome_of(error)
        except Exception as error:
            return outcome_of(error)


class _InProcess:
    """The link of a job that runs in its executor."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def save(self, checkpoint: bytes | None, progress: str | None) -> None:
        self._attempt.save(checkpoint, progress)

    @property
    def stopping(self) -> bool:
        return self._attempt.stopping.is_set()


class ForkRunner:
    """Runs each job in a process that the zygote forks."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._control.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(control, self._hear)
        self._asked: list[asyncio.Future[int]] = []  # the zygote answers in order
        self._ended: dict[int, asyncio.Future[int]] = {}
        self.gone = asyncio.Event()

    def _hear(self) -> None:
        try:
            message = self._control.recv(64)
        except BlockingIOError:
            return
        if not message:
            self._loop.remove_reader(self._control)
            self.gone.set()
            return
        word, pid, *status = message.split()
        if word == b"ended":
            self._ended.pop(int(pid)).set_result(int(status[0]))
            return
        self._ended.setdefault(int(pid), self._loop.create_future())
        self._asked.pop(0).set_result(int(pid))

    async def run(self, attempt: Attempt) -> Outcome:
        ours, its = socket.socketpair()
        asked: asyncio.Future[int] = self._loop.create_future()
        self._asked.append(asked)
        with its:
            await self._send_request(its)
        pid = await asked
        if pid == 0:
            ours.close()
            return Release("no process could be started", 1000)
        ended = self._ended[pid]
        attempt.started(pid)
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            return await self._follow(attempt, pid, ended, reader, writer)
        finally:
            writer.close()

    async def _send_request(self, its: socket.socket) -> None:
        while True:
            try:
                socket.send_fds(self._control, [zygote.FORK], [its.fileno()])
                return
            except BlockingIOError:
                await asyncio.sleep(0.005)

    async def _follow(
        self,
        attempt: Attempt,
        pid: int,
        ended: asyncio.Future[int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> Outcome:
        """Tell the process what to do, hear what it says, and see to it that it ends."""
        job = attempt.job
        writer.write(
            wire.pack(job.id, job.attempt, job.queue, job.task, job.payload, job.checkpoint, str(attempt.directory))
        )
        said = asyncio.create_task(self._listen(attempt, reader))
        stop = asyncio.create_task(attempt.interrupted.wait())
        ask = asyncio.create_task(self._pass_on_stop(attempt, writer))
        try:
            first: list[asyncio.Future[Any]] = [ended, stop]
            await asyncio.wait(first, timeout=_limit(attempt), return_when=asyncio.FIRST_COMPLETED)
            forced = not ended.done()
            if forced:
                await self._kill(pid, ended)
            heard = await said
        finally:
            for task in (said, stop, ask):
                task.cancel()
        if heard is not None:
            return heard
        if forced:
            return interrupted_outcome(attempt.why) if attempt.interrupted.is_set() else timed_out(attempt)
        return _describe_end(ended.result())

    async def _listen(self, attempt: Attempt, reader: asyncio.StreamReader) -> Outcome | None:
        """Hear what a job's process says, until it has said how it ended, or is silent for good."""
        while (message := await wire.read(reader)) is not None:
            if message[0] == "outcome":
                return wire.unpack_outcome(message[1:])
            attempt.save(*message[1:])
        return None

    async def _pass_on_stop(self, attempt: Attempt, writer: asyncio.StreamWriter) -> None:
        await attempt.stopping.wait()
        with suppress(ConnectionError):
            writer.write(wire.pack("stop"))
            await writer.drain()

    async def _kill(self, pid: int, ended: asyncio.Future[int]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
        await asyncio.wait({ended}, timeout=TERM_TO_KILL)
        if not ended.done():
            kill_group(pid)
            await ended


def _describe_end(status: int) -> Outcome:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        hint = "; out of memory?" if number == signal.SIGKILL else ""
        return crashed(f"the job's process was killed{hint}", signal=number)
    return crashed("the job's process ended without an outcome", exit_code=os.WEXITSTATUS(status))
