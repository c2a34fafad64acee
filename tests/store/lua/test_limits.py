"""Limits on concurrency and rate; after each test, each slot has a holder and each parked job a reason."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Error, Release, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_dependencies import everything
from tests.store.lua.test_state_machine import LEASE, ONE, TWO, end, fields, job, keep, put, standing, take


@pytest.fixture(autouse=True)
def _every_slot_has_a_holder_in_the_end(store: Store, client: redis.Redis, namespace: str) -> Iterator[None]:
    yield
    check(store, client, namespace)


def check(store: Store, client: redis.Redis, namespace: str) -> None:
    base = f"hf:{{{namespace}}}:"
    jobs = {found["id"]: found for found in everything(store)}
    at_once = {row.name for row in store.run(commands.limits()).limits if row.per == 0}
    for key in client.scan_iter(f"{base}lh:*", count=10_000):
        for holder in client.zrange(key, 0, -1):
            full, id = holder.decode().split(" ")
            assert key.decode() == f"{base}lh:{full.partition(':')[0]}"
            assert jobs[id]["state"] == "running", (full, id)
    parked = {}
    for key in client.scan_iter(f"{base}lp:*", count=10_000):
        full, queue = key.decode().removeprefix(f"{base}lp:").split(" ")
        assert client.zscore(f"{base}lq:{full}", queue) == 0
        assert client.zscore(f"{base}lt:{full.partition(':')[0]}", full) == 0
        for id in client.zrange(key, 0, -1):
            parked[id.decode()] = full
            assert jobs[id.decode()]["queue"] == queue
    assert parked == {id: found["throttled_by"] for id, found in jobs.items() if found["state"] == "throttled"}
    for key in client.scan_iter(f"{base}lq:*", count=10_000):
        full = key.decode().removeprefix(f"{base}lq:")
        for queue in client.zrange(key, 0, -1):
            assert client.exists(f"{base}lp:{full} {queue.decode()}"), (full, queue)
    for id, found in jobs.items():
        for full in found["limits"].split() if found["state"] == "running" else ():
            if full.partition(":")[0] in at_once:
                holders = f"{base}lh:{full.partition(':')[0]}"
                assert client.zscore(holders, f"{full} {id}") == 0 or not client.exists(holders), (id, full)
    _check_nobody_is_stranded(store, client, base, parked)


def _check_nobody_is_stranded(store: Store, client: redis.Redis, base: str, parked: dict[str, str]) -> None:
    """A job is parked by a limit only while its slots are taken, or another job may take one, or a timer is set."""
    waiting = {
        full
        for found in everything(store)
        if found["state"] in ("waiting", "throttled")
        for full in found["limits"].split()
        if full != found["throttled_by"]
    }
    defined = {row.name: row for row in store.run(commands.limits()).limits}
    reviewing = {name.decode() for name in client.smembers(f"{base}changed")}
    for full in set(parked.values()):
        row = defined.get(full.partition(":")[0])
        if row is None or full.partition(":")[0] in reviewing:
            continue
        held = client.zlexcount(f"{base}lh:{full.partition(':')[0]}", f"[{full} ", f"({full}!")
        is_full = row.per == 0 and held >= row.slots
        has_timer = client.zscore(f"{base}timers", f"%{full}") is not None
        assert is_full or has_timer or full in waiting, f"{full} strands its jobs"


def test_a_limit_is_never_exceeded_and_a_freed_slot_goes_to_the_next_job_in_its_old_position(store: Store) -> None:
    store.run(commands.set_limit("gpu", 2))
    put(store, "a", "b", "c", "d", limits=("gpu",))
    put(store, "free")

    assert take(store, limit=10) == ["a", "b", "free"]
    assert standing(store)["throttled"] == ["c", "d"]
    assert fields(store, "c", "throttled_by") == ("gpu",)
    end(store, "a", Succeed(b"1"))

    assert take(store, limit=10) == ["c"]
    end(store, "b", Release("stop"))
    assert take(store, limit=10) == ["b"]  # it stands ahead of d


def test_each_key_of_a_limit_is_counted_separately(store: Store) -> None:
    store.run(commands.set_limit("tenant", 1))
    put(store, "a1", "a2", limits=("tenant:a",))
    put(store, "b1", "b2", limits=("tenant:b",))

    assert take(store, limit=10) == ["a1", "b1"]


def test_a_job_takes_all_its_slots_or_none(store: Store) -> None:
    store.run(commands.set_limit("one", 1))
    store.run(commands.set_limit("two", 2))
    put(store, "both", limits=("two", "one"))
    put(store, "other", limits=("one",))
    put(store, "third", limits=("two",))
    assert take(store, limit=10) == ["both", "third"]
    put(store, "fourth", limits=("two",))

    end(store, "both", Succeed(b"1"))

    assert sorted(take(store, limit=10)) == ["fourth", "other"]


def test_a_slot_that_a_job_cannot_use_goes_to_the_next_job(store: Store) -> None:
    store.run(commands.set_limit("a", 1))
    store.run(commands.set_limit("b", 1))
    put(store, "runs-a", limits=("a",))
    put(store, "runs-b", limits=("b",))
    put(store, "both", limits=("a", "b"))
    put(store, "next", limits=("a",))
    assert take(store, limit=10) == ["runs-a", "runs-b"]

    end(store, "runs-a", Succeed(b"1"))  # hands on to `both`, which finds b full

    assert take(store, limit=10) == ["next"]


def test_a_cancelled_job_leaves_its_turn_to_the_next(store: Store) -> None:
    store.run(commands.set_limit("a", 1))
    put(store, "first", "second", "third", limits=("a",))
    assert take(store, limit=10) == ["first"]
    end(store, "first", Succeed(b"1"))
    assert standing(store)["waiting"] == ["second"]

    store.run(commands.cancel(["second"]))

    assert take(store, limit=10) == ["third"]


def test_a_paused_queue_withholds_no_slots_from_others(store: Store) -> None:
    store.run(commands.set_limit("a", 1))
    put(store, "runs", limits=("a",))
    assert take(store, limit=10) == ["runs"]
    put(store, "paused", queue="p", limits=("a",))
    put(store, "open", queue="o", limits=("a",))
    assert take(store, ONE, "p", "o", limit=10) == []
    store.run(commands.pause("p"))

    end(store, "runs", Succeed(b"1"))

    assert take(store, ONE, "p", "o", limit=10) == ["open"]


def test_the_slot_of_a_dead_holder_is_released(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("a", 1))
    put(store, "first", "second", limits=("a",))
    take(store, limit=10)
    keep(store, executor=TWO)

    clock.advance(LEASE / 2)
    keep(store, executor=TWO)
    clock.advance(LEASE / 2)

    assert take(store, TWO, limit=10) == ["first"]


def test_a_rate_limit_is_never_exceeded_in_any_period(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 5, per=1000))
    put(store, *(f"j{n}" for n in range(60)), limits=("api",))
    chance = random.Random(4)
    starts: list[int] = []
    while len(starts) < 60:
        starts += [clock.now] * len(take(store, limit=chance.randint(1, 8)))
        clock.advance(chance.choice([0.05, 0.1, 0.35, 0.9]))

    assert all(later - earlier >= 1000 for earlier, later in zip(starts, starts[5:], strict=False))
    assert starts[-1] - starts[0] < 2 * 60 / 5 * 1000  # and it does not keep slots unused


def test_the_slots_of_a_period_are_free_at_once_after_an_idle_one(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 5, per=1000))
    put(store, *(f"j{n}" for n in range(12)), limits=("api",))
    assert len(take(store, limit=20)) == 5
    clock.advance(0.999)
    assert take(store, limit=20) == []
    clock.advance(0.001)
    assert len(take(store, limit=20)) == 5


def test_when_the_clock_goes_back_a_period_does_not_last_longer(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 1, per=1000))
    put(store, "a", "b", limits=("api",))
    assert take(store) == ["a"]
    clock.advance(-3600)

    take(store)
    clock.advance(1)
    take(store)

    assert fields(store, "b", "state") == ("running",)


def test_a_rate_limit_that_becomes_a_concurrency_limit_counts_running_jobs(store: Store) -> None:
    store.run(commands.set_limit("api", 5, per=1000))
    put(store, "a", "b", limits=("api",))
    assert take(store) == ["a"]
    store.run(commands.set_limit("api", 1))

    assert take(store) == []


def test_an_idle_executor_waits_no_longer_than_until_the_next_slot_per_period(store: Store) -> None:
    store.run(commands.set_limit("api", 5, per=1000))
    put(store, *(f"j{n}" for n in range(6)), limits=("api",))
    take(store, limit=20)

    claim = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=10**9, limit=1)))

    assert claim.wait == 1000


def test_all_slots_of_a_raised_limit_are_used(store: Store) -> None:
    store.run(commands.set_limit("a", 1))
    put(store, *(f"j{n}" for n in range(900)), limits=("a",))
    take(store, limit=1000)
    store.run(commands.set_limit("a", 500))

    got = sum(len(take(store, limit=1000)) for _ in range(20))

    assert got == 499


@pytest.mark.parametrize("change", ["raise", "delete", "lower"])
def test_changing_a_limit_strands_no_job(store: Store, change: str) -> None:
    store.run(commands.set_limit("a", 2))
    ids = [f"j{n:03}" for n in range(300)]
    put(store, *ids, limits=("a",))
    running = take(store, limit=1000)
    assert len(running) == 2

    if change == "raise":
        store.run(commands.set_limit("a", 50))
        assert len(take(store, limit=1000)) == 48
    elif change == "delete":
        store.run(commands.remove_limit("a"))
        got = 2
        while more := take(store, limit=1000):
            got += len(more)
        assert got == 300
    else:
        store.run(commands.set_limit("a", 1))
        for id in running:
            end(store, id, Succeed(b"1"))
        assert len(take(store, limit=1000)) == 1


def test_the_concurrency_setting_limits_the_running_jobs_of_a_queue(store: Store) -> None:
    store.run(commands.configure("q", set={"concurrency": 2}))
    put(store, "a", "b", "c")

    assert take(store, limit=10) == ["a", "b"]
    assert take(store, limit=10) == []
    end(store, "a", Succeed(b"1"))
    assert take(store, limit=10) == ["c"]


def test_many_parked_jobs_do_not_hide_those_behind_them(store: Store) -> None:
    store.run(commands.set_limit("a", 1))
    for part in range(3):
        put(store, *(f"p{part}-{n}" for n in range(1000)), limits=("a",))
    put(store, "behind")

    got: list[str] = []
    for _ in range(20):
        got += take(store, limit=10)
    assert got == ["p0-0", "behind"]


def test_a_limit_is_listed(store: Store) -> None:
    store.run(commands.set_limit("api", 5, per=1000))
    store.run(commands.set_limit("gpu", 1))
    put(store, "a", "b", limits=("gpu",))
    take(store, limit=10)

    rows = [row[:6] for row in store.run(commands.limits()).limits]
    assert rows == [("api", 5, 1000, 0, 0, 0), ("gpu", 1, 0, 1, 1, 1)]


@pytest.mark.parametrize("limits", [("a b",), ("{}",), ("x:*",), tuple(f"l{n}" for n in range(9))])
def test_a_bad_name_of_a_limit_is_refused(store: Store, limits: tuple[str, ...]) -> None:
    with pytest.raises(errors.Invalid, match="limit"):
        put(store, "job", limits=limits)


@pytest.mark.parametrize("seed", range(3))
def test_random_orders_lose_no_slot_and_strand_no_job(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str, seed: int
) -> None:
    chance = random.Random(seed)
    number = 0
    for step in range(500):
        what = chance.random()
        if what < 0.25:
            names = chance.sample(["a", "b", "rate", "t:1", "t:2"], k=chance.randint(1, 3))
            number += 1
            put(store, f"j{number}", limits=tuple(names), queue=chance.choice("qr"), priority=chance.choice([0, 1]))
        elif what < 0.5:
            take(
                store,
                chance.choice([ONE, TWO]),
                *chance.sample("qr", k=chance.randint(1, 2)),
                limit=chance.randint(1, 5),
            )
        elif what < 0.75:
            running = standing(store).get("running", [])
            if running:
                id = chance.choice(running)
                outcome: Any = chance.choice([Succeed(b"1"), Release("x"), Error(b"", "g", final=True)])
                end(store, id, outcome, executor=job(store, id)["executor"])
        elif what < 0.8:
            store.run(commands.cancel([f"j{chance.randint(1, max(1, number))}"]))
        elif what < 0.85:
            store.run(commands.retry([f"j{chance.randint(1, max(1, number))}"]))
        elif what < 0.9:
            clock.advance(chance.choice([0.05, 0.3, 5, 31]))
        elif what < 0.97:
            name = chance.choice(["a", "b", "t"])
            store.run(commands.set_limit(name, chance.randint(1, 3)))
            store.run(commands.set_limit("rate", chance.randint(1, 5), per=chance.choice([100, 1000])))
        else:
            store.run(commands.remove_limit(chance.choice(["a", "b", "t", "rate"])))
        if step % 10 == 0:
            check(store, client, namespace)
    for _ in range(2000):
        got = take(store, ONE, "q", "r", limit=100)
        for id in standing(store).get("running", []):
            end(store, id, Succeed(b"1"), executor=job(store, id)["executor"])
        if not got and not {"waiting", "throttled", "scheduled"} & set(standing(store)):
            break
        clock.advance(1)
    assert set(standing(store)) <= {"succeeded", "failed", "cancelled"}
