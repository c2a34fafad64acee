"""Bugs in the Lua library that `model/test_model.py` found, one test each."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Lease
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import (
    ONE,
    TWO,
    ask,
    end,
    job,
    keep,
    new,
    put,
    standing,
    take,
)


def test_a_queue_with_a_share_of_zero_gets_nothing_in_the_first_round(store: Store) -> None:
    put(store, *"abc")
    put(store, *"xyz", queue="other")

    assert take(store, ONE, "q", "other", limit=2, shares=[0, 1]) == ["x", "a"]
    assert take(store, TWO, "q", limit=1, shares=[0]) == ["b"]


def test_a_repeated_claim_never_reports_a_longer_lease_than_the_job_has(store: Store) -> None:
    put(store, "a")
    claim = commands.claim(ONE, ask("q"))
    assert [got.lease for got in store.run(claim).jobs] == [30_000]

    store.run(commands.configure("q", set={"lease": 3_600_000}))
    assert [got.lease for got in store.run(claim).jobs] == [30_000]
    store.run(commands.configure("q", set={"lease": 1000}))
    assert [got.lease for got in store.run(claim).jobs] == [1000]


def test_saving_with_renew_resets_the_count_of_spared_outages_like_renew(store: Store, clock: TestClock) -> None:
    put(store, "a")
    take(store)
    for _ in range(5):
        clock.advance(40)
        keep(store, executor=TWO)  # the store was away: the lease is spared
        assert store.run(commands.save(Lease(ONE, "a", 1), renew=True)) is False
    assert job(store, "a")["state"] == "running"


def test_a_worker_that_names_a_queue_twice_counts_once(store: Store) -> None:
    put(store, "a")
    store.run(commands.renew("node/one", [], queues=["q", "other", "q"]))

    assert store.run(commands.queues(["q"])).queues[0].workers == 1


def test_a_unique_key_that_outlives_its_job_does_not_replace_a_later_job_with_the_same_id(store: Store) -> None:
    put(store, "a", unique="key", unique_for=600_000)
    store.run(commands.cancel(["a"]))
    store.run(commands.delete(["a"]))
    assert store.run(commands.enqueue([new("b", unique="key")])).ids == ["a"]
    put(store, "a", payload=b"another")

    with pytest.raises(errors.JobExists):
        store.run(commands.enqueue([new("b", unique="key")], on_exists="replace"))
    assert job(store, "a")["payload"] == b"another"


# Jobs that wait for others


def test_dependents_of_a_replaced_job_wait_for_the_new_one(store: Store) -> None:
    put(store, "a", retries=0)
    put(store, "b", after=("a",))
    take(store)
    end(store, "a", Error(b"", "g"))
    assert [row[:2] for row in job(store, "b")["after"]] == [[b"a", b"failed"]]

    store.run(commands.enqueue([new("a")], on_exists="replace"))
    assert job(store, "b")["after"] == [[b"a", b"pending", 0]]
    take(store)
    end(store, "a", Succeed(b"1"))
    assert job(store, "b")["state"] == "waiting"


def test_with_on_failed_run_a_job_still_waits_for_its_other_dependencies(store: Store) -> None:
    put(store, "a", "b", retries=0)
    put(store, "c", after=("a", "b"))
    take(store)
    end(store, "a", Error(b"", "g"))

    assert store.run(commands.depend("c", on_failed="run")) == ("blocked", 1)
    store.run(commands.retry(["a"]))
    store.run(commands.move(["a"], priority=-1))
    assert take(store) == ["a"]
    end(store, "a", Succeed(b"1"))
    assert job(store, "c")["state"] == "blocked"


def test_a_job_may_wait_for_one_that_is_replaced_in_the_same_call(store: Store) -> None:
    put(store, "old", unique="key")
    jobs = [new("a", unique="key"), new("b", after=("old",))]

    assert store.run(commands.enqueue(jobs, on_exists="replace")).ids == ["old", "b"]
    assert standing(store) == {"waiting": ["old"], "blocked": ["b"]}


def test_a_parked_job_is_unparked_in_the_call_in_which_another_starts_to_wait_for_it(store: Store) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, "holds", "first", "second", limits=("one",))
    assert take(store, limit=3) == ["holds"]
    end(store, "holds", Succeed(b"1"))
    assert standing(store) == {"succeeded": ["holds"], "waiting": ["first"], "throttled": ["second"]}

    store.run(commands.enqueue([new("first"), new("waits", after=("second",))], on_exists="replace"))
    assert job(store, "second")["state"] == "waiting"
    assert take(store, limit=3) == ["second", "first"]


def test_a_job_that_starts_when_another_is_replaced_can_be_replaced_by_the_same_call(store: Store) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, "holds", "first", "second", limits=("one",))
    assert take(store, limit=3) == ["holds"]
    end(store, "holds", Succeed(b"1"))
    assert standing(store) == {"succeeded": ["holds"], "waiting": ["first"], "throttled": ["second"]}

    store.run(commands.enqueue([new("first", delay=10), new("second", delay=10)], on_exists="replace"))
    assert standing(store) == {"succeeded": ["holds"], "scheduled": ["first", "second"]}


def test_a_cancellation_that_meets_only_dependents_gets_the_same_answer_again(store: Store) -> None:
    put(store, "a", retries=0)
    put(store, "b", after=("a",))
    take(store)
    end(store, "a", Error(b"", "g"))
    cancel = commands.cancel(["a"], dependents=True)

    assert [store.run(cancel) for _ in range(2)] == [["STATE", "b", "cancelled"]] * 2


def test_a_dependency_that_ended_and_was_deleted_is_not_waited_for(store: Store) -> None:
    put(store, "a", keep=False)
    put(store, "b", after=("a",))
    store.run(commands.cancel(["b"]))
    take(store)
    end(store, "a", Succeed(b"1"))

    assert store.run(commands.retry(["b"])) == ["waiting"]
    assert [row[:2] for row in job(store, "b")["after"]] == [[b"a", b"succeeded"]]


def test_all_dependents_of_a_job_with_zero_retention_are_resolved(store: Store) -> None:
    store.run(commands.configure(set={"keep_succeeded_count": 0}))
    put(store, "a", priority=-1)
    for part in range(2):
        put(store, *(f"{part}.{number}" for number in range(700)), after=("a",))
    take(store)
    end(store, "a", Succeed(b"1"))
    assert store.run(commands.get(["a"])) == [None]

    take(store)
    assert store.run(commands.count(states=["blocked"])) == 0
