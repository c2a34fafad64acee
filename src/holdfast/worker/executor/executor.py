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

import msgspec

from holdfast.constants import MIN_IDLE_WAIT
from holdfast.job.options import UNREADABLE, Run
from holdfast.job.outcome import Outcome, Release, Succeed, Unknown
from holdfast.store import AsyncStore
from holdfast.store.commands import ClaimedJob, ClaimReply, Finish
from holdfast.worker import messages
from holdfast.worker.app import App
from holdfast.worker.attempt import WORKER, Attempt, House
from holdfast.worker.executor import saving
from holdfast.worker.executor.claiming import Claiming
from holdfast.worker.executor.job_log import MAX_LINES, Journal
from holdfast.worker.executor.quota import Allowance
from holdfast.worker.executor.saving import keep_saving
from holdfast.worker.lease_clock import LeaseClock
from holdfast.worker.output.files import FOLDER
from holdfast.worker.runners.endings import refused_outcome, unable
from holdfast.worker.runners.process_runner import Processes
from holdfast.worker.runners.programs import known_tasks
from holdfast.worker.runners.run_limits import LAPSING, patience
from holdfast.worker.runners.selection import NOWHERE, Elsewhere, Runners
from holdfast.worker.runners.zygote import Zygote
from holdfast.worker.settings import Start
from holdfast.worker.transport import Decode, read
from holdfast.worker.waiting import cancel_all, remove

log = logging.getLogger("holdfast.worker")

AT_ONCE = 100  # jobs in one claim, outcomes in one finish
LOOK_EVERY = 0.05  # seconds, at the pulse while it stands still

_decode: Decode[messages.FromSupervisor] = messages.decoder(messages.FromSupervisor)


class Executor:
    """Runs jobs until it is told to stop, or has to be replaced."""

    def __init__(
        self,
        app: App,
        start: Start,
        *,
        control: socket.socket,
        zygote: Zygote | None,
        pulse: LeaseClock,
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
        self._claiming = Claiming(
            self._store,
            start,
            is_ending=self._is_ending,
            may_wait=self._is_quiet,
            on_wake=self._look,
            on_claim=self._take_claim,
        )
        self._allowance = Allowance(start.pool)
        self._journal = Journal(self._send, max(1, MAX_LINES // start.settings.executors))
        self._elsewhere = NOWHERE
        self._at_once = min(AT_ONCE, -(-start.pool.concurrency // 2))
        self._pid = os.getpid()
        self._house = self._new_house()
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._claimed: list[ClaimedJob] = []  # and not started yet
        self._claimed_at = 0.0  # when their claim was sent
        self._ended: list[Finish] = []
        self._unsent: list[bytes] = []
        self._misfits: set[str] = set()  # tasks whose results do not fit their annotations
        self._nudge = asyncio.Event()  # there may be something to do: the next turn looks at everything
        self._may_claim = False  # not before the supervisor says so
        self._is_held = False  # since the supervisor said otherwise
        self._retiring = False  # claims no more; what runs has all the time that it needs
        self._stopping = False  # the same, but within a deadline

    def _new_house(self) -> House:
        return House(
            executor=self._name,
            directory=str(self._directory),
            logs=str(self._directory.parent / FOLDER),
            captured=self._zygote is not None,
            on_start=self._say_started,
            on_end=self._hear_end,
            on_first_save=self._start_saving,
            on_request=partial(saving.answer, self._store),
            renewed_at=lambda: self._pulse.renewed_at,
        )

    async def run(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._control)
        self._runners = Runners(self._tasks, self._pool, self._zygote, on_abandoned=self._abandon)
        try:
            async with asyncio.TaskGroup() as self._group:
                duties = (self._claiming.await_wakes(), self._obey(reader), self._watch_zygote(self._runners.processes))
                running = [self._group.create_task(duty) for duty in duties]
                while not self._is_done() or await self._takes_a_last_one(running[0]):
                    await self._turn()
                await cancel_all(running)
            self._journal.report()
            self._send_all()
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

    async def _takes_a_last_one(self, waking: asyncio.Task[None]) -> bool:
        """Whether the claim that waited in the store has brought a job, just before it was to be the last.

        Then this executor runs it, unless it has to stop: the supervisor hands back what we have not told it of.
        """
        await cancel_all([waking])
        if self._stopping or not await self._claiming.was_carried_out():
            return False
        claim = (await self._claiming.call([], 1)).claim
        self._take_claim(claim)
        return bool(claim.jobs)

    def _is_ending(self) -> bool:
        return self._stopping or self._retiring

    def _has_work(self) -> bool:
        return bool(self._attempts or self._claimed or self._ended)

    # Claiming and finishing

    async def _turn(self) -> None:
        """Finish what ended, and claim what can start; meanwhile start what was claimed before. Or sleep."""
        self._nudge.clear()
        if not self._runners.are_inside(self._claimed):
            self._start_claimed()  # or how much room is left is not known
        items, self._ended = self._ended[:AT_ONCE], self._ended[AT_ONCE:]
        room = self._room() if items or not self._claiming.wait else 0
        if not items and room == 0:
            self._start_claimed()
            await self._sleep()
            return
        call = self._group.create_task(self._claiming.call(items, room))
        await asyncio.sleep(0)  # it is on its way
        self._start_claimed()
        finished = await call
        self._hear_answers(items, finished.answers)
        if room:
            self._hear_claim(finished.claim)
        self._claiming.asked_for = None
        if room > len(finished.claim.jobs) > 0:
            self._start_claimed()
            await asyncio.sleep(0)  # these are all: they begin, and perhaps end, before others are asked for

    async def _sleep(self) -> None:
        self._claiming.wait_in_store()
        timer = None
        if self._is_asleep():
            timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._nudge.set)
        elif self._room():
            timer = asyncio.get_running_loop().call_later(self._claiming.wait, self._nudge.set)
        try:
            await self._nudge.wait()
        finally:
            if timer:
                timer.cancel()

    def _is_quiet(self) -> bool:
        """Whether nothing can keep a job from starting that is claimed at any time from now.

        No other job runs here, nor a program whose event loop it is. Nor may it be one too many for the worker.
        """
        may_wait = self._zygote is not None and not self._allowance.is_granted
        return may_wait and not self._has_work() and self._room() > 0

    def _room(self) -> int:
        """How many jobs may be claimed now.

        It is half of the places at most: so one half runs while the call for the other is on its way.
        """
        if not self._may_claim or self._is_ending() or self._is_asleep() or self._claiming.asked_for is not None:
            return 0
        count = self._count()
        return min(self._runners.room(count, self._elsewhere), self._allowance.left(count), self._at_once)

    def _count(self) -> int:
        """How many jobs there are here."""
        return len(self._attempts) + len(self._claimed)

    def _is_asleep(self) -> bool:
        """Nobody renews leases, as after the machine slept: then nothing is claimed that nobody would hold on to."""
        return self._pulse.has_stopped

    def _hear_answers(self, items: list[Finish], answers: list[str]) -> None:
        ended: list[tuple[str, int]] = []
        for item, answer in zip(items, answers, strict=True):
            if answer == "OK" or not self._is_said_anew(item, answer):
                ended.append((item.id, item.attempt))
        if ended:
            self._send(messages.AttemptsEnded(ended))
        if failed := self._journal.answered(items, answers):
            self._group.create_task(self._journal.log_what_follows(self._store, failed))

    def _is_said_anew(self, item: Finish, answer: str) -> bool:
        """An outcome was not taken. Whether there is another in its place, until which the attempt has its lease."""
        if answer == "LOST":
            log.warning("%s: attempt %d has lost its lease, outcome dropped", item.id, item.attempt)
            return False
        if answer in ("NEWER", "DAMAGED"):
            words = "a newer release wrote its record" if answer == "NEWER" else "its record is damaged"
            log.error("%s: outcome of attempt %d dropped: %s", item.id, item.attempt, words)
            return False
        log.error("%s: the outcome of attempt %d is refused: %s", item.id, item.attempt, answer)
        outcome = refused_outcome(item.outcome, answer)
        if item.outcome == outcome:  # then the lease has to end
            return False
        self._ended.append(msgspec.structs.replace(item, outcome=outcome))
        return True

    def _hear_claim(self, claim: ClaimReply) -> None:
        self._tell_of(claim)
        self._claimed, self._claimed_at = claim.jobs, self._claiming.asked_at
        if self._allowance.is_used_up(self._count()):
            self._retire()
        elif self._settings.burst and claim.wait > MIN_IDLE_WAIT and not self._has_work():
            self._send(messages.Idle())

    def _take_claim(self, claim: ClaimReply) -> None:
        self._hear_claim(claim)
        self._claiming.asked_for = None
        self._start_claimed()
        self._nudge.set()

    def _start_claimed(self) -> None:
        jobs, self._claimed = self._claimed, []
        for job in jobs:
            if running := self._attempts.get((job.id, job.attempt)):
                running.claimed_again()
            elif self._stopping or self._is_held:  # since the claim was sent
                why = "stopping" if self._stopping else "the server evicts jobs"
                self._ended.append(Finish(job.id, job.attempt, Release(why), created=job.created, unstarted=True))
                self._nudge.set()
            else:
                self._begin(Attempt(job, self._house, self._claimed_at))

    def _tell_of(self, claim: ClaimReply) -> None:
        """Have leases renewed: before any of the jobs starts, which may hold the interpreter for long."""
        if not claim.jobs:
            return
        jobs = [messages.ClaimedJob(job.id, job.attempt, job.lease, patience(job), job.task) for job in claim.jobs]
        self._send(messages.JobsClaimed(jobs))
        for job in claim.jobs:
            if job.run and Run.decode(job.run).exclusive:
                asked_at = self._claiming.asked_at
                self._send(messages.ExclusiveClaimed(self._name, job.id, job.attempt, job.lease, asked_at))
        self._send_all()

    def _look(self) -> None:
        """There may be work: claim at once. Who claims no more passes that on."""
        if self._is_ending():
            self._send(messages.Woken())
        self._claiming.wake()
        self._nudge.set()

    # Running

    def _begin(self, attempt: Attempt) -> None:
        """Run a claimed job. It says when it has ended."""
        self._attempts[attempt.key] = attempt
        try:
            if attempt.job.task not in self._tasks or attempt.run is UNREADABLE:
                attempt.end(Unknown())
            elif (rest := self._runners.begin(attempt)) is not None:
                self._group.create_task(rest)
        except Exception as error:
            attempt.end(unable(attempt, error))

    def _say_started(self, attempt: Attempt) -> None:
        """Tell the supervisor which process to kill if this one dies. A coroutine or thread has none of its own."""
        self._journal.start(attempt)
        if attempt.pid != self._pid:
            job, pid, delay = attempt.job, attempt.pid or 0, attempt.start_delay or 0
            self._send(messages.JobStarted(job.id, job.attempt, pid, delay, job.created))
            self._nudge.set()
            if attempt.run.exclusive:  # which it may have to kill, also when a coroutine keeps this loop
                self._send_all()

    def _start_saving(self, attempt: Attempt) -> None:
        attempt.saver = self._group.create_task(keep_saving(self._store, attempt))

    def _hear_end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Have it reported; first, what it saved has to be in the store."""
        self._journal.end(attempt, outcome)
        if type(outcome) is Succeed and outcome.note:
            self._say_misfit(attempt.job, outcome.note)
        if attempt.saver or attempt.has_directory:
            self._group.create_task(self._tidy(attempt, outcome))
        else:
            self._report(attempt, outcome)

    def _say_misfit(self, job: ClaimedJob, words: str) -> None:
        if job.task not in self._misfits:
            self._misfits.add(job.task)
            self._send(messages.ResultMismatch(job.task, job.id, words))

    async def _tidy(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.saver:
            await attempt.saver
        if attempt.has_directory:
            await remove(attempt.directory)
        self._report(attempt, outcome)

    def _report(self, attempt: Attempt, outcome: Outcome) -> None:
        """Have the end of an attempt sent to the store.

        The lease may be lost by then. Then another executor owns the job, and our outcome is void.
        """
        del self._attempts[attempt.key]
        self._runners.forget(attempt)
        if self._allowance.count(attempt):
            self._send(messages.JobCounted())
        if attempt.why == "lost":
            self._send(messages.AttemptsEnded([attempt.key]))
        else:
            self._ended.append(attempt.finish(outcome))
        self._nudge.set()

    # The supervisor, and the zygote

    async def _obey(self, reader: asyncio.StreamReader) -> None:
        """Do what the supervisor says. When it is gone, so are we, and the zygote kills the jobs.

        Without a zygote there is no process of ours to end: supervisor and executor live and die together.
        """
        while (message := await read(reader, _decode)) is not None:
            self._handle(message)
            self._nudge.set()
        if self._zygote:
            os._exit(1)

    def _handle(self, message: messages.FromSupervisor) -> None:
        match message:
            case messages.Stop(seconds):
                self._stop(seconds)
            case messages.AllowClaims(allowed):
                self._may_claim, self._is_held = allowed, not allowed
                self._claiming.wake()
            case messages.Ping():
                self._send(messages.Pong())
            case messages.Retire():
                self._retire()
            case messages.LeaveIfIdle():
                self._leave()
            case messages.ClaimNow():
                self._look()
            case messages.ServeQueues(weights):
                self._claiming.serve(weights)
            case messages.Grant(jobs):
                self._allowance.grant(jobs)
            case messages.PredecessorLoad(processes, inprocess):
                self._elsewhere = Elsewhere(processes, inprocess)
            case messages.StackRequest(id, attempt, inbox):
                self._look_into(id, attempt, inbox)
            case messages.LeaseRenewed(id, attempt):
                self._note_renewed(id, attempt)
            case messages.Interrupt(id, attempt, reason):
                self._interrupt(id, attempt, reason)

    def _interrupt(self, id: str, attempt: int, why: str) -> None:
        if running := self._attempts.get((id, attempt)):
            log.info("%s: attempt %d is %s, stopping it", id, attempt, why)
            running.interrupt(why, LAPSING if why == "lapsing" else None)

    def _note_renewed(self, id: str, attempt: int) -> None:
        if running := self._attempts.get((id, attempt)):
            running.is_renewed = True

    def _look_into(self, id: str, attempt: int, inbox: str) -> None:
        """Say what a job does that has no process of its own."""
        running = self._attempts.get((id, attempt))
        self._send(messages.StackReply(inbox, running.look() if running else None))

    def _retire(self) -> None:
        """Claim no more, and end when all jobs have."""
        if not self._retiring:
            self._retiring = True
            self._runners.fork_no_more()
            unused = self._allowance.give_back(self._count() + (self._claiming.asked_for or 0))
            self._send(messages.Retiring(unused))

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
            self._send(messages.Leaving())
            self._retire()

    def _stop(self, seconds: float) -> None:
        self._stopping = True
        self._runners.fork_no_more()
        for attempt in list(self._attempts.values()):
            attempt.stop(WORKER)
        asyncio.get_running_loop().call_later(seconds, self._stop_now)

    def _stop_now(self) -> None:
        for attempt in list(self._attempts.values()):
            attempt.interrupt("stopped")

    async def _watch_zygote(self, processes: Processes | None) -> None:
        if processes:
            await processes.gone.wait()
            log.error("%s: the zygote died, and its jobs with it", self._name)
            os._exit(1)

    def _send(self, message: messages.FromExecutor) -> None:
        """Send a message to the supervisor, together with others of this turn of the loop."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._unsent.append(messages.pack(message))

    def _send_all(self) -> None:
        if self._unsent:
            self._writer.write(b"".join(self._unsent))
            self._unsent.clear()
