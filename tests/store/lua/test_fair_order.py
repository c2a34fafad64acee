"""The fair order of queues: each job comes from the queue that has the fewest running jobs for its weight."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import errors
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.store.lua.test_state_machine import ONE, TWO, ask, end, put, take


def fill(store: Store, count: int = 20, queues: str = "ab") -> None:
    for queue in queues:
        put(store, *(f"{queue}{n}" for n in range(count)), queue=queue)


def shares(taken: list[str]) -> dict[str, int]:
    return dict(Counter(id[0] for id in taken))


def test_queues_end_up_with_equally_many_running_jobs(store: Store) -> None:
    fill(store)
    assert shares(take(store, ONE, "a", limit=6)) == {"a": 6}
    assert shares(take(store, TWO, "a", "b", limit=4, weights=[1, 1])) == {"b": 4}
    assert shares(take(store, TWO, "a", "b", limit=4, weights=[1, 1])) == {"a": 1, "b": 3}
    assert shares(take(store, TWO, "a", "b", limit=4, weights=[1, 1])) == {"a": 2, "b": 2}


def test_running_jobs_are_in_proportion_to_the_weights(store: Store) -> None:
    fill(store)
    assert shares(take(store, ONE, "a", "b", limit=12, weights=[5, 1])) == {"a": 10, "b": 2}


def test_a_queue_with_a_low_weight_runs_something_even_if_there_are_few_slots(store: Store) -> None:
    fill(store)
    assert shares(take(store, ONE, "a", "b", limit=2, weights=[1000, 1])) == {"a": 1, "b": 1}


def test_among_equals_the_first_of_the_claim_is_served(store: Store) -> None:
    fill(store)
    assert take(store, ONE, "b", "a", weights=[1, 1]) == ["b0"]
    assert take(store, ONE, "a", "b", limit=2, weights=[1, 1]) == ["a0", "a1"]
    assert take(store, ONE, "a", "b", limit=2, weights=[1, 1]) == ["b1", "a2"]


def test_jobs_that_ended_do_not_count(store: Store) -> None:
    fill(store)
    for id in take(store, ONE, "a", limit=6):
        end(store, id, Succeed(b""))
    assert shares(take(store, TWO, "a", "b", limit=4, weights=[1, 1])) == {"a": 2, "b": 2}


@pytest.mark.parametrize("how", ["paused", "empty", "full"])
def test_the_turn_of_a_queue_that_cannot_be_served_goes_to_the_others(store: Store, how: str) -> None:
    fill(store, queues="b" if how == "empty" else "ab")
    if how == "paused":
        store.run(commands.pause("a"))
    if how == "full":
        store.run(commands.configure("a", set={"concurrency": 1}))
    assert shares(take(store, ONE, "a", "b", limit=6, weights=[1, 1])) == (
        {"a": 1, "b": 5} if how == "full" else {"b": 6}
    )


def test_jobs_whose_limit_is_full_are_passed(store: Store) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, *(f"a{n}" for n in range(9)), queue="a", limits=("one",))
    fill(store, queues="b")
    assert shares(take(store, ONE, "a", "b", limit=6, weights=[1, 1])) == {"a": 1, "b": 5}


def test_the_same_claim_again_returns_the_same_jobs(store: Store) -> None:
    fill(store)
    request = ask("a", "b", limit=4, weights=[1, 1])
    first, again = (store.run(commands.claim(ONE, request)).jobs for _ in range(2))
    assert [job.id for job in first] == [job.id for job in again] == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize(("limit", "wakes"), [(1, 1), (4, 0)])
def test_an_idle_executor_is_woken_if_work_is_left(
    store: Store, client: redis.Redis, namespace: str, limit: int, wakes: int
) -> None:
    base = f"hf:{{{namespace}}}:"
    fill(store, 2)
    assert take(store, TWO, "none", weights=[1]) == []
    client.rename(f"{base}idle:none", f"{base}idle:b")
    assert len(take(store, ONE, "a", "b", limit=limit, weights=[1, 1])) == limit
    assert client.llen(f"{base}wake:{TWO}") == wakes


@pytest.mark.parametrize("weights", [[1], [1, 0], [1, 1, 1], [1, 1.5], [1, 1_000_001]])
def test_weights_are_one_for_each_queue(store: Store, weights: Any) -> None:
    with pytest.raises(errors.Invalid):
        take(store, ONE, "a", "b", weights=weights)
    with pytest.raises(errors.Invalid):
        take(store, ONE, "a", "b", weights=[1, 1], shares=[1, 1])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    queues=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(1, 5)), min_size=1, max_size=8
    ),  # waiting, running, weight
    limit=st.integers(1, 40),
)
def test_a_claim_takes_what_one_claim_after_the_other_would(
    store: Store, client: redis.Redis, queues: list[tuple[int, int, int]], limit: int
) -> None:
    client.flushall()
    names = [f"q{n}" for n in range(len(queues))]
    for name, (waiting, running, _) in zip(names, queues, strict=True):
        if running:
            put(store, *(f"{name}-run{n}" for n in range(running)), queue=name)
            assert len(take(store, TWO, name, limit=running)) == running
        if waiting:
            put(store, *(f"{name}-{n}" for n in range(waiting)), queue=name)
    left = {name: waiting for name, (waiting, _, _) in zip(names, queues, strict=True)}
    load = {name: running for name, (_, running, _) in zip(names, queues, strict=True)}
    weight = {name: each for name, (_, _, each) in zip(names, queues, strict=True)}
    wanted: Counter[str] = Counter()
    for _ in range(min(limit, sum(left.values()))):
        least = min((name for name in names if left[name]), key=lambda name: Fraction(load[name], weight[name]))
        left[least] -= 1
        load[least] += 1
        wanted[least] += 1

    taken = take(store, ONE, *names, limit=limit, weights=list(weight.values()))

    assert Counter(id.partition("-")[0] for id in taken) == wanted
    for name in names:
        assert [id for id in taken if id.startswith(f"{name}-")] == [f"{name}-{n}" for n in range(wanted[name])]
