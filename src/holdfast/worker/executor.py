"""An executor: one process of a worker. It imports the app, claims jobs, runs them, and finishes them.

    claim ──▶ attempt ──▶ finish, and claim in the same call

Leases are not kept here: the supervisor renews them, so that user code may hold the interpreter for as long as it
likes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import socket
import time
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from holdfast import commands, errors, failure
from holdfast.client import Holdfast
from holdfast.commands import Claimed, Finish, Finished
from holdfast.failure import Failure
from holdfast.outcome import Error, Outcome, Release, Unknown
from holdfast.store import AsyncStore
from holdfast.worker import wire
from holdfast.worker.attempt import Attempt
from holdfast.worker.pulse import Pulse
from holdfast.worker.runners import AsyncRunner, ForkRunner, Runner
from holdfast.worker.settings import WorkerSettings

log = logging.getLogger("holdfast.worker")

AT_ONCE = 100  # jobs in one claim
PATIENCE = 2.0  # seconds that a claimed job waits for a free process before it is handed back


class Executor:
    """Runs jobs until it is told to stop."""

    def __init__(
        self,
        app: Holdfast,
        name: str,
        settings: WorkerSettings,
        *,
        control: socket.socket,
        zygote: socket.socket | None,
        pulse: Pulse,
    ) -> None:
        self._app = app
        self._name = name
        self._settings = settings
        self._store = AsyncStore(app.address)
        self._pulse = pulse
        self._control = control
        self._zygote = zygote
        self._directory = Path(settings.directory) / name.replace("/", "-")
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._ended: list[Finish] = []
        self._nudge = asyncio.Event()
        self._stopping = False
        self._claim_at = 0.0
        self._idle = False
        self._counter = 0
        self._kinds: deque[bool] = deque([True] * bool(zygote), maxlen=200)  # of the last jobs: were they forked
        self._tasks: set[asyncio.Task[None]] = set()
        self._waker: asyncio.Task[None] | None = None

    async def run(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._control)
        self._async = AsyncRunner(self._app.tasks)
        self._forks = ForkRunner(self._zygote) if self._zygote else None
        self._slots = {
            "fork": asyncio.Semaphore(self._settings.processes),
            "async": asyncio.Semaphore(self._settings.concurrency),
        }
        self._spawn(self._obey(reader))
        if self._forks:
            self._spawn(self._watch_zygote(self._forks))
        try:
            while not (self._stopping and not self._attempts and not self._ended):
                await self._turn()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            for task in self._tasks:
                task.cancel()
            await self._store.close()

    async def _turn(self) -> None:
        """Finish what ended, claim what can start, and sleep if there is nothing to do."""
        self._nudge.clear()
        items, self._ended = self._ended, []
        room = self._room() if items or time.monotonic() >= self._claim_at else 0
        if not items and room == 0:
            await self._sleep()
            return
        finished = await self._call(items, room)
        self._tell("ended", [part for item in items for part in (item.id, item.attempt)])
        self._hear_answers(items, finished.answers)
        if room:
            self._start(finished.claim)

    async def _sleep(self) -> None:
        timeout = None
        if self._is_asleep():
            timeout = 0.05
        elif self._room():
            timeout = max(0.0, self._claim_at - time.monotonic())
        try:
            await asyncio.wait_for(self._nudge.wait(), timeout)
        except TimeoutError:
            return

    def _room(self) -> int:
        """How many jobs may be claimed now; while forked ones are among the recent, no more than free processes."""
        if self._stopping or self._is_asleep() or any(attempt.job.alone for attempt in self._attempts.values()):
            return 0
        if any(attempt.pid is None for attempt in self._attempts.values()):
            return 0
        forked = sum(1 for attempt in self._attempts.values() if attempt.pid != os.getpid())
        free = self._settings.concurrency - (len(self._attempts) - forked)
        if any(self._kinds):
            free = min(free, self._settings.processes - forked)
        return max(0, min(free, AT_ONCE))

    def _is_asleep(self) -> bool:
        """Nobody renews leases, as after the machine slept: then nothing is claimed that nobody would hold on to."""
        return self._pulse.age() > self._settings.lease / 1000

    async def _call(self, items: list[Finish], room: int) -> Finished:
        """Finish and claim, until the store answers. Repeated as it was, so that a lost reply loses nothing."""
        if room:
            self._counter += 1
        request = commands.claim_args(
            self._settings.queues,
            counter=self._counter,
            limit=room,
            lease=self._settings.lease,
            pid=os.getpid(),
            idle=self._idle,
        )
        command = commands.finish(self._name, items, request=request if room else None)
        pause = 0.1
        while True:
            try:
                return await self._store.run(command)
            except errors.StoreUnavailable as error:
                log.debug("%s: %s", self._name, error)
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311, only spreads load
                pause = min(1.0, pause * 2)

    def _hear_answers(self, items: list[Finish], answers: list[str]) -> None:
        for item, answer in zip(items, answers, strict=True):
            if answer == "LOST":
                log.warning("%s: attempt %d has lost its lease, outcome dropped", item.id, item.attempt)
            elif answer != "OK":
                log.error("%s: the store refused the outcome of attempt %d: %s", item.id, item.attempt, answer)
                self._ended.append(Finish(item.id, item.attempt, _refused(answer), item.pid, item.started))

    def _start(self, claim: commands.Claim) -> None:
        self._idle = not claim.jobs
        if not claim.jobs:
            self._claim_at = time.monotonic() + claim.wait / 1000 * random.uniform(1, 1.1)  # noqa: S311, as above
            if self._waker is None or self._waker.done():
                self._waker = self._spawn(self._await_wake(claim))
            return
        self._claim_at = 0.0
        self._tell("claimed", [part for job in claim.jobs for part in (job.id, job.attempt)])
        for job in claim.jobs:
            attempt = Attempt(job, self._name, self._directory, self._say_started)
            self._attempts[job.id, job.attempt] = attempt
            self._spawn(self._attempt(attempt))

    async def _await_wake(self, claim: commands.Claim) -> None:
        """Block on this executor's own key until somebody adds work, or it is time to claim anyway."""
        seconds = max(0.01, claim.wait / 1000)
        try:
            if not await self._store.execute("BLPOP", claim.wake_key, seconds, blocks=seconds):
                return
        except errors.StoreUnavailable:
            return
        self._claim_at = 0.0
        self._nudge.set()

    async def _attempt(self, attempt: Attempt) -> None:
        """Run a claimed job and have its end reported.

        The lease may be lost meanwhile. Then another executor owns the job, and our outcome is void.
        """
        saver = asyncio.create_task(self._save_now_and_then(attempt))
        try:
            outcome = await self._outcome(attempt)
        except Exception as error:
            log.exception("%s: the runner failed", attempt.job.id)
            outcome = Release(f"the worker failed: {error!r}"[:60], 1000)
        saver.cancel()
        await self._save(attempt)
        del self._attempts[attempt.job.id, attempt.job.attempt]
        shutil.rmtree(attempt.directory, ignore_errors=True)
        if attempt.why != "lost":
            self._ended.append(attempt.finish(outcome))
        else:
            self._tell("ended", [attempt.job.id, attempt.job.attempt])
        self._nudge.set()

    async def _outcome(self, attempt: Attempt) -> Outcome:
        task = self._app.tasks.get(attempt.job.task)
        if task is None:
            log.warning("%s: task %s is not known here, released", attempt.job.id, attempt.job.task)
            attempt.started(os.getpid())
            return Unknown()
        kind, runner = self._runner(attempt.job)
        self._kinds.append(kind == "fork")
        slot = self._slots[kind]
        try:
            await asyncio.wait_for(slot.acquire(), PATIENCE)
        except TimeoutError:
            return Release("claimed ahead")
        try:
            if attempt.interrupted.is_set():
                return Release(attempt.why)
            return await runner.run(attempt)
        finally:
            slot.release()

    def _runner(self, job: Claimed) -> tuple[str, Runner]:
        task = self._app.tasks[job.task]
        if self._forks and (not task.is_async or task.chosen.runner == "fork"):
            return "fork", self._forks
        return "async", self._async

    def _say_started(self, attempt: Attempt) -> None:
        """Tell the supervisor which process to kill if this one dies. A coroutine has none of its own."""
        if attempt.pid != os.getpid():
            self._tell("started", [attempt.job.id, attempt.job.attempt, attempt.pid, attempt.start_delay])

    async def _save_now_and_then(self, attempt: Attempt) -> None:
        while True:
            await attempt.saving.wait()
            await self._save(attempt)

    async def _save(self, attempt: Attempt) -> None:
        if not attempt.saving.is_set() or attempt.why == "lost":
            return
        checkpoint, progress = attempt.unsaved()
        try:
            if await self._store.run(commands.save(attempt.held, checkpoint, progress=progress)):
                attempt.interrupt("cancelled")
        except errors.LeaseLost:
            attempt.interrupt("lost")
        except errors.StoreUnavailable:
            attempt.save(checkpoint, progress)
            await asyncio.sleep(0.5)
        except errors.HoldfastError as error:
            log.error("%s: %s", attempt.job.id, error)

    async def _obey(self, reader: asyncio.StreamReader) -> None:
        """Do what the supervisor says. When it is gone, so are we, and the zygote kills the jobs."""
        while (message := await wire.read(reader)) is not None:
            word, *rest = message
            if word == "stop":
                self._stop(rest[0])
            elif attempt := self._attempts.get((rest[0], rest[1])):
                log.info("%s: attempt %d is %s, stopping it", rest[0], rest[1], word)
                attempt.interrupt(word)
        os._exit(1)

    def _stop(self, seconds: float) -> None:
        self._stopping = True
        for attempt in self._attempts.values():
            attempt.stopping.set()
        asyncio.get_running_loop().call_later(seconds, self._stop_now)
        self._nudge.set()

    def _stop_now(self) -> None:
        for attempt in self._attempts.values():
            attempt.interrupt("stopped")

    async def _watch_zygote(self, forks: ForkRunner) -> None:
        await forks.gone.wait()
        log.error("%s: the zygote died, and its jobs with it", self._name)
        os._exit(1)

    def _tell(self, word: str, rows: list[Any]) -> None:
        if rows:
            self._writer.write(wire.pack(word, rows))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _refused(answer: str) -> Outcome:
    """What becomes of an attempt whose outcome the store does not take: an error that no retry would mend."""
    described = Failure(
        type=answer,
        message="the result is over 1 MiB: store it elsewhere and return a reference",
        group="result-too-big",
        fingerprint=answer,
    )
    return Error(failure.encode(described), described.group, final=True)
