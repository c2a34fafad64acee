"""Workers and nodes: which queues each serves, what it holds, and what is known of a dead one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast import Holdfast, Invalid, WorkerNotFound, WrongState
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import Command, Lease, Started, Worker
from holdfast.store.store import Store
from holdfast.units import utc
from tests.apps import worker_app
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, TWO, dump, end, keep, put, take
from tests.support.consistency import check_all_keys, client
from tests.support.processes import kill_tree
from tests.support.workers import Crew, until

__all__ = ["check_all_keys", "client"]  # fixtures


@pytest.fixture
def app(server_url: str, namespace: str, store: Store) -> Iterator[Holdfast]:
    """An app under the test's clock."""
    made = Holdfast(server_url, namespace=namespace)
    made.store = store
    yield made
    made.close()


def worker_counts(app: Holdfast) -> dict[str, int]:
    return {queue.name: queue.workers for queue in app.queues()}


def lives(app: Holdfast) -> dict[str, bool]:
    return {worker.name: worker.is_live for worker in app.workers()}


# By the clock


def test_each_queue_knows_how_many_live_workers_serve_it(app: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, "a", queue="mail")
    put(store, "b", queue="video")
    put(store, "c", queue="alone")
    keep(store, queues=["mail", "video"])
    clock.advance(1)
    keep(store, executor=TWO, queues=["mail", "mail"])
    assert worker_counts(app) == {"alone": 0, "mail": 2, "video": 1}

    keep(store, executor=TWO, queues=[])
    assert worker_counts(app) == {"alone": 0, "mail": 1, "video": 1}
    keep(store, executor=TWO, queues=["video"])
    keep(store, executor=TWO)  # says nothing of its queues: they are as they were
    assert worker_counts(app) == {"alone": 0, "mail": 1, "video": 2}


def test_a_worker_that_is_silent_for_half_a_minute_counts_no_more_and_one_that_speaks_again_does(
    app: Holdfast, store: Store, clock: TestClock
) -> None:
    put(store, "a", queue="mail")
    keep(store, queues=["mail"])
    clock.advance(30)
    assert (worker_counts(app), lives(app)) == ({"mail": 1}, {"node/one": True})
    clock.advance(0.001)
    assert (worker_counts(app), lives(app)) == ({"mail": 0}, {"node/one": False})
    keep(store)
    assert (worker_counts(app), lives(app)) == ({"mail": 1}, {"node/one": True})


def test_a_worker_that_was_buried_counts_no_more_at_once(app: Holdfast, store: Store) -> None:
    put(store, "a", queue="mail")
    keep(store, queues=["mail"])
    take(store, ONE, "mail")
    while store.run(commands.requeue_orphaned(worker="node/one")):
        pass
    assert (worker_counts(app), app.workers()) == ({"mail": 0}, [])


def test_the_jobs_of_a_worker_are_listed_with_process_and_time(app: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, "a", "b", "c")
    keep(store, queues=["q"], about='{"pid": 17, "started": 1700000000000, "memory": 1024, "cpu_seconds": 1.5}')
    take(store, "node/one.1", pid=100)
    clock.advance(2)
    take(store, "node/one.2", pid=200)
    take(store, "node/one.2", pid=200)
    keep(store, Lease("node/one.2", "b", 1), executor="node/one.2", started=[Started("node/one.2", "b", 1, 201, 5)])

    (worker,) = app.workers()
    assert (worker.name, worker.node, worker.queues) == ("node/one", "node", ["q"])
    assert (worker.pid, worker.started_at, worker.memory, worker.cpu_seconds) == (17, utc(clock.now - 2000), 1024, 1.5)
    assert worker.seen_at == utc(clock.now)
    held = {job.id: (job.executor, job.attempt, job.queue, job.task, job.pid, job.claimed_at) for job in worker.held}
    assert held == {
        "a": ("node/one.1", 1, "q", "task", 100, utc(clock.now - 2000)),
        "b": ("node/one.2", 1, "q", "task", 201, utc(clock.now)),
        "c": ("node/one.2", 1, "q", "task", 200, utc(clock.now)),
    }
    end(store, "a", Succeed(b""), "node/one.1")
    assert {job.id for job in app.workers()[0].held} == {"b", "c"}


def test_the_workers_are_listed_with_the_latest_first_and_by_their_nodes(
    app: Holdfast, store: Store, clock: TestClock
) -> None:
    put(store, "x", queue="mail")
    for executor, queues, memory in (
        ("beta/one.0", ["video"], 1),
        ("alpha/two.0", ["mail"], 10),
        ("beta/three.0", ["mail"], 100),
    ):
        clock.advance(20)
        keep(store, executor=executor, queues=queues, about=f'{{"memory": {memory}, "cpu_seconds": 1}}')
    take(store, "beta/three.0", "mail")

    assert [worker.name for worker in app.workers()] == ["beta/three", "alpha/two", "beta/one"]
    alpha, beta = app.nodes()
    assert (alpha.name, alpha.queues, alpha.memory, alpha.held, alpha.is_live) == ("alpha", ["mail"], 10, [], True)
    assert [worker.name for worker in beta.workers] == ["beta/three", "beta/one"]
    assert (beta.queues, beta.memory, beta.cpu_seconds) == (["mail"], 100, 1.0)  # of those that are live
    assert ([job.id for job in beta.held], beta.seen_at) == (["x"], utc(clock.now))
    clock.advance(60)
    assert [node.is_live for node in app.nodes()] == [False, False]


@pytest.mark.parametrize("about", ["words of another language", "[1, 2]", '{"pid": "x", "started": -5}', "5", "null"])
def test_an_unreadable_report_of_a_worker_is_ignored(app: Holdfast, store: Store, about: str) -> None:
    keep(store, about=about)
    keep(store, executor=TWO, about='{"pid": 5}')
    first, second = sorted(app.workers(), key=lambda worker: worker.name)
    assert (first.pid, first.memory, first.cpu_seconds, first.started_at) == (0, 0, 0.0, None)
    assert second.pid == 5
    assert app.nodes()[0].memory == 0


def test_a_worker_is_deregistered_when_it_is_silent_and_holds_nothing(
    app: Holdfast, store: Store, client: redis.Redis, namespace: str, clock: TestClock
) -> None:
    put(store, "a")
    take(store, TWO, "another")
    keep(store, executor=TWO)
    before = set(dump(client, namespace))
    take(store, ONE)
    keep(store, queues=["q"])
    app.cancel("a")  # a message in its inbox
    with pytest.raises(WrongState, match="node/one sent a heartbeat 0 seconds ago: stop it first; if it is dead"):
        app.deregister("node/one")
    for _ in range(3):
        clock.advance(15)
        keep(store, executor=TWO)
        if app.get("a").state == "running":
            with pytest.raises(WrongState, match=r"seconds ago|holds jobs"):
                app.deregister("node/one")
    app.deregister("node/one")
    assert lives(app) == {"node/two": True}
    left = {key for key in set(dump(client, namespace)) - before if b":t:" not in key and b":sl:" not in key}
    assert {key.rpartition(b":")[2] for key in left} <= {b"a", b"cancelled"}  # the job, and the index that it is in
    with pytest.raises(WorkerNotFound, match="worker node/one does not exist"):
        app.deregister("node/one")


def test_a_silent_worker_that_holds_jobs_is_not_deregistered(app: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, "a")
    take(store, lease=3_600_000)
    keep(store)
    clock.advance(60)
    with pytest.raises(WrongState, match="holds jobs: wait until their leases expire"):
        app.deregister("node/one")
    assert [job.id for job in app.workers()[0].held] == ["a"]


@pytest.mark.parametrize("name", ["", "one", "node/", "node/one.1", "a b/c", "n" * 40 + "/one", 5, None, object()])
def test_invalid_worker_names_are_refused(app: Holdfast, name: Any) -> None:
    with pytest.raises(
        Invalid, match=r"expected a worker as <node>/<worker>|expected an executor as|cannot be encoded"
    ):
        app.deregister(name)


def test_the_store_refuses_invalid_worker_names(store: Store) -> None:
    for args in ({}, {"worker": 5}, {"worker": ["node/one"]}):
        with pytest.raises(Invalid, match="expected a worker as"):
            store.run(Command("deregister", args, lambda reply: reply))


def test_the_async_client_sees_the_same(app: Holdfast, store: Store, clock: TestClock) -> None:
    clock.now = 1_000  # long ago, for the async client asks by the server's clock
    keep(store, queues=["q"])

    async def use() -> None:
        (worker,) = await app.aworkers()
        assert (worker.name, worker.is_live) == ("node/one", False)
        assert [node.name for node in await app.anodes()] == ["node"]
        await app.aderegister("node/one")
        assert await app.aworkers() == []
        await app.aclose()

    asyncio.run(use())


# Real workers


def found(crew: Crew, count: int) -> list[Worker]:
    """Wait until so many workers serve the queue."""
    return until(lambda: known if len(known := crew.app.workers()) == count else None, what=f"{count} workers")


def test_a_worker_publishes_who_it_is_and_what_it_runs(crew: Crew) -> None:
    process = crew.start("--queues", "default,video", node="alpha")
    job = crew.put(worker_app.hold, "gate")
    (pid,) = crew.pids("gate", "runs")
    held = until(lambda: [job for job in crew.app.workers()[0].held if job.pid == pid], what="what it holds")
    (worker,) = crew.app.workers()
    assert (worker.node, worker.is_live, worker.queues) == ("alpha", True, ["default", "video"])
    assert worker.pid == process.pid
    assert worker.started_at is not None
    assert worker.started_at <= worker.seen_at
    until(lambda: crew.app.workers()[0].memory > 1_000_000, what="what it uses")
    assert [(job.id, job.attempt, job.queue) for job in held] == [(job.id, 1, "default")]
    assert held[0].claimed_at >= worker.started_at
    assert [queue.workers for queue in crew.app.queues() if queue.name == "default"] == [1]
    crew.open("gate")
    assert crew.ended(job).state == "succeeded"
    assert process.stop() == 0
    until(lambda: crew.app.workers() == [], what="its leaving")
    assert [queue.workers for queue in crew.app.queues()] == [0]


def test_a_worker_that_was_killed_with_all_it_had_is_forgotten_by_a_sibling(crew: Crew) -> None:
    first = crew.start("--queues", "default")
    job = crew.put(worker_app.hold, "gate")
    crew.pids("gate", "runs")
    crew.start("--queues", "other")
    found(crew, 2)
    kill_tree(first)
    (left,) = found(crew, 1)
    assert left.queues == ["other"]
    assert [queue.workers for queue in crew.app.queues() if queue.name == "default"] == [0]
    assert crew.get(job).state == "waiting"
    assert crew.held() == []


def test_a_killed_worker_on_another_node_is_silent_and_keeps_its_leases_until_they_end(crew: Crew) -> None:
    crew.app.configure({"lease": "1h"})
    first = crew.start(node="alpha")
    job = crew.put(worker_app.hold, "gate")
    crew.pids("gate", "runs")
    until(lambda: crew.app.workers()[0].held, what="what it holds")
    crew.start("--queues", "other", node="beta")
    found(crew, 2)
    kill_tree(first)

    alpha = next(node for node in crew.app.nodes() if node.name == "alpha")
    assert [held.id for held in alpha.held] == [job.id]
    assert os.getpid() not in (held.pid for held in alpha.held)
    with pytest.raises(WrongState, match="stop it first; if it is dead"):
        crew.app.deregister(alpha.workers[0].name)
