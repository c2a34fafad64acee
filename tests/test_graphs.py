"""Graphs of 200 jobs, mistreated: in the end each job has ended or is explained, and nothing is held by nobody.

HOLDFAST_GRAPH_MINUTES=5 runs random seeds for so long. A failure names its shape and seed.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator

import pytest
import redis

from holdfast.commands import NewJob
from holdfast.names import new_id
from holdfast.store import Address, Store
from tests.conftest import TestClock
from tests.graph_operators import resume_one
from tests.graph_shapes import SHAPES, plan
from tests.graph_world import World
from tests.graphs import check, delete_all, drain, explain, mistreat, roots, succeed_all

STEPS = 500
# What may be left when there are no jobs any more: settings, limits and virtual times, the lists of queues and workers,
# events, answers to calls with a token, and what expires.
LEFT = (
    "meta",
    "config",
    "events",
    "limits",
    "fair:",
    "load:",
    "queues",
    "paused",
    "workers",
    "w:",
    "t:",
    "wake:",
    "idle:",
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
    end(world)


def come_to_a_standstill(world: World) -> None:
    """Two executors hold what they hold, and some queues stay paused: all that has not ended is explained."""
    drain(world, busy=tuple(world.executors[:2]))
    check(world)
    for record in world.records():
        if record["state"] not in ("succeeded", "failed", "cancelled"):
            assert explain(world, record)


def end(world: World) -> None:
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


@pytest.mark.skipif("HOLDFAST_GRAPH_MINUTES" not in os.environ, reason="HOLDFAST_GRAPH_MINUTES is not set")
@pytest.mark.timeout(0)
def test_random_seeds(server_url: str, client: redis.Redis) -> None:
    began, graphs = time.monotonic(), 0
    while time.monotonic() - began < 60 * float(os.environ["HOLDFAST_GRAPH_MINUTES"]):
        run_graph(server_url, client, random.choice(list(SHAPES)), seed=random.randrange(10**9))
        graphs += 1
    print(f"{graphs} graphs")
