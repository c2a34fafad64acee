"""An executor: the process of a worker that imports the app, claims jobs, runs them, and finishes them.

    claim ──▶ attempt ──▶ finish, and claim in the same call

The supervisor renews the leases, so that user code may hold the GIL for as long as it needs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
from pathlib import Path

from holdfast.constants import MIN_IDLE_WAIT
from holdfast.job.options import RunOptions
from holdfast.job.outcome import Release
from holdfast.store import AsyncStore
from holdfast.store.commands import ClaimedJob, ClaimReply, Finish
from holdfast.worker import messages
from holdfast.worker.app import App
from holdfast.worker.attempt import GRACE, WORKER, Attempt
from holdfast.worker.event_loop import cancel_all
from holdfast.worker.executor.active_jobs import ActiveJobs
from holdfast.worker.executor.claiming import Claiming
from holdfast.worker.executor.job_log import MAX_LINES, JobLog
from holdfast.worker.executor.quota import Quota
from holdfast.worker.executor.supervisor_link import SupervisorLink
from holdfast.worker.lease_clock import LeaseClock
from holdfast.worker.runners.programs import known_tasks
from holdfast.worker.runners.run_limits import LAPSING, max_silence
from holdfast.worker.runners.selection import NO_LOAD, Runners
from holdfast.worker.runners.zygote import Zygote
from holdfast.worker.runners.zygote_client import ZygoteClient
from holdfast.worker.settings import ExecutorStart

log = logging.getLogger("holdfast.worker")

MAX_CLAIM = 100  # jobs in one claim
CLOCK_CHECK_INTERVAL = 0.05  # seconds between checks of a lease clock that stands still
INTERRUPTS = {
    "cancelled": "was cancelled",
    "lost": "has lost its lease",
    "lapsing": "could not renew its lease",
}


class Executor:
    """Runs jobs until it is stopped, or replaced."""

    def __init__(
        self, app: App, start: ExecutorStart, *, control: socket.socket, zygote: Zygote | None, lease_clock: LeaseClock
    ) -> None:
        self._name = start.name
        self._settings = start.settings
        self._pool = start.pool
        self._tasks = known_tasks(app, app.tasks, allow_exec=start.settings.allow_exec)
        self._store = AsyncStore(app.address)
        self._lease_clock = lease_clock
        self._zygote = zygote
        self._wake = asyncio.Event()  # there may be something to do in the next turn
        self._supervisor = SupervisorLink(control)
        self._claiming = Claiming(
            self._store,
            start,
            revision=app.revision,
            is_ending=self._is_ending,
            may_pipeline=self._may_pipeline_claim,
            on_wake=self._claim_now,
            on_claim=self._take_claim,
        )
        self._max_claim = min(MAX_CLAIM, -(-start.pool.concurrency // 2))
        self._quota = Quota(start.pool)
        self._predecessors = NO_LOAD
        self._job_log = JobLog(self._supervisor.send, max(1, MAX_LINES // start.settings.executors))
        self._directory = Path(start.settings.directory) / start.name.replace("/", "-")
        self._claimed: list[ClaimedJob] = []  # not started yet
        self._claimed_at = 0.0  # when their claim was sent
        self._jobs = ActiveJobs(
            start.name,
            self._directory,
            store=self._store,
            supervisor=self._supervisor,
            clock=lease_clock,
            quota=self._quota,
            job_log=self._job_log,
            captures_output=zygote is not None,
            in_directory=start.pool.in_directory,
            on_change=self._wake.set,
        )
        self._may_claim = False  # not before AllowClaims
        self._claims_forbidden = False  # by the last AllowClaims
        self._retiring = False  # claims no more; running jobs have all the time that they need
        self._stopping = False  # claims no more; running jobs have until a deadline

    async def run(self) -> None:
        await self._supervisor.open()
        self._runners = self._jobs.runners = Runners(self._tasks, self._pool, self._zygote, on_abandoned=self._abandon)
        try:
            async with asyncio.TaskGroup() as self._group:
                self._jobs.create_task = self._group.create_task
                waking = self._group.create_task(self._claiming.await_wakes())
                others = self._follow_supervisor(), self._watch_zygote(self._runners.zygote)
                duties = [waking, *map(self._group.create_task, others)]
                while not self._is_done() or await self._runs_last_claim(waking):
                    await self._turn()
                await cancel_all(duties)
            self._job_log.report()
            await self._supervisor.drain()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._runners.close()
            if not self._zygote:  # the process lives on, so the supervisor sees no other end
                self._supervisor.close()
            await self._store.close()

    def _is_done(self) -> bool:
        return self._is_ending() and not self._has_work()

    async def _runs_last_claim(self, waking: asyncio.Task[None]) -> bool:
        """Return whether the pipelined claim took a job just before retirement; it then runs here.

        If stopping, the supervisor requeues it: it was not reported.
        """
        await cancel_all([waking])
        if self._stopping or not await self._claiming.pipelined_claim_took_jobs():
            return False
        claim = (await self._claiming.call([], 1)).claim
        self._take_claim(claim)
        return bool(claim.jobs)

    def _is_ending(self) -> bool:
        return self._stopping or self._retiring

    def _has_work(self) -> bool:
        return bool(self._jobs or self._claimed or self._jobs.finishes)

    # Claiming and finishing

    async def _turn(self) -> None:
        """Finish ended jobs and claim others in one call, and start claimed jobs meanwhile; or sleep."""
        self._wake.clear()
        if not self._runners.need_no_process(self._claimed):
            self._start_claimed()  # before that, the room that is left is not known
        items = self._jobs.finishes.take()
        room = self._room() if items or not self._claiming.wait else 0
        if not items and room == 0:
            self._start_claimed()
            await self._sleep()
            return
        call = self._group.create_task(self._claiming.call(items, room))
        await asyncio.sleep(0)  # it is sent
        self._start_claimed()
        finished = await call
        self._handle_answers(items, finished.answers)
        if room:
            self._accept(finished.claim)
        self._claiming.requested = None
        if room > len(finished.claim.jobs) > 0:
            self._start_claimed()
            await asyncio.sleep(0)  # the queues are empty: let these begin, and perhaps end, before the next claim

    async def _sleep(self) -> None:
        self._claiming.pipeline_claim()
        timer = None
        if self._lease_clock.has_stopped:
            timer = asyncio.get_running_loop().call_later(CLOCK_CHECK_INTERVAL, self._wake.set)
        elif self._room():
            timer = asyncio.get_running_loop().call_later(self._claiming.wait, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer:
                timer.cancel()

    def _may_pipeline_claim(self) -> bool:
        """Return whether a job claimed at any moment could start at once.

        That is: no other job runs here, this is not a program's event loop, and the worker has no limit of jobs.
        """
        is_free = self._zygote is not None and not self._quota.is_granted
        return is_free and not self._has_work() and self._room() > 0

    def _room(self) -> int:
        """Return how many jobs may be claimed now: at most half of the slots, so that one half runs meanwhile.

        Nothing is claimed while the supervisor renews no leases, as after the machine was suspended.
        """
        if not self._may_claim or self._is_ending() or self._lease_clock.has_stopped:
            return 0
        if self._claiming.requested is not None:
            return 0
        count = self._count()
        return min(self._runners.room(count, self._predecessors), self._quota.left(count), self._max_claim)

    def _count(self) -> int:
        """Return the number of jobs here, running or not started yet."""
        return len(self._jobs) + len(self._claimed)

    def _handle_answers(self, items: list[Finish], answers: list[str]) -> None:
        if ended := self._jobs.finishes.handle_answers(items, answers):
            self._supervisor.send(messages.AttemptsEnded(ended))
        if failed := self._job_log.take_failed(items, answers):
            self._group.create_task(self._job_log.log_what_follows(self._store, failed))

    def _accept(self, claim: ClaimReply) -> None:
        self._report_claim(claim)
        self._claimed, self._claimed_at = claim.jobs, self._claiming.requested_at
        if self._quota.is_used_up(self._count()):
            self._retire()
        elif self._settings.burst and claim.wait > MIN_IDLE_WAIT and not self._has_work():
            self._supervisor.send(messages.Idle())

    def _take_claim(self, claim: ClaimReply) -> None:
        self._accept(claim)
        self._claiming.requested = None
        self._start_claimed()
        self._wake.set()

    def _start_claimed(self) -> None:
        jobs, self._claimed = self._claimed, []
        for job in jobs:
            if running := self._jobs.get(job.id, job.attempt):
                running.claimed_again()
            elif self._stopping or self._claims_forbidden:  # since the claim was sent
                reason = "stopping" if self._stopping else "the server evicts jobs"
                self._jobs.finishes.add(
                    Finish(job.id, job.attempt, Release(reason), created=job.created, unstarted=True)
                )
                self._wake.set()
            else:
                self._jobs.begin(job, self._claimed_at)

    def _report_claim(self, claim: ClaimReply) -> None:
        """Report claimed jobs to the supervisor before any starts.

        From then on it renews their leases, even if a job holds the GIL.
        """
        if not claim.jobs:
            return
        jobs = [messages.LeasedJob(job.id, job.attempt, job.lease, max_silence(job), job.task) for job in claim.jobs]
        self._supervisor.send(messages.JobsClaimed(jobs))
        requested_at = self._claiming.requested_at
        for job in claim.jobs:
            if job.run and RunOptions.decode(job.run).exclusive:
                exclusive = messages.ExclusiveClaimed(self._name, job.id, job.attempt, job.lease, requested_at)
                self._supervisor.send(exclusive)
        self._supervisor.flush()

    def _claim_now(self) -> None:
        """There may be work: claim at once, or have the successor claim."""
        if self._is_ending():
            self._supervisor.send(messages.Woken())
        self._claiming.wake()
        self._wake.set()

    # Messages of the supervisor, and the zygote

    async def _follow_supervisor(self) -> None:
        """Handle messages until the supervisor has died. Then this process exits, and the zygote kills the jobs.

        Without a zygote, supervisor and executor share a process, and end together.
        """
        async for message in self._supervisor.receive():
            self._handle(message)
            self._wake.set()
        if self._zygote:
            os._exit(1)

    def _handle(self, message: messages.FromSupervisor) -> None:
        match message:
            case messages.Stop(seconds):
                self._stop(seconds)
            case messages.AllowClaims(allowed):
                self._may_claim, self._claims_forbidden = allowed, not allowed
                self._claiming.wake()
            case messages.Ping():
                self._supervisor.send(messages.Pong())
            case messages.Retire():
                self._retire()
            case messages.LeaveIfIdle():
                self._leave_if_idle()
            case messages.ClaimNow():
                self._claim_now()
            case messages.Grant(jobs):
                self._quota.grant(jobs)
            case messages.PredecessorLoad():
                self._predecessors = message
            case messages.StackRequest(id, attempt, inbox):
                self._reply_stack(id, attempt, inbox)
            case messages.LeaseRenewed(id, attempt):
                self._note_renewed(id, attempt)
            case messages.Interrupt(id, attempt, reason):
                self._interrupt(id, attempt, reason)

    def _reply_stack(self, id: str, attempt: int, inbox: str) -> None:
        running = self._jobs.get(id, attempt)
        self._supervisor.send(messages.StackReply(inbox, running.read_stack() if running else None))

    def _note_renewed(self, id: str, attempt: int) -> None:
        if running := self._jobs.get(id, attempt):
            running.is_renewed = True

    def _interrupt(self, id: str, attempt: int, reason: str) -> None:
        if running := self._jobs.get(id, attempt):
            log.info("%s: attempt %d %s, stopping it", id, attempt, INTERRUPTS[reason])
            running.interrupt(reason, LAPSING if reason == "lapsing" else None)

    def _retire(self) -> None:
        """Claim no more, and end when all jobs have ended."""
        if not self._retiring:
            self._retiring = True
            self._runners.stop_forking_ahead()
            unused = self._quota.return_unused(self._count() + (self._claiming.requested or 0))
            self._supervisor.send(messages.Retiring(unused))

    def _abandon(self, attempt: Attempt) -> None:
        """A job did not stop when asked to: it ends with this process, which exits when the other jobs have ended.

        Until then another executor claims in its place.
        """
        log.warning(
            "%s: attempt %d has not stopped after %g s and is abandoned; executor %s, which it occupies, is replaced",
            *attempt.key,
            GRACE,
            self._name,
        )
        self._retire()

    def _leave_if_idle(self) -> None:
        if not self._has_work() and self._claiming.requested is None and not self._claiming.is_woken:
            self._supervisor.send(messages.Leaving())
            self._retire()

    def _stop(self, seconds: float) -> None:
        self._stopping = True
        self._runners.stop_forking_ahead()
        for attempt in self._jobs:
            attempt.stop(WORKER)
        asyncio.get_running_loop().call_later(seconds, self._interrupt_all)

    def _interrupt_all(self) -> None:
        for attempt in self._jobs:
            attempt.interrupt("stopped")

    async def _watch_zygote(self, zygote: ZygoteClient | None) -> None:
        if zygote:
            await zygote.died.wait()
            log.error("%s: the zygote died, and its jobs with it", self._name)
            os._exit(1)
