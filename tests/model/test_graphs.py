"""Graphs of 200 jobs, mistreated: in the end each job has ended or is explained, and nothing is held by nobody.

HOLDFAST_GRAPH_MINUTES=5 runs random seeds for so long. A failure names its shape and seed:

    python -m tests.model.model.test_graphs chains 163726    lives through that one again
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from itertools import accumulate

import pytest
import redis

from holdfast.job.job import Job
from holdfast.job.outcome import Advanced, Blocked, Error, Outcome, Succeed
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.commands import Finish
from holdfast.store.store import Address, Store
from holdfast.task.task import BoundCall
from tests.apps import graph_app
from tests.conftest import TestClock
from tests.model import invariants
from tests.model.graph_operators import resume_one
from tests.model.graph_shapes import SHAPES, plan
from tests.model.graph_world import World
from tests.model.graphs import check, delete_all, drain, explain, mistreat, roots, succeed_all
from tests.store.lua.test_state_machine import ONE, end, put, standing, take
from tests.support.new_job import NewJob
from tests.support.processes import Site, kill_tree, new_site, send
from tests.support.servers import running_server

STEPS = 500
APP = "tests.apps.graph_app"
# What may be left when there are no jobs any more: settings, limits and virtual times, the lists of queues and workers,
# events, answers to calls with a token, and what expires.
LEFT = (
    "check",
    "outcomes",
    "op:",
    "operations",
    "meta",
    "config",
    "events",
    "fi:",
    "fingerprints",
    "limits",
    "undefined",
    "fair:",
    "load:",
    "sl:",
    "sd:",
    "sg:",
    "sh:",
    "sm:",
    "queues",
    "paused",
    "workers",
    "w:",
    "t:",
    "wake:",
    "idle:",
    "live:",
    "set:",
    "sets",
    "inbox:",
    "lr:",
)


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url) as made:
        yield made


def run_graph(url: str, client: redis.Redis, shape: str, seed: int, steps: int = STEPS) -> None:
    clock, chance = TestClock(), random.Random(f"{shape} {seed}")
    store = Store(Address.find(url, namespace=f"g{new_id()}"), clock=clock)
    world = World(store, clock, client, chance)
    try:
        live(world, plan(shape, chance), steps)
    except Exception as error:
        error.add_note(f"shape {shape}, seed {seed}\n" + "\n".join(about(world.log, str(error))))
        raise
    finally:
        store.close()
        client.delete(*client.scan_iter(f"hf:{{{world.namespace}}}:*", count=10_000))


def about(log: list[str], words: str) -> list[str]:
    """Of a log, the calls that name the first job that an error names; else the last ones."""
    named = re.search(r"\bj\d+\b", words)
    pattern = re.compile(rf"\b{named[0]}\b") if named else re.compile("")
    return [line for line in log if pattern.search(line)][-40:]


def live(world: World, jobs: list[NewJob], steps: int) -> None:
    while jobs:
        part = world.chance.choice([20, 60, 200])
        world.enqueue(jobs[:part])
        jobs = jobs[part:]
        mistreat(world, steps // 10)
    mistreat(world, steps)
    come_to_a_standstill(world)
    come_to_the_end(world)


def come_to_a_standstill(world: World) -> None:
    """Two executors hold what they hold, and some queues stay paused: all that has not ended is explained."""
    drain(world, busy=tuple(world.executors[:2]))
    check(world)
    for record in world.records():
        if record["state"] not in ("succeeded", "failed", "cancelled"):
            assert explain(world, record)


def come_to_the_end(world: World) -> None:
    while world.watch.paused:
        resume_one(world)
    drain(world)
    check(world)
    for record in world.records():
        if record["state"] not in ("succeeded", "failed", "cancelled"):
            assert record["state"] == "blocked"
            assert explain(world, record)
            found = [world.watch.jobs[id] for id in roots(world, record["id"]) if id in world.watch.jobs]
            assert {root.state for root in found} <= {"failed", "cancelled"}
    succeed_all(world)
    check(world)
    assert [name for name in delete_all(world) if not name.startswith(LEFT)] == []


@pytest.mark.parametrize("shape", SHAPES)
def test_every_job_of_a_mistreated_graph_ends_or_is_explained(server_url: str, client: redis.Redis, shape: str) -> None:
    run_graph(server_url, client, shape, seed=1)


# What they found


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("outcome", [Blocked(("other",)), Advanced("task", {"after": ["other"]}, b"[]")])
def test_a_job_that_begins_to_wait_for_one_that_ends_in_the_same_call_stands_in_one_list(
    store: Store, client: redis.Redis, outcome: Outcome, order: int
) -> None:
    put(store, "job", "other")
    take(store, limit=2)

    items = [Finish("job", 1, outcome), Finish("other", 1, Succeed(b"1"))]
    assert store.run(commands.finish(ONE, items[::order])).answers == ["OK", "OK"]

    assert standing(store) == {"waiting": ["job"], "succeeded": ["other"]}
    invariants.check(client, store.address.namespace)
    assert take(store) == ["job"]


def test_a_job_that_is_not_kept_and_cancelled_with_a_failed_dependency_is_reported_as_cancelled(
    store: Store,
) -> None:
    put(store, "bad", "good")
    put(store, "next", after=("bad", "good"), keep=False)
    take(store)
    end(store, "bad", Error(b"", "g", final=True))

    assert store.run(commands.depend("next", on_failed="cancel")) == ("cancelled", 2)
    assert store.run(commands.get(["next"])) == [None]


def test_a_job_retried_after_one_that_it_waited_for_is_gone_does_not_wait_for_that(store: Store) -> None:
    put(store, "gone", keep=False)
    put(store, "next", after=("gone",))
    store.run(commands.cancel(["next"]))
    take(store)
    end(store, "gone", Succeed(b"1"))

    assert store.run(commands.retry(["next"])) == ["waiting"]


def test_a_former_dependency_makes_no_cycle(store: Store) -> None:
    put(store, "bad", "slow", "next")
    store.run(commands.depend("next", add=["bad", "slow"], on_failed="run"))
    take(store)
    end(store, "bad", Error(b"", "g", final=True))
    store.run(commands.retry(["bad"]))

    assert store.run(commands.depend("bad", add=["next"])) == ("blocked", 1)
    assert take(store) == ["slow"]
    end(store, "slow", Succeed(b"1"))
    for id in ("next", "bad"):
        assert take(store) == [id]
        end(store, id, Succeed(b"1"))


def test_a_policy_that_is_changed_looks_at_what_became_of_a_job_since(store: Store) -> None:
    put(store, "once-bad", "slow")
    put(store, "next", after=("once-bad", "slow"), on_failed="run")
    take(store)
    end(store, "once-bad", Error(b"", "g", final=True))
    store.run(commands.retry(["once-bad"]))
    take(store, limit=2)
    end(store, "once-bad", Succeed(b"1"))

    assert store.run(commands.depend("next", on_failed="block")) == ("blocked", 1)
    end(store, "slow", Succeed(b"1"))
    assert take(store) == ["next"]


# With real workers


def is_limited(place: int) -> bool:
    return place % 5 == 2


def put_graph(site: Site, edges: list[list[int]]) -> list[str]:
    """Store a graph in one call; every fourth job has a process of its own, the others are coroutines."""
    calls: list[BoundCall[int]] = []
    for place, others in enumerate(edges):
        call = (graph_app.node if place % 4 == 0 else graph_app.anode).bind()
        limits = ["two"] if is_limited(place) else []
        after = [calls[other] for other in others]
        calls.append(call.options(limits=limits, after=after) if others else call.options(limits=limits))
    return [job.id for job in site.app.enqueue_many(calls)]


def kill_workers(site: Site) -> None:
    """Kill job processes, then an executor, then a worker with all that it started; another takes its place."""
    victim, other = site.start("--processes", "4", app=APP), site.start("--processes", "4", app=APP)
    site.wait_for_ends(30)
    send(signal.SIGKILL, *({entry.pid for entry in site.running()} - {victim.executor, other.executor}))
    site.wait_for_ends(70)
    send(signal.SIGKILL, other.executor)
    site.wait_for_ends(110)
    kill_tree(victim)
    site.start("--processes", "4", app=APP)


def check_order(site: Site, ids: list[str], edges: list[list[int]]) -> None:
    """No job started before all that it waits for had done its work, as the ledger says."""
    ended: set[str] = set()
    after = {ids[place]: {ids[other] for other in others} for place, others in enumerate(edges)}
    for entry in site.ledger.read():
        if entry.event == "end":
            ended.add(entry.job)
        assert entry.event != "start" or after[entry.job] <= ended, f"{entry.job} started too soon"


def check_slots(records: list[Job[int]]) -> None:
    """Of the jobs of the limit no more than two had a lease at a time."""
    runs = [run for place, job in enumerate(records) for run in job.attempts if is_limited(place)]
    times = sorted([(run.ended_at, -1) for run in runs] + [(run.claimed_at, 1) for run in runs])
    assert max(accumulate(change for _, change in times)) <= 2


def test_a_graph_of_two_hundred_survives_kill_9_of_jobs_executors_and_workers() -> None:
    edges = SHAPES["layers"](random.Random(1))
    with new_site() as site:
        site.app.set_limit("two", 2)
        ids = put_graph(site, edges)
        kill_workers(site)
        account = site.settle(ids)

        assert (account.lost, account.completed_twice, account.succeeded) == ([], [], len(edges))
        wanted: list[int] = []
        for others in edges:
            wanted.append(1 + sum(wanted[other] for other in others))
        records = site.records(ids)
        assert [job.decoded_result() for job in records] == wanted
        check_order(site, ids, edges)
        check_slots(records)
        assert {run.outcome for job in records for run in job.attempts} > {"succeeded"}
        assert [(limit.held, limit.parked) for limit in site.app.limits()] == [(0, 0)]


@pytest.mark.skipif("HOLDFAST_GRAPH_MINUTES" not in os.environ, reason="HOLDFAST_GRAPH_MINUTES is not set")
@pytest.mark.timeout(0)
def test_random_seeds(server_url: str, client: redis.Redis) -> None:
    began, graphs = time.monotonic(), 0
    while time.monotonic() - began < 60 * float(os.environ["HOLDFAST_GRAPH_MINUTES"]):
        run_graph(server_url, client, random.choice(list(SHAPES)), seed=random.randrange(10**9))
        graphs += 1
    print(f"{graphs} graphs")


if __name__ == "__main__":
    with running_server() as url, redis.Redis.from_url(url) as client:
        run_graph(url, client, sys.argv[1], int(sys.argv[2]))
