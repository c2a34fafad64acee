"""`sample`: some jobs of a queue at random."""

from __future__ import annotations

import pytest
import redis

from holdfast import Invalid
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import put, take


def ids(store: Store, state: str = "waiting", limit: int = 200) -> list[str]:
    return [job["id"] for job in store.run(commands.sample("q", state, limit=limit)).jobs]


def test_a_sample_is_of_one_queue_and_one_state(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, "a", "b", queue="q", limits=("one",))
    assert take(store, limit=2) == ["a"]
    put(store, "c", queue="q")
    put(store, "other", queue="r")
    put(store, "later", queue="q", delay=60_000)

    assert (ids(store), ids(store, "throttled"), ids(store, "scheduled")) == (["c"], ["b"], ["later"])
    assert store.run(commands.sample("unknown", "waiting", limit=5)) == (clock.now, 0, [])


def test_a_small_state_is_returned_whole_and_of_a_large_one_every_job_is_as_likely(store: Store) -> None:
    put(store, *(f"j{number}" for number in range(500)), queue="q")

    found = store.run(commands.sample("q", "waiting", limit=100))
    assert (found.total, len({job["id"] for job in found.jobs})) == (500, 100)
    drawn = {id for _ in range(60) for id in ids(store)}
    assert len(drawn) == 500  # each is missed by 60 calls once in 10^13
    put(store, *(f"r{number}" for number in range(3)), queue="r")
    assert len(store.run(commands.sample("r", "waiting", limit=3)).jobs) == 3


def parts_of_a_sample(store: Store, size: int) -> list[str]:
    parts = [store.run(commands.sample("q", "waiting", limit=50, size=size, skip=skip)) for skip in range(0, size, 50)]
    return [job["id"] for part in parts for job in part.jobs]


def test_calls_that_share_a_sample_return_all_jobs_once_or_one_of_each_stretch(store: Store) -> None:
    put(store, *(f"j{number}" for number in range(190)), queue="q")

    assert parts_of_a_sample(store, 200) == [f"j{number}" for number in range(190)]
    first = parts_of_a_sample(store, 95)
    assert [int(id[1:]) // 2 for id in first] == [*range(95)]
    assert first != parts_of_a_sample(store, 95)  # which of two is left to chance


def test_jobs_that_cannot_be_read_are_left_out(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "a", "b", queue="q")
    key = f"hf:{{{namespace}}}:j:a"
    status = client.hget(key, "s")
    client.hset(key, "s", "damaged")

    found = store.run(commands.sample("q", "waiting", limit=5))
    assert (found.total, [job["id"] for job in found.jobs]) == (2, ["b"])
    client.hset(key, "s", status)


@pytest.mark.parametrize(
    ("queue", "state", "limit"),
    [("q", "waiting", 0), ("q", "waiting", 201), ("q", "running", 5), ("q", "", 5), ("a b", "waiting", 5)],
)
def test_arguments_out_of_bounds_are_refused(store: Store, queue: str, state: str, limit: int) -> None:
    with pytest.raises(Invalid):
        store.run(commands.sample(queue, state, limit=limit))


@pytest.mark.parametrize(("size", "skip"), [(4, 0), (1001, 0), (10, 11), (10, -1)])
def test_a_part_has_to_be_one_of_the_sample(store: Store, size: int, skip: int) -> None:
    with pytest.raises(Invalid):
        store.run(commands.sample("q", "waiting", limit=5, size=size, skip=skip))
