"""Deadlines: times after which no attempt starts."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Advanced, Blocked, Error, Release, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, TWO, end, fields, put, take
from tests.support.new_job import NewJob


def timers(url: str, namespace: str) -> list[bytes]:
    with redis.Redis.from_url(url) as client:
        return list(client.zrange(f"hf:{{{namespace}}}:timers", 0, -1))


def test_a_job_that_was_not_started_in_time_fails(store: Store, clock: TestClock) -> None:
    put(store, "late", deadline=5000)
    put(store, "other")
    clock.advance(5)

    assert take(store, limit=5) == ["other"]
    assert fields(store, "late", "state", "group", "attempt") == ("failed", "deadline", 0)


@pytest.mark.parametrize("state", ["waiting", "scheduled", "blocked", "throttled", "paused"])
def test_a_job_fails_at_its_deadline_in_any_state(store: Store, clock: TestClock, state: str) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, "first", limits=("one",))
    take(store)
    options: dict[str, Any] = {
        "scheduled": {"delay": 4999},
        "blocked": {"after": ("first",)},
        "throttled": {"limits": ("one",)},
    }
    put(store, "late", deadline=5000, **options.get(state, {}))
    if state == "paused":
        store.run(commands.pause("q"))
    if state == "throttled":
        take(store)
    clock.advance(5)

    take(store, TWO, "elsewhere")

    assert fields(store, "late", "state", "group") == ("failed", "deadline")


def test_an_attempt_started_before_the_deadline_continues(
    store: Store, clock: TestClock, server_url: str, namespace: str
) -> None:
    put(store, "job", deadline=5000)
    take(store)
    clock.advance(5)
    take(store, TWO)

    assert end(store, "job", Succeed(b"1")) == "OK"
    assert fields(store, "job", "state") == ("succeeded",)
    assert timers(server_url, namespace) == []


@pytest.mark.parametrize("outcome", [Error(b"", "g", delay=0), Release(), Blocked(("other",))])
def test_no_second_attempt_starts_after_the_deadline(store: Store, clock: TestClock, outcome: Any) -> None:
    put(store, "job", deadline=5000)
    take(store)
    put(store, "other", queue="other")
    clock.advance(5)
    end(store, "job", outcome)
    take(store, TWO, "other")
    end(store, "other", Succeed(b""), executor=TWO)

    assert take(store) == []
    assert fields(store, "job", "state", "group") == ("failed", "deadline")


def test_a_retry_by_a_user_removes_the_deadline(store: Store, clock: TestClock) -> None:
    put(store, "job", deadline=5000)
    clock.advance(5)
    take(store)
    assert store.run(commands.retry(["job"])) == ["waiting"]

    assert take(store) == ["job"]
    assert fields(store, "job", "deadline") == (0,)


def test_a_stage_has_its_own_deadline_or_none(store: Store, clock: TestClock) -> None:
    put(store, "one", "two", deadline=5000)
    take(store, limit=2)
    end(store, "one", Advanced("work", {"queue": "next"}, b""))
    end(store, "two", Advanced("work", {"queue": "next", "deadline": 1000}, b""))
    clock.advance(9)

    assert take(store, ONE, "next", limit=5) == ["one"]
    assert fields(store, "two", "state", "group") == ("failed", "deadline")


def test_a_job_that_ends_before_its_deadline_leaves_no_timer(store: Store, server_url: str, namespace: str) -> None:
    put(store, "a", "b", deadline=5000)
    store.run(commands.cancel(["a"]))
    store.run(commands.enqueue([NewJob(id="b", payload=b"", queue="q", task="t")], on_exists="replace"))
    put(store, "c", deadline=5000, keep=False)
    assert take(store, limit=2) == ["b", "c"]
    end(store, "c", Succeed(b""))
    end(store, "b", Succeed(b""))

    assert timers(server_url, namespace) == []


def test_a_job_cannot_be_due_after_its_deadline(store: Store) -> None:
    with pytest.raises(errors.Invalid, match="deadline must be later than the due time"):
        put(store, "job", delay=5000, deadline=5000)
