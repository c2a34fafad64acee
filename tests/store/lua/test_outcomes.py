"""How removed jobs ended: bounded, and no obstacle to anything if the key is damaged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import end, job, put, take

MAX = 100_000


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url) as client:
        yield client


@pytest.fixture
def key(namespace: str) -> str:
    return f"hf:{{{namespace}}}:outcomes"


def end_unkept(store: Store, id: str) -> None:
    """Have a job that another waits for end, and be removed at once."""
    put(store, id, keep=False)
    put(store, f"after-{id}", after=(id,), queue="other")
    assert take(store) == [id]
    assert end(store, id, Succeed(b"1")) == "OK"


def test_only_the_last_hundred_thousand_are_remembered(
    store: Store, client: redis.Redis, key: str, clock: TestClock
) -> None:
    end_unkept(store, "first")
    clock.advance(1)
    for start in range(0, MAX - 1, 10_000):
        entries = {f"old{number}": clock.now * 4 + 1 for number in range(start, min(start + 10_000, MAX - 1))}
        client.zadd(key, entries)
    assert client.zcard(key) == MAX
    put(store, "known", after=("first",))
    clock.advance(1)
    end_unkept(store, "last") if take(store) == ["known"] else pytest.fail("not released")

    assert client.zcard(key) == MAX
    put(store, "late", after=("last",))
    with pytest.raises(errors.JobNotFound, match="first"):
        put(store, "too-late", after=("first",))


def test_jobs_end_and_are_stored_although_the_key_is_damaged(store: Store, client: redis.Redis, key: str) -> None:
    end_unkept(store, "first")
    client.set(key, "not a sorted set")
    end_unkept(store, "second")
    put(store, "first")

    assert job(store, "after-second")["state"] == "waiting"
    assert job(store, "first")["state"] == "waiting"
    with pytest.raises(errors.JobNotFound, match="second"):
        put(store, "late", after=("second",))
    client.delete(key)
    assert store.run(commands.delete(["second"])) == ["NOTFOUND"]
