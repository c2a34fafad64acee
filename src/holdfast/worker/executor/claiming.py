"""What an executor asks of the store: it finishes jobs and claims others in one call, and waits for work when idle."""

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
from holdfast.worker.queue_order import Rotation, Turn
from holdfast.worker.queue_patterns import Patterns
from holdfast.worker.settings import Start

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")

BLOCK = constants.MAX_IDLE_WAIT / 1000  # seconds that an idle executor waits for a wake-up in one call
LATE, LATE_PART = 10.0, 8000  # seconds, and milliseconds of a lease for each: a reply later than that is not trusted
NOTHING = FinishReply([], ClaimReply(0, b"", []))
NOTHING_RENEWED = RenewReply(b"", 0, [], [], [])
FIRST_PAUSE = 0.05  # seconds after a wait for wake-ups that failed: another server may have taken the place
LAST_LOOK = 1.0  # seconds for it: whatever is left is handed back by the supervisor
NO_QUEUES = ClaimReply(constants.MAX_IDLE_WAIT, b"", [])  # what a claim of no queues would bring


class Waiting(NamedTuple):
    """A claim that waits in the store."""

    turn: Turn
    command: Command[FinishReply]


class Claiming:
    """The calls of one executor.

    `is_ending` says whether it needs no more jobs, `may_wait` whether one may be claimed at any time; `on_wake` hears
    of each wake-up, and `on_claim` of what a claim has brought that waited in the store.
    """

    def __init__(
        self,
        store: AsyncStore,
        start: Start,
        *,
        is_ending: Callable[[], bool],
        may_wait: Callable[[], bool],
        on_wake: Callable[[], None],
        on_claim: Callable[[ClaimReply], None],
    ) -> None:
        self._store = store
        self._executor = start.name
        self._lease = start.settings.lease
        # Which queues match a pattern is known to the supervisor, and is told by it.
        self._queues = Rotation(start.pool.order, {} if Patterns(start.pool.queues).wildcards else start.pool.queues)
        self._is_ending = is_ending
        self._may_wait = may_wait
        self._on_wake = on_wake
        self._on_claim = on_claim
        self._is_idle = False  # the last claim found nothing
        self._blocks = asyncio.Event()  # and nothing has woken us since
        self._wake_key = b""
        self._woken = False  # since the last claim was sent
        self._at = 0.0  # at the latest, when idle
        self._counter = 0  # of the last claim, but for the one that waits
        self._pipeline = BlockingPipeline()
        self._waiting: Waiting | None = None
        self._sent_at: float | None = None  # when the next number was first sent, by a claim that waits or did
        self.asked_for: int | None = None  # jobs, by the call that is on its way; until its caller has them
        self.asked_at = 0.0  # by the last one: nothing that it brings was claimed before

    @property
    def wait(self) -> float:
        """Seconds until the next claim, if nothing happens before."""
        return 0.0 if self._woken else max(0.0, self._at - time.monotonic())

    @property
    def is_woken(self) -> bool:
        """Whether there may be work that no claim has looked for."""
        return self._woken

    def wake(self) -> None:
        """There may be work: claim at once."""
        self._woken = True

    def serve(self, queues: dict[str, int]) -> None:
        """Claim of these queues from now on, and at once."""
        self._queues.serve(queues)
        self._woken = True

    def call(self, items: list[Finish], room: int) -> Coroutine[Any, Any, FinishReply]:
        """Finish some jobs, and claim up to so many others. What is said to the store is settled at once."""
        self.asked_at, self.asked_for = boot_time(), room
        if not room or not self._queues:
            return self._finish_only(items, room)
        self._waiting = None
        turn = self._queues.turn(room)
        request = self._request(turn, room)
        self._use_number()
        return self._finish_and_claim(items, turn, request)

    async def _finish_and_claim(self, items: list[Finish], turn: Turn, request: dict[str, Any]) -> FinishReply:
        finished = await self._send(items, request)
        return finished._replace(claim=await self._take(turn, finished.claim))

    async def _take(self, turn: Turn, claim: ClaimReply) -> ClaimReply:
        """What is ours of a claim's reply."""
        self._queues.took(turn, [job.queue for job in claim.jobs])
        return self._remember(await self._checked(claim))

    async def _finish_only(self, items: list[Finish], room: int) -> FinishReply:
        """Finish some jobs; if there is room, there is no queue to claim of."""
        if room:
            self._woken = False
            self._at = time.monotonic() + BLOCK
        finished = await self._send(items, None) if items else NOTHING
        return finished._replace(claim=NO_QUEUES)

    async def _checked(self, claim: ClaimReply) -> ClaimReply:
        """Of a reply that comes late, as after the machine slept, leave out what may be others' by now."""
        in_time = min([LATE, *(job.lease / LATE_PART for job in claim.jobs)])
        is_trusted = not claim.jobs or boot_time() - self.asked_at <= in_time
        return claim if is_trusted else await self._still_ours(claim)

    async def _send(self, items: list[Finish], request: dict[str, Any] | None) -> FinishReply:
        """Finish and claim, until the store answers. Repeated as it was, so that a lost reply loses nothing."""
        command = commands.finish(self._executor, items, request=request)
        return await self._insist(command, otherwise=None if items else NOTHING)

    async def _insist(self, command: Command[T], *, otherwise: T | None = None) -> T:
        """Run a command until the store answers; or until we are to end, if there is something to return otherwise."""
        pause, said = 0.1, ""
        while True:
            try:
                return await self._store.run(command)
            except errors.Invalid:
                raise  # it would be refused again
            except errors.HoldfastError as error:
                is_known = isinstance(error, errors.StoreUnavailable) or str(error) == said  # by the supervisor's log
                log.log(logging.DEBUG if is_known else logging.ERROR, "%s", error)
                said = str(error)
                if otherwise is not None and self._is_ending():
                    return otherwise
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311, only spreads load
                pause = min(1.0, pause * 2)

    async def _still_ours(self, claim: ClaimReply) -> ClaimReply:
        """Renew what was claimed, and keep what could be."""
        self.asked_at = boot_time()
        held = [Lease(self._executor, job.id, job.attempt) for job in claim.jobs]
        renewed = await self._insist(self._renewal(held))
        return claim._replace(
            jobs=[job for job, lease in zip(claim.jobs, held, strict=True) if lease not in renewed.lost]
        )

    def _renewal(self, held: list[Lease]) -> Command[RenewReply]:
        return commands.renew(self._executor.rpartition(".")[0], held, executors=[self._executor])

    def _request(self, turn: Turn, room: int) -> dict[str, Any]:
        self._woken = False
        return commands.claim_args(
            turn.queues,
            shares=turn.shares,
            counter=self._counter + 1,
            limit=room,
            lease=self._lease,
            pid=os.getpid(),
            idle=self._is_idle,
        )

    def _remember(self, claim: ClaimReply) -> ClaimReply:
        is_half_way = not claim.jobs and self._queues.is_half_way
        self._is_idle = not claim.jobs and not is_half_way
        if self._is_idle:
            self._at = time.monotonic() + claim.wait / 1000 * random.uniform(1, 1.1)  # noqa: S311, as above
            self._wake_key = claim.wake_key
            self._blocks.set()
        else:
            self._at = 0.0
            self._blocks.clear()
        return claim._replace(wait=constants.MIN_IDLE_WAIT) if is_half_way else claim

    async def await_wakes(self) -> None:
        """While idle, block on this executor's own key until somebody adds work.

        Whether it is still idle then is said by the next claim. If there is none, others may have to be woken.
        """
        pause = FIRST_PAUSE
        while await self._blocks.wait():
            pipeline = self._pipeline = BlockingPipeline()
            try:
                key = self._wake_key
                reply = await self._store.block(
                    "BLPOP", key, BLOCK, seconds=BLOCK, pipeline=pipeline, meanwhile=self.wait_in_store
                )
                if self._waiting:
                    await self._hear(self._waiting, reply)
                elif reply:
                    self._rouse()
                pause = FIRST_PAUSE
            except errors.HoldfastError as error:
                if pipeline.is_used:  # perhaps it was carried out: the next claim has its number, or had
                    self._waiting = None
                    self._rouse()
                if not isinstance(error, errors.Invalid):
                    await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311, as above
                    pause = min(1.0, 2 * pause)

    def _rouse(self) -> None:
        if not self._is_ending():
            self._blocks.clear()
        self._on_wake()

    def wait_in_store(self) -> None:
        """If nothing runs here, have a claim wait in the store, behind the call that blocks: a wake-up brings a job.

        Any other claim that is sent meanwhile has the same number. So only the first of them is carried out, and this
        one is no more than a wake-up: what it says is said to the other.
        """
        if self._waiting or not self._may_wait() or not self._is_idle or self._woken or not self._queues.is_whole:
            return
        turn = self._queues.turn(1)
        command = commands.finish(self._executor, [], request=self._request(turn, 1))
        if self._store.send_pipelined(self._pipeline, command):
            self._waiting = Waiting(turn, command)
            self._sent_at = self._sent_at or boot_time()

    async def was_carried_out(self) -> bool:
        """Whether a claim that waited has brought something that nobody has heard of. None may wait any more.

        If it was, the next call has its number, and gets that.
        """
        if self._sent_at is None:
            return False
        try:
            async with asyncio.timeout(LAST_LOOK):
                renewed = await self._insist(self._renewal([]), otherwise=NOTHING_RENEWED)
        except TimeoutError:
            return False
        return bool(renewed.unnamed)

    def _use_number(self) -> None:
        """The next number is that of a call, or was: what it brings may have been claimed when that was first sent."""
        self._counter += 1
        self.asked_at, self._sent_at = self._sent_at or boot_time(), None

    async def _hear(self, waiting: Waiting, reply: Any) -> None:
        """The claim that waited in the store has been carried out."""
        if self._is_ending():  # what it brought is handed back by the supervisor
            return
        self._waiting = None
        self.asked_for = 1
        self._use_number()
        try:
            claim = await self._take(waiting.turn, waiting.command.read(reply).claim)
        except BaseException:
            self.asked_for = None
            raise
        self._on_claim(claim)
