"""Jobs that a replica has, too, when `enqueue` returns; and what is said if it has not."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from holdfast import Holdfast, Invalid, NotReplicated
from holdfast.job.job import Job
from holdfast.task.task import BoundCall
from tests.support.failover import Pair, pair

Enqueue = Callable[[Holdfast, list[BoundCall[Any]]], list[Job[Any]]]


@pytest.fixture(scope="module")
def two() -> Iterator[Pair]:
    with pair() as made:
        yield made


@pytest.fixture
def jobs(two: Pair) -> Iterator[Holdfast]:
    app = Holdfast(two.url, namespace="t" + secrets.token_hex(6), defaults={"acknowledge": "replica"})
    app.task(name="add")(_add)
    yield app
    app.close()


def _add(x: int) -> int:
    return x


def _now(app: Holdfast, calls: list[BoundCall[Any]]) -> list[Job[Any]]:
    return app.enqueue_many(calls)


def _later(app: Holdfast, calls: list[BoundCall[Any]]) -> list[Job[Any]]:
    async def enqueue() -> list[Job[Any]]:
        try:
            return await app.aenqueue_many(calls)
        finally:
            await app.aclose()

    return asyncio.run(enqueue())


@pytest.fixture(params=[_now, _later], ids=["sync", "async"])
def enqueue(request: pytest.FixtureRequest) -> Enqueue:
    found: Enqueue = request.param
    return found


def calls(app: Holdfast, *ids: str, **options: Any) -> list[BoundCall[Any]]:
    return [app.tasks["add"].options(id=id, **options).bind(1) for id in ids]


@contextmanager
def silent(replica: redis.Redis) -> Iterator[None]:
    """Have a replica connected that reads nothing."""
    process = replica.info("server")["process_id"]
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def stored(two: Pair, app: Holdfast, id: str) -> bool:
    return bool(two.replica.client.exists(f"hf:{{{app.address.namespace}}}:j:{id}"))


def test_a_replica_has_the_jobs_when_enqueue_returns(two: Pair, jobs: Holdfast, enqueue: Enqueue) -> None:
    for number in range(20):
        enqueue(jobs, calls(jobs, f"a{number}", f"b{number}"))
        assert stored(two, jobs, f"a{number}")
        assert stored(two, jobs, f"b{number}")


def test_a_job_that_no_replica_has_is_stored_and_reported(two: Pair, jobs: Holdfast, enqueue: Enqueue) -> None:
    with silent(two.replica.client):
        with pytest.raises(
            NotReplicated, match=r"^job a: stored, but 0 of 1 replicas had it within 1.8 s; to wait again, enqueue it"
        ) as caught:
            enqueue(jobs, calls(jobs, "a"))
        assert caught.value.maybe_done
        assert jobs.get("a").state == "waiting"


def test_a_repeated_call_waits_for_the_job_that_exists(two: Pair, jobs: Holdfast, enqueue: Enqueue) -> None:
    """On a connection that has written nothing, WAIT would count the silent replica."""
    enqueue(jobs, calls(jobs, "a"))
    with silent(two.replica.client), pytest.raises(NotReplicated):
        enqueue(Holdfast(two.url, namespace=jobs.address.namespace), calls(jobs, "a"))
    [job] = enqueue(jobs, calls(jobs, "a"))
    assert not job.created


def test_the_message_has_the_id_with_which_the_call_is_repeated(two: Pair, jobs: Holdfast, enqueue: Enqueue) -> None:
    with silent(two.replica.client), pytest.raises(NotReplicated) as caught:
        enqueue(jobs, [jobs.tasks["add"].bind(1)])
    id = str(caught.value).partition(":")[0].removeprefix("job ")
    [job] = enqueue(jobs, calls(jobs, id))
    assert (job.id, job.created, jobs.count()) == (id, False, 1)


def test_calls_that_do_not_ask_for_it_do_not_wait(two: Pair, jobs: Holdfast, enqueue: Enqueue) -> None:
    with silent(two.replica.client):
        enqueue(jobs, calls(jobs, "a", acknowledge="primary"))


def test_the_outage_policy_does_not_store_such_a_job_again(two: Pair, jobs: Holdfast, enqueue: Enqueue) -> None:
    with silent(two.replica.client), pytest.raises(NotReplicated):
        enqueue(jobs, calls(jobs, "a", when_unreachable="outbox"))
    assert not jobs.outage_policy.outbox.has_entries


def test_a_transaction_cannot_wait_for_replicas(two: Pair, jobs: Holdfast) -> None:
    with redis.Redis.from_url(two.url) as client, pytest.raises(Invalid, match="call WAIT after its EXEC"):
        jobs.enqueue_with(client.pipeline(), calls(jobs, "a")[0])


def test_a_server_without_replicas_says_so(server_url: str, enqueue: Enqueue) -> None:
    app = Holdfast(server_url, namespace="t" + secrets.token_hex(6))
    app.task(name="add", acknowledge="replica")(_add)
    with pytest.raises(NotReplicated, match="0 of 1 replicas"):
        enqueue(app, calls(app, "a"))
    app.close()
