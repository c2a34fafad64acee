"""The claim of an idle executor that waits in the store: its jobs are delivered once, whatever else is claimed."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from holdfast import Holdfast
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.commands import ClaimedJob, ClaimReply, Lease
from holdfast.store.store import Address, AsyncStore, Store
from holdfast.worker import messages
from holdfast.worker.embedded import _ThisProcess
from holdfast.worker.executor.claiming import Claiming
from holdfast.worker.executor.executor import Executor
from holdfast.worker.lease_clock import LeaseClock
from holdfast.worker.linux import boot_time
from holdfast.worker.settings import ExecutorStart, Pool, WorkerSettings
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.transport import open_reader_and_writer
from tests.support.new_job import NewJob
from tests.support.workers import PATIENCE, Crew, until

EXECUTOR = "node/worker.1"
START = ExecutorStart(
    name=EXECUTOR, parent=1, settings=WorkerSettings(app="none"), pool=Pool(), control=-1, lease_clock=-1
)


class Idle:
    """An executor's calls, idle, with a claim of it in the store."""

    def __init__(self, address: Address) -> None:
        self.store = AsyncStore(address)
        self.is_ending = False
        self.claims: list[ClaimReply] = []
        self.wakes = 0
        self.heard = asyncio.Event()
        self.claiming = Claiming(
            self.store,
            START,
            revision=0,
            is_ending=lambda: self.is_ending,
            may_pipeline=lambda: True,
            on_wake=self._wake,
            on_claim=self._claim,
        )
        self._others = Store(address)

    def _wake(self) -> None:
        self.wakes += 1
        self.claiming.wake()
        self.heard.set()

    def _claim(self, claim: ClaimReply) -> None:
        self.claims.append(claim)
        self.heard.set()

    @property
    def brought(self) -> list[str]:
        return [job.id for claim in self.claims for job in claim.jobs]

    def enqueue(self) -> str:
        """By another process: what this one is told meanwhile waits to be read."""
        job = NewJob(id=new_id(), payload=b"[]", queue="default", task="app.nothing")
        self._others.run(commands.enqueue([job]))
        return job.id

    def others(self, *parts: Any) -> Any:
        return self._others.execute(*parts)

    async def claim(self, room: int = 5) -> list[str]:
        return [job.id for job in (await self.claiming.call([], room)).claim.jobs]

    async def hear(self) -> None:
        await self.heard.wait()
        self.heard.clear()

    async def until_it_waits(self) -> None:
        while self.claiming._pipelined is None:
            await asyncio.sleep(0)

    async def close(self) -> None:
        self._others.close()
        await self.store.close()


def idle(address: Address, show: Callable[[Idle], Awaitable[None]]) -> None:
    """Show something about an executor that has asked for work, and found none."""

    async def main() -> None:
        it = Idle(address)
        assert await it.claim() == []
        waiting = asyncio.create_task(it.claiming.await_wakes())
        try:
            async with asyncio.timeout(PATIENCE):
                await it.until_it_waits()
                await show(it)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await it.close()

    asyncio.run(main())


def test_a_wake_up_brings_the_job(address: Address) -> None:
    async def show(it: Idle) -> None:
        job = it.enqueue()
        await it.hear()

        assert (it.brought, it.wakes) == ([job], 0)
        assert await it.claim() == []
        later = it.enqueue()
        await it.hear()
        assert (it.brought, it.wakes) == ([job, later], 0)

    idle(address, show)


def test_a_waiting_claim_brings_one_job_and_leaves_the_others(address: Address) -> None:
    async def show(it: Idle) -> None:
        first, second = it.enqueue(), it.enqueue()
        await it.hear()

        assert it.brought == [first]
        assert await it.claim() == [second]

    idle(address, show)


def test_a_claim_that_is_sent_before_the_reply_is_read_gets_what_waited(address: Address) -> None:
    """The store has carried out the one that waited. The other has its number, so it is told the same."""

    async def show(it: Idle) -> None:
        sent_at = it.claiming._sent_at
        first = it.enqueue()
        second = it.enqueue()

        assert await it.claim() == [first]
        assert it.claiming.requested_at == sent_at, "when that job may have been claimed"
        await it.hear()
        assert (it.brought, it.wakes) == ([], 1)
        assert await it.claim() == [second]

    idle(address, show)


def test_a_claim_that_comes_first_leaves_nothing_to_the_one_that_waits(address: Address) -> None:
    async def show(it: Idle) -> None:
        assert await it.claim() == []
        first = it.enqueue()
        await it.hear()

        assert (it.brought, it.wakes) == ([], 1)
        assert await it.claim() == [first]

    idle(address, show)


def test_a_claim_that_waits_behind_two_others_is_refused_and_wakes(address: Address) -> None:
    async def show(it: Idle) -> None:
        assert await it.claim() == []
        assert await it.claim() == []
        first = it.enqueue()
        await it.hear()

        assert (it.brought, it.wakes) == ([], 1)
        assert await it.claim() == [first]
        assert await it.claim() == []
        await it.until_it_waits()
        second = it.enqueue()
        await it.hear()
        assert it.brought == [second]

    idle(address, show)


def test_a_lost_connection_loses_no_job(address: Address) -> None:
    """The claim was carried out, and nobody heard the reply."""

    async def show(it: Idle) -> None:
        first = it.enqueue()
        it.others("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await it.hear()

        assert await it.claim() + it.brought == [first]

    idle(address, show)


def test_a_claim_after_a_lost_connection_may_bring_what_was_claimed_before_it(address: Address) -> None:
    async def show(it: Idle) -> None:
        sent_at = it.claiming._sent_at
        it.others("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await it.hear()

        job = it.enqueue()
        assert await it.claim() == [job]
        assert it.claiming.requested_at == sent_at

    idle(address, show)


def test_a_command_that_cannot_block_does_not_make_claims_without_end(address: Address) -> None:
    async def show(it: Idle) -> None:
        key = it.claiming._wake_key
        it.enqueue()
        await it.hear()
        it.others("SET", key, "no list")
        assert await it.claim() == []
        await it.hear()

        assert it.wakes == 1
        assert not it.claiming._may_block.is_set()

    idle(address, show)


def test_a_reply_that_comes_late_is_renewed_before_it_is_trusted(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def show(it: Idle) -> None:
        monkeypatch.setattr("holdfast.worker.executor.claiming.TRUSTED_CLAIM_TIME", -1)
        job = it.enqueue()
        before = boot_time()
        await it.hear()
        assert it.brought == [job]
        assert it.claiming.requested_at >= before

        assert await it.claim() == []
        await it.until_it_waits()
        lost = it.enqueue()
        it._others.run(commands.requeue_orphaned(executor=EXECUTOR))
        await it.hear()
        assert lost not in it.brought

    idle(address, show)


def test_a_stopping_executor_learns_whether_its_waiting_claim_was_carried_out(address: Address) -> None:
    async def show(it: Idle) -> None:
        it.is_ending = True
        it.others("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await it.hear()
        assert not await it.claiming.pipelined_claim_took_jobs()

    async def show_late(it: Idle) -> None:
        job = it.enqueue()
        it.is_ending = True
        while it.claiming._pipeline.is_used:
            await asyncio.sleep(0)
        assert await it.claiming.pipelined_claim_took_jobs()
        assert await it.claim(1) == [job]
        assert not await it.claiming.pipelined_claim_took_jobs()

    idle(address, show)
    idle(address, show_late)


def test_a_stopping_executor_claims_nothing(address: Address) -> None:
    async def show(it: Idle) -> None:
        it.enqueue()
        it.is_ending = True
        while it.claiming._pipeline.is_used:
            await asyncio.sleep(0)

        assert (it.brought, it.wakes) == ([], 0)

    idle(address, show)


def test_a_job_that_arrives_at_a_stopping_executor_is_released_in_its_next_turn(address: Address) -> None:
    """Nothing else would wake it: it runs nothing, and claims no more."""
    ours, its = socket.socketpair()
    executor = Executor(Holdfast(address.url), START, control=its, zygote=None, lease_clock=LeaseClock())
    executor._claimed = [ClaimedJob("j", 1, "default", "t", "json", b"[]", b"", 0, 0, False)]
    executor._stopping = True

    executor._start_claimed()

    assert executor._wake.is_set()
    assert [(item.id, item.unstarted) for item in executor._jobs.finishes.take()] == [("j", True)]
    for end in (ours, its):
        end.close()


def test_an_embedded_worker_has_no_waiting_claim(address: Address) -> None:
    app = Holdfast(address.url, namespace=address.namespace)

    @app.task(name="nothing")
    def nothing() -> None:
        pass

    with redis.Redis.from_url(str(address.url), decode_responses=True) as client, app.worker(queues="default"):
        blocked = until(lambda: [each for each in client.client_list() if each["cmd"] == "blpop"])
        assert nothing.enqueue().result(timeout="30s") is None
        blocked = until(lambda: [each for each in client.client_list() if each["cmd"] == "blpop"])
        assert {int(each["qbuf"]) for each in blocked} == {0}


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_reported_claim_may_have_started_until_its_end_is_reported(is_ended: bool) -> None:
    async def hear() -> bool:
        ours, its = socket.socketpair()
        executor = ExecutorProcess(EXECUTOR, _ThisProcess(), *await open_reader_and_writer(ours))
        held = Lease(EXECUTOR, "j", 1)
        assert executor.may_have_started(held), "not all is heard"
        its.sendall(messages.pack(messages.JobsClaimed([messages.LeasedJob("j", 1, 30_000, 0, "task")])))
        if is_ended:
            its.sendall(messages.pack(messages.AttemptsEnded([("j", 1)])))
        its.close()
        async for message in executor.receive():
            executor.note(message)
        executor.close()
        return executor.may_have_started(held)

    assert asyncio.run(hear()) is not is_ended


@pytest.mark.parametrize("once", [False, True])
def test_an_unreported_claim_is_released_as_unstarted(crew: Crew, once: bool) -> None:
    worker = crew.start()
    with redis.Redis.from_url(crew.url, decode_responses=True) as client:
        [name] = until(lambda: client.zrange(f"hf:{{{crew.namespace}}}:idle:default", 0, -1))
    store = Store(Address.find(crew.url, namespace=crew.namespace))
    store.run(
        commands.enqueue([NewJob(id="j", payload=b"[]", queue="elsewhere", task="app.nothing", at_most_once=once)])
    )
    request = commands.claim_args(["elsewhere"], counter=10**6, limit=1, pid=os.getpid())
    assert [job.id for job in store.run(commands.claim(name, request)).jobs] == ["j"]

    assert worker.stop() == 0

    job = crew.app.get("j")
    assert (job.state, [attempt.outcome for attempt in job.attempts]) == ("waiting", ["released"])
    store.close()
