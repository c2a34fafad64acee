"""An executor: one process of a worker. It imports the app, claims jobs, runs them, and finishes them.

    claim ──▶ attempt ──▶ finish, and claim in the same call

Leases are not kept here: the supervisor renews them, so that user code may hold the interpreter for as long as it
likes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast.client import Holdfast
from holdfast.commands import Claim, Claimed, Finish
from holdfast.outcome import Outcome, Release, Unknown
from holdfast.run import UNREADABLE, Run
from holdfast.store import AsyncStore
from holdfast.worker import requests, wire
from holdfast.worker.allowance import Allowance
from holdfast.worker.apart import Processes
from holdfast.worker.attempt import WORKER, Attempt
from holdfast.worker.claiming import DUE_NOW, Claiming
from holdfast.worker.ending import refused_outcome
from holdfast.worker.journal import log_end, log_start
from holdfast.worker.programs import known_tasks
from holdfast.worker.pulse import Pulse
from holdfast.worker.runners import NOWHERE, Elsewhere, Runners
from holdfast.worker.saver import keep_saving
from holdfast.worker.settings import Start
from holdfast.worker.waiting import end_all, remove
from holdfast.worker.watch import LAPSING, patience
from holdfast.worker.zygote import Zygote

log = logging.getLogger("holdfast.worker")

AT_ONCE = 100  # jobs in one claim, outcomes in one finish
LOOK_EVERY = 0.05  # seconds, at the pulse while it stands still


class Executor:
    """Runs jobs until it is told to stop, or has to be replaced."""

    def __init__(
        self,
        app: Holdfast,
        start: Start,
        *,
        control: socket.socket,
        zygote: Zygote | None,
        pulse: Pulse,
    ) -> None:
        self._name = start.name
        self._settings = start.settings
        self._pool = start.pool
        self._tasks = known_tasks(app, app.tasks, allow_exec=start.settings.allow_exec)
        self._store = AsyncStore(app.address)
        self._pulse = pulse
        self._control = control
        self._zygote = zygote
        self._directory = Path(start.settings.directory) / start.name.replace("/", "-")
        self._claiming = Claiming(self._store, start, is_ending=self._is_ending, on_wake=self._look)
        self._allowance = Allowance(start.pool)
        self._elsewhere = NOWHERE
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._ended: list[Finish] = []
        self._nudge = asyncio.Event()  # there may be something to do: the next turn looks at everything
        self._may_claim = False  # not before the supervisor says so
        self._retiring = False  # claims no more; what runs has all the time that it needs
        self._stopping = False  # the same, but within a deadline

    async def run(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._control)
        self._runners = Runners(self._tasks, self._pool, self._zygote, on_abandoned=self._abandon)
        try:
            async with asyncio.TaskGroup() as self._group:
                duties = (self._obey(reader), self._watch_zygote(self._runners.processes), self._claiming.await_wakes())
                running = [self._group.create_task(duty) for duty in duties]
                while not self._is_done():
                    await self._turn()
                await end_all(running)
            self._writer.transport.set_write_buffer_limits(0)
            await self._writer.drain()  # all of it
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._runners.close()
            if not self._zygote:  # or the supervisor would take us for silent but alive
                self._writer.close()
            await self._store.close()

    def _is_done(self) -> bool:
        return self._is_ending() and not self._has_work()

    def _is_ending(self) -> bool:
        return self._stopping or self._retiring

    def _has_work(self) -> bool:
        return bool(self._attempts or self._ended)

    # Claiming and finishing

    async def _turn(self) -> None:
        """Finish what ended, claim what can start, and sleep if there is nothing to do."""
        self._nudge.clear()
        items, self._ended = self._ended[:AT_ONCE], self._ended[AT_ONCE:]
        room = self._room() if items or not self._claiming.wait else 0
        if not items and room == 0:
            await self._sleep()
            return
        finished = await self._claiming.call(items, room)
        self._tell("ended", [part for item in items for part in (item.id, item.attempt)])
        self._hear_answers(items, finished.answers)
        if room:
            self._start(finished.claim)

    async def _sleep(self) -> None:
        timeout = None
        if self._is_asleep():
            timeout = LOOK_EVERY
        elif self._room():
            timeout = self._claiming.wait
        try:
            async with asyncio.timeout(timeout):
                await self._nudge.wait()
        except TimeoutError:
            return

    def _room(self) -> int:
        """How many jobs may be claimed now."""
        if not self._may_claim or self._is_ending() or self._is_asleep():
            return 0
        room = self._runners.room(self._attempts.values(), self._elsewhere)
        return min(room, self._allowance.left(len(self._attempts)), AT_ONCE)

    def _is_asleep(self) -> bool:
        """Nobody renews leases, as after the machine slept: then nothing is claimed that nobody would hold on to."""
        return self._pulse.has_stopped

    def _hear_answers(self, items: list[Finish], answers: list[str]) -> None:
        for item, answer in zip(items, answers, strict=True):
            if answer == "LOST":
                log.warning("%s: attempt %d has lost its lease, outcome dropped", item.id, item.attempt)
            elif answer != "OK":
                outcome = refused_outcome(item.outcome, answer)
                log.error("%s: the outcome of attempt %d is refused: %s", item.id, item.attempt, answer)
                if item.outcome != outcome:  # or the lease has to end
                    self._ended.append(msgspec.structs.replace(item, outcome=outcome))

    def _start(self, claim: Claim) -> None:
        self._tell("claimed", [part for job in claim.jobs for part in (job.id, job.attempt, job.lease, patience(job))])
        for job in claim.jobs:
            if job.run and Run.decode(job.run).exclusive:
                self._tell("exclusive", [self._name, job.id, job.attempt, job.lease, self._claiming.asked_at])
            if running := self._attempts.get((job.id, job.attempt)):
                running.claimed_again()
            elif self._stopping:  # since the claim was sent
                self._ended.append(
                    Finish(job.id, job.attempt, Release("stopping"), created=job.created, unstarted=True)
                )
            else:
                self._group.create_task(self._attempt(self._new_attempt(job)))
        if self._allowance.is_used_up(len(self._attempts)):
            self._retire()
        elif self._settings.burst and claim.wait > DUE_NOW and not self._has_work():
            self._tell("idle", [self._name])

    def _look(self) -> None:
        """There may be work: claim at once. Who claims no more passes that on."""
        if self._is_ending():
            self._tell("woken", [self._name])
        self._claiming.wake()
        self._nudge.set()

    # Running

    def _new_attempt(self, job: Claimed) -> Attempt:
        attempt = Attempt(
            job,
            self._name,
            self._directory,
            on_start=self._say_started,
            on_first_save=self._start_saving,
            on_request=partial(requests.answer, self._store),
            lease_from=partial(self._lease_from, (job.id, job.attempt), self._claiming.asked_at),
            captured=self._zygote is not None,
        )
        self._attempts[attempt.key] = attempt
        return attempt

    def _lease_from(self, key: tuple[str, int], claimed: float) -> float:
        """When a lease was asked for: by its claim, or by the last renewal, once that is known to be its own too."""
        return max(claimed, self._pulse.renewed_at) if self._attempts[key].is_renewed else claimed

    async def _attempt(self, attempt: Attempt) -> None:
        """Run a claimed job and have its end reported.

        The lease may be lost meanwhile. Then another executor owns the job, and our outcome is void.
        """
        try:
            outcome = await self._outcome(attempt)
        except Exception as error:  # of ours, or of a machine that has no descriptors or memory left
            log.exception("%s: attempt %d could not be run", *attempt.key)
            outcome = Release(f"the worker failed: {error!r}"[:60], 1000)
        log_end(attempt, outcome)
        attempt.end()
        if attempt.saver:
            await attempt.saver
        if attempt.directory.exists():
            await remove(attempt.directory)
        del self._attempts[attempt.key]
        if self._allowance.count(attempt):
            self._tell("ran", [attempt.job.id])
        if attempt.why == "lost":
            self._tell("ended", list(attempt.key))
        else:
            self._ended.append(attempt.finish(outcome))
        self._nudge.set()

    async def _outcome(self, attempt: Attempt) -> Outcome:
        if attempt.job.task not in self._tasks:
            log.warning("%s: task %s is not known here, released", attempt.job.id, attempt.job.task)
            return Unknown()
        if attempt.run is UNREADABLE:
            log.warning("%s: how it is to be run cannot be read here, released", attempt.job.id)
            return Unknown()
        return await self._runners.run(attempt)

    def _say_started(self, attempt: Attempt) -> None:
        """Tell the supervisor which process to kill if this one dies. A coroutine or thread has none of its own."""
        log_start(attempt)
        if attempt.pid != os.getpid():
            job = attempt.job
            self._tell("started", [job.id, job.attempt, attempt.pid, attempt.start_delay, job.created])
        self._nudge.set()

    def _start_saving(self, attempt: Attempt) -> None:
        attempt.saver = self._group.create_task(keep_saving(self._store, attempt))

    # The supervisor, and the zygote

    async def _obey(self, reader: asyncio.StreamReader) -> None:
        """Do what the supervisor says. When it is gone, so are we, and the zygote kills the jobs.

        Without a zygote there is no process of ours to end: supervisor and executor live and die together.
        """
        while (message := await wire.read(reader)) is not None:
            self._obey_word(*message)
        if self._zygote:
            os._exit(1)

    def _obey_word(self, word: str, *rest: Any) -> None:
        match word:
            case "stop":
                self._stop(rest[0])
            case "claim":
                self._may_claim = True
            case "hears":
                self._tell("heard", [self._name])
            case "retire":
                self._retire()
            case "leave":
                self._leave()
            case "look":
                self._look()
            case "queues":
                self._claiming.serve(rest[0])
            case "grant":
                self._allowance.grant(rest[0])
            case "elsewhere":
                self._elsewhere = Elsewhere(*rest)
            case "stack":
                self._look_into(*rest)
            case "renewed":
                self._note_renewed(*rest)
            case _:
                self._interrupt(word, *rest)
        self._nudge.set()

    def _interrupt(self, why: str, id: str, attempt: int) -> None:
        if running := self._attempts.get((id, attempt)):
            log.info("%s: attempt %d is %s, stopping it", id, attempt, why)
            running.interrupt(why, LAPSING if why == "lapsing" else None)

    def _note_renewed(self, id: str, attempt: int) -> None:
        if running := self._attempts.get((id, attempt)):
            running.is_renewed = True

    def _look_into(self, id: str, attempt: int, inbox: str) -> None:
        """Say what a job does that has no process of its own."""
        running = self._attempts.get((id, attempt))
        self._tell("stack", [inbox, running.look() if running else None])

    def _retire(self) -> None:
        """Claim no more, and end when all jobs have."""
        if not self._retiring:
            self._retiring = True
            self._tell("retiring", [self._allowance.give_back(len(self._attempts) + (self._claiming.asked_for or 0))])

    def _abandon(self, attempt: Attempt) -> None:
        """A job did not end when it was asked to: the end of this process has to end it, when its neighbours are done.

        Until then another executor claims in its place.
        """
        log.warning(
            "%s: attempt %d does not end when it is asked to, and is abandoned; executor %s is replaced",
            *attempt.key,
            self._name,
        )
        self._retire()

    def _leave(self) -> None:
        """End, as there is no work; if there is some after all, the supervisor will hear of it."""
        if not self._has_work() and self._claiming.asked_for is None and not self._claiming.is_woken:
            self._tell("leaving", [self._name])
            self._retire()

    def _stop(self, seconds: float) -> None:
        self._stopping = True
        for attempt in self._attempts.values():
            attempt.stop(WORKER)
        asyncio.get_running_loop().call_later(seconds, self._stop_now)

    def _stop_now(self) -> None:
        for attempt in self._attempts.values():
            attempt.interrupt("stopped")

    async def _watch_zygote(self, processes: Processes | None) -> None:
        if processes:
            await processes.gone.wait()
            log.error("%s: the zygote died, and its jobs with it", self._name)
            os._exit(1)

    def _tell(self, word: str, rows: list[Any]) -> None:
        if rows:
            self._writer.write(wire.pack(word, rows))
