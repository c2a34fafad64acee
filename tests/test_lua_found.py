"""Mistakes in the function library that `test_model.py` found, each by a test of its own."""

from __future__ import annotations

import pytest

from holdfast import commands, errors
from holdfast.commands import Held
from holdfast.store import Store
from tests.conftest import TestClock
from tests.test_lua import ONE, TWO, _all_keys_fit_in_the_end, ask, client, job, keep, new, put, take  # noqa: F401


def test_a_queue_with_a_share_of_none_gives_nothing_in_the_first_round(store: Store) -> None:
    put(store, *"abc")
    put(store, *"xyz", queue="other")

    assert take(store, ONE, "q", "other", limit=2, shares=[0, 1]) == ["x", "a"]
    assert take(store, TWO, "q", limit=1, shares=[0]) == ["b"]


def test_a_repeated_claim_is_told_of_no_longer_lease_than_the_job_has(store: Store) -> None:
    put(store, "a")
    claim = commands.claim(ONE, ask("q"))
    assert [got.lease for got in store.run(claim).jobs] == [30_000]

    store.run(commands.configure("q", set={"lease": 3_600_000}))
    assert [got.lease for got in store.run(claim).jobs] == [30_000]
    store.run(commands.configure("q", set={"lease": 1000}))
    assert [got.lease for got in store.run(claim).jobs] == [1000]


def test_who_renews_by_saving_is_spared_as_often_as_who_renews(store: Store, clock: TestClock) -> None:
    put(store, "a")
    take(store)
    for _ in range(5):
        clock.advance(40)
        keep(store, executor=TWO)  # the store was away: the lease is spared
        assert store.run(commands.save(Held(ONE, "a", 1), renew=True)) is False
    assert job(store, "a")["state"] == "running"


def test_a_worker_that_names_a_queue_twice_is_one_listener(store: Store) -> None:
    put(store, "a")
    store.run(commands.renew("node/one", [], queues=["q", "other", "q"]))

    assert store.run(commands.queues(["q"]))[0][2] == 1


def test_a_key_that_outlives_its_job_does_not_replace_another_job_that_has_its_id_by_now(store: Store) -> None:
    put(store, "a", unique="key", unique_for=600_000)
    store.run(commands.cancel(["a"]))
    store.run(commands.delete(["a"]))
    assert store.run(commands.enqueue([new("b", unique="key")])).ids == ["a"]
    put(store, "a", payload=b"another")

    with pytest.raises(errors.JobExists):
        store.run(commands.enqueue([new("b", unique="key")], exists="replace"))
    assert job(store, "a")["payload"] == b"another"
