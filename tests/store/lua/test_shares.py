"""Fair shares: the shares of a queue take turns, by weight."""

from __future__ import annotations

from collections import Counter

import redis

from holdfast.job.outcome import Release, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, end, put, take


def claimed(store: Store, number: int, limit: int = 1) -> list[str]:
    """The keys of so many jobs, in the order in which they are claimed."""
    keys: list[str] = []
    while len(keys) < number:
        got = take(store, ONE, limit=min(limit, number - len(keys)))
        if not got:
            break
        for id in got:
            keys.append(id.partition("-")[0])
            end(store, id, Succeed(b"1"))
    return keys


def fill(store: Store, key: str, number: int, **options: int) -> None:
    put(store, *(f"{key}-{n}" for n in range(number)), share=key, **options)


def test_a_new_tenant_waits_for_one_job_of_a_tenant_with_a_thousand(store: Store) -> None:
    fill(store, "big", 1000)
    assert claimed(store, 100) == ["big"] * 100

    fill(store, "small", 1)

    assert "small" in claimed(store, 2)


def test_tenants_take_turns_and_keep_their_order(store: Store) -> None:
    fill(store, "a", 10)
    fill(store, "b", 10)
    fill(store, "c", 10)

    order = claimed(store, 30, limit=4)

    for first in range(0, 30, 3):
        assert sorted(order[first : first + 3]) == ["a", "b", "c"]


def test_weights_share_a_queue(store: Store) -> None:
    store.run(commands.set_share_weight("q", "paying", 3))
    fill(store, "paying", 300)
    fill(store, "free", 300)

    shares = Counter(claimed(store, 200))

    assert abs(shares["paying"] - 150) <= 2


def test_a_tenant_without_jobs_saves_up_no_turns(store: Store) -> None:
    fill(store, "a", 100)
    fill(store, "b", 1)
    claimed(store, 60)
    fill(store, "b", 50)

    assert 9 <= Counter(claimed(store, 20))["b"] <= 11


def test_jobs_without_a_key_are_one_tenant(store: Store) -> None:
    fill(store, "a", 50)
    put(store, *(f"none-{n}" for n in range(50)))

    assert Counter(claimed(store, 40)) == {"a": 20, "none": 20}


def test_a_priority_goes_first_and_does_not_move_the_others(store: Store) -> None:
    fill(store, "big", 1000, priority=1)
    fill(store, "urgent", 5, priority=-1)
    assert claimed(store, 5) == ["urgent"] * 5
    fill(store, "small", 1, priority=1)

    assert "small" in claimed(store, 2)


def test_a_delayed_job_takes_its_turn_when_it_is_due(store: Store, clock: TestClock) -> None:
    fill(store, "late", 1, delay=1000)
    fill(store, "big", 100)
    claimed(store, 10)
    clock.advance(1)

    assert "late" in claimed(store, 3)


def test_a_tenant_whose_jobs_come_one_by_one_gets_no_more_than_its_share(store: Store) -> None:
    fill(store, "backlog", 200)
    order: list[str] = []
    for number in range(100):
        put(store, f"steady-{number}", share="steady")
        order += claimed(store, 1)

    assert 45 <= Counter(order)["steady"] <= 55


def test_all_weights_are_exact(store: Store) -> None:
    weights = {"a": 1, "b": 7, "c": 30, "d": 62}
    for key, weight in weights.items():
        store.run(commands.set_share_weight("q", key, weight))
        fill(store, key, 400)

    shares = Counter(claimed(store, 500, limit=50))

    assert all(abs(shares[key] - 5 * weight) <= 5 for key, weight in weights.items())


def test_jobs_of_the_heaviest_tenant_keep_their_order(store: Store) -> None:
    store.run(commands.set_share_weight("q", "a", 100))
    put(store, *(f"a{n:03}" for n in reversed(range(100))), share="a")
    assert take(store, limit=100) == [f"a{n:03}" for n in reversed(range(100))]


def test_tenants_without_jobs_leave_no_keys(store: Store, clock: TestClock, server_url: str, namespace: str) -> None:
    for number in range(50):
        fill(store, f"t{number}", 2)
    claimed(store, 90)
    store.run(commands.cancel([f"t{number}-{n}" for number in range(50) for n in range(2)]))
    clock.advance(2)
    assert claimed(store, 1) == []

    with redis.Redis.from_url(server_url) as client:
        assert [key for key in client.keys(f"hf:{{{namespace}}}:*") if b"fair" in key or b"shares" in key] == []


def test_a_job_requeued_after_the_queue_was_empty_is_not_behind_all_others(store: Store, clock: TestClock) -> None:
    fill(store, "a", 50)
    claimed(store, 49)
    assert take(store) == ["a-49"]
    clock.advance(2)
    take(store, ONE)  # time moves on, and nothing waits
    fill(store, "b", 10)
    end(store, "a-49", Release())

    assert "a" in claimed(store, 2)
