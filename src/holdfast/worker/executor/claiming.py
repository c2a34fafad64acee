"""The calls of an executor to the store: it finishes jobs and claims others in one call, and waits for work."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from holdfast import constants, errors
from holdfast.store import AsyncStore, Command, commands
from holdfast.store.commands import ClaimReply, Finish, FinishReply, Lease, RenewReply
from holdfast.store.connection import BlockingPipeline
from holdfast.worker.linux import boot_time
from holdfast.worker.queue_order import ClaimPlan, new_order
from holdfast.worker.retrying_store import retry_until_answered
from holdfast.worker.settings import ExecutorStart

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")

BLOCK_TIMEOUT = constants.MAX_IDLE_WAIT / 1000  # seconds that an idle executor waits for a wake-up in one call
TRUSTED_CLAIM_TIME = 10.0  # seconds; if a claim took longer, its leases are verified before its jobs start
TRUSTED_LEASE_FRACTION = 1 / 8  # a claim that took more of its shortest lease is verified too
EMPTY_REPLY = FinishReply([], ClaimReply(0, b"", []))
EMPTY_RENEWAL = RenewReply(b"", 0, [], [], [])
FIRST_WAKE_RETRY_DELAY = 0.05  # seconds after a wait for wake-ups that failed: there may be a new server
FIRST_RETRY_DELAY, MAX_RETRY_DELAY = 0.1, 1.0  # seconds
LAST_CLAIM_TIMEOUT = 1.0  # seconds; after that, the supervisor requeues the job
NO_CLAIM = ClaimReply(constants.MAX_IDLE_WAIT, b"", [])


class PipelinedClaim(NamedTuple):
    """A claim that was sent behind a blocking call, and waits in the store."""

    plan: ClaimPlan
    command: Command[FinishReply]


class Claiming:
    """The claims of one executor.

    `revision` is that of the app. `is_ending` returns whether it claims no more, `may_pipeline` whether a claim may
    wait in the store. `on_wake` is called at each wake-up, and `on_claim` with the reply to a claim that waited in the
    store.
    """

    def __init__(
        self,
        store: AsyncStore,
        start: ExecutorStart,
        *,
        revision: int,
        is_ending: Callable[[], bool],
        may_pipeline: Callable[[], bool],
        on_wake: Callable[[], None],
        on_claim: Callable[[ClaimReply], None],
    ) -> None:
        self._store = store
        self._executor = start.name
        self._revision = revision
        self._lease = start.settings.lease
        self._queues = new_order(start.pool.order, start.pool.queues)
        self._is_ending = is_ending
        self._may_pipeline = may_pipeline
        self._on_wake = on_wake
        self._on_claim = on_claim
        self._is_idle = False  # the last claim found nothing
        self._may_block = asyncio.Event()  # idle, and not woken since
        self._wake_key = b""
        self._woken = False  # since the last claim was sent
        self._claim_at = 0.0  # when to claim at the latest, while idle
        self._counter = 0  # of the last claim, except one that waits in the store
        self._pipeline = BlockingPipeline()
        self._pipelined: PipelinedClaim | None = None
        self._sent_at: float | None = None  # when a claim with the next counter was first sent
        self.requested: int | None = None  # number of jobs requested by the call in flight, until its caller has them
        self.requested_at = 0.0  # when the last claim was sent; its leases cannot have begun earlier

    @property
    def wait(self) -> float:
        """Seconds until the next claim, if nothing happens before."""
        return 0.0 if self._woken else max(0.0, self._claim_at - time.monotonic())

    @property
    def is_woken(self) -> bool:
        """Whether there may be work that no claim has asked for."""
        return self._woken

    def wake(self) -> None:
        """Claim at once: there may be work."""
        self._woken = True

    def call(self, items: list[Finish], room: int) -> Coroutine[Any, Any, FinishReply]:
        """Finish some jobs, and claim up to `room` others. The request is composed now, not when it is awaited."""
        self.requested_at, self.requested = boot_time(), room
        if not room:
            return self._finish_only(items)
        self._pipelined = None
        plan = self._queues.plan(room)
        request = self._request(plan, room)
        self._use_counter()
        return self._finish_and_claim(items, plan, request)

    async def _finish_and_claim(self, items: list[Finish], plan: ClaimPlan, request: dict[str, Any]) -> FinishReply:
        finished = await self._send(items, request)
        return finished._replace(claim=await self._take(plan, finished.claim))

    async def _take(self, plan: ClaimPlan, claim: ClaimReply) -> ClaimReply:
        """Record the reply to a claim. Return it without the jobs whose leases are lost already."""
        self._queues.record(plan, [job.queue for job in claim.jobs])
        return self._remember(await self._verify_if_late(claim))

    async def _finish_only(self, items: list[Finish]) -> FinishReply:
        """Finish some jobs, and claim none."""
        finished = await self._send(items, None) if items else EMPTY_REPLY
        return finished._replace(claim=NO_CLAIM)

    async def _verify_if_late(self, claim: ClaimReply) -> ClaimReply:
        """Drop jobs whose leases have expired, if the reply took long: this machine may have been suspended."""
        in_time = min([TRUSTED_CLAIM_TIME, *(job.lease / 1000 * TRUSTED_LEASE_FRACTION for job in claim.jobs)])
        is_trusted = not claim.jobs or boot_time() - self.requested_at <= in_time
        return claim if is_trusted else await self._verify_leases(claim)

    async def _send(self, items: list[Finish], request: dict[str, Any] | None) -> FinishReply:
        """Finish and claim. The same call is repeated until the store answers, so that a lost reply loses nothing."""
        command = commands.finish(self._executor, items, request=request, revision=self._revision)
        return await self._run_until_answered(command, fallback=None if items else EMPTY_REPLY)

    async def _run_until_answered(self, command: Command[T], *, fallback: T | None = None) -> T:
        """Repeat a command until the store answers. An executor that is ending gives up for a `fallback`."""
        logged = ""

        def log_error(error: Exception) -> None:
            nonlocal logged
            is_known = isinstance(error, errors.StoreUnavailable) or str(error) == logged  # the supervisor logs outages
            log.log(logging.DEBUG if is_known else logging.ERROR, "%s", error)
            logged = str(error)

        def gives_up(error: Exception) -> bool:
            is_refused = isinstance(error, errors.Invalid)  # it would be refused again
            return is_refused or (fallback is not None and self._is_ending())

        try:
            return await retry_until_answered(
                lambda: self._store.run(command),
                retry_on=(errors.HoldfastError,),
                give_up=gives_up,
                on_error=log_error,
                pause=FIRST_RETRY_DELAY,
                max_pause=MAX_RETRY_DELAY,
            )
        except errors.Invalid:
            raise
        except errors.HoldfastError:
            if fallback is None:
                raise
            return fallback

    async def _verify_leases(self, claim: ClaimReply) -> ClaimReply:
        """Renew the claimed jobs, and return those whose leases still exist."""
        self.requested_at = boot_time()
        held = [Lease(self._executor, job.id, job.attempt) for job in claim.jobs]
        renewed = await self._run_until_answered(self._renewal(held))
        return claim._replace(
            jobs=[job for job, lease in zip(claim.jobs, held, strict=True) if lease not in renewed.lost]
        )

    def _renewal(self, held: list[Lease]) -> Command[RenewReply]:
        return commands.renew(self._executor.rpartition(".")[0], held, executors=[self._executor])

    def _request(self, plan: ClaimPlan, room: int) -> dict[str, Any]:
        self._woken = False
        return commands.claim_args(
            plan.queues,
            pool=plan.pool,
            shares=plan.shares,
            weights=plan.weights,
            counter=self._counter + 1,
            limit=room,
            lease=self._lease,
            pid=os.getpid(),
            idle=self._is_idle,
        )

    def _remember(self, claim: ClaimReply) -> ClaimReply:
        self._is_idle = not claim.jobs
        if self._is_idle:
            self._claim_at = time.monotonic() + claim.wait / 1000 * random.uniform(1, 1.1)  # noqa: S311, as above
            self._wake_key = claim.wake_key
            self._may_block.set()
        else:
            self._claim_at = 0.0
            self._may_block.clear()
        return claim

    async def await_wakes(self) -> None:
        """While idle, block on this executor's wake key until a client adds work.

        The next claim decides whether it stays idle. If it claims no more, its successor has to be woken.
        """
        pause = FIRST_WAKE_RETRY_DELAY
        while await self._may_block.wait():
            pipeline = self._pipeline = BlockingPipeline()
            try:
                key = self._wake_key
                reply = await self._store.block(
                    "BLPOP", key, BLOCK_TIMEOUT, seconds=BLOCK_TIMEOUT, pipeline=pipeline, on_sent=self.pipeline_claim
                )
                if self._pipelined:
                    await self._take_pipelined(self._pipelined, reply)
                elif reply:
                    self._wake_up()
                pause = FIRST_WAKE_RETRY_DELAY
            except errors.HoldfastError as error:
                if pipeline.is_used:  # it may have been executed; the next claim repeats its counter
                    self._pipelined = None
                    self._wake_up()
                if not isinstance(error, errors.Invalid):
                    await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311, as above
                    pause = min(1.0, 2 * pause)

    def _wake_up(self) -> None:
        if not self._is_ending():
            self._may_block.clear()
        self._on_wake()

    def pipeline_claim(self) -> None:
        """If nothing runs here, pipeline a claim behind the blocking call, so that a wake-up brings a job at once.

        Other claims sent meanwhile use the same counter: the store executes the first and repeats its reply to the
        others.
        """
        if self._pipelined or not self._may_pipeline() or not self._is_idle or self._woken:
            return
        plan = self._queues.plan(1)
        command = commands.finish(self._executor, [], request=self._request(plan, 1))
        if self._store.send_pipelined(self._pipeline, command):
            self._pipelined = PipelinedClaim(plan, command)
            self._sent_at = self._sent_at or boot_time()

    async def pipelined_claim_took_jobs(self) -> bool:
        """Return whether a pipelined claim took jobs although its reply was never read. No claim waits any more.

        If so, the next call reuses its counter and gets them.
        """
        if self._sent_at is None:
            return False
        try:
            async with asyncio.timeout(LAST_CLAIM_TIMEOUT):
                renewed = await self._run_until_answered(self._renewal([]), fallback=EMPTY_RENEWAL)
        except TimeoutError:
            return False
        return bool(renewed.unreported)

    def _use_counter(self) -> None:
        """Use up the next counter. Its jobs may have been claimed since a claim with this counter was first sent."""
        self._counter += 1
        self.requested_at, self._sent_at = self._sent_at or boot_time(), None

    async def _take_pipelined(self, pipelined: PipelinedClaim, reply: Any) -> None:
        """Take the reply to the claim that waited in the store."""
        if self._is_ending():  # the supervisor requeues its jobs
            return
        self._pipelined = None
        self.requested = 1
        self._use_counter()
        try:
            claim = await self._take(pipelined.plan, pipelined.command.read(reply).claim)
        except BaseException:
            self.requested = None
            raise
        self._on_claim(claim)
