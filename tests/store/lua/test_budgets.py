"""Budgets for attempts that a limit stopped: `timeouts`, `stalls` and `out_of_memory` beside `retries`."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Advanced, Crash, Error, Release
from holdfast.job.retries import BUDGETS, RetryWait
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import end, fields, job, put, take

STOPS = [*BUDGETS.items()]
NOW = {"delay": 0}


def stop(store: Store, id: str, group: str, **more: Any) -> None:
    assert take(store) == [id]
    end(store, id, Error(b"{}", group, **{**NOW, **more}))


@pytest.mark.parametrize(("group", "budget"), STOPS)
def test_a_limit_that_stops_an_attempt_has_its_own_budget_if_the_job_has_one(
    store: Store, group: str, budget: str
) -> None:
    put(store, "job", retries=0, **{budget: 2})
    for used in (1, 2):
        stop(store, "job", group)
        assert fields(store, "job", "state", "retries_used", f"{budget}_used") == ("waiting", 0, used)
    stop(store, "job", group)
    assert fields(store, "job", "state", "group", "final_reason", "retries_used", f"{budget}_used", budget) == (
        ("failed", group, "exhausted", 0, 3, 2)
    )


@pytest.mark.parametrize(("group", "budget"), STOPS)
def test_without_a_budget_of_its_own_it_uses_up_a_retry(store: Store, group: str, budget: str) -> None:
    others = {name: 5 for name in BUDGETS.values() if name != budget}
    put(store, "job", retries=1, **others)
    stop(store, "job", group)
    stop(store, "job", group)
    assert fields(store, "job", "state", "group", "retries_used") == ("failed", group, 1)
    assert budget not in job(store, "job")
    assert {job(store, "job")[f"{name}_used"] for name in others} == {0}


def test_each_budget_is_counted_apart_and_errors_beside_them(store: Store) -> None:
    put(store, "job", retries=2, crashes=5, timeouts=1, stalls=1, out_of_memory=1)
    for group in ("timeout", "ValueError", "stalled", "memory", "KeyError"):
        stop(store, "job", group)
    assert take(store) == ["job"]
    end(store, "job", Crash(b"{}"))
    names = ("retries_used", "crashes_used", "timeouts_used", "stalls_used", "out_of_memory_used")
    assert fields(store, "job", "state", *names) == ("waiting", 2, 1, 1, 1, 1)
    stop(store, "job", "stalled")
    assert fields(store, "job", "state", "group", "final_reason", "stalls_used") == (
        "failed",
        "stalled",
        "exhausted",
        2,
    )


def test_the_wait_follows_from_the_use_of_the_budget_that_is_charged(store: Store, clock: TestClock) -> None:
    put(store, "job", retries=9, timeouts=9, backoff=1000)
    waits = []
    for group in ("ValueError", "timeout", "ValueError", "timeout", "timeout"):
        assert take(store) == ["job"]
        wait = RetryWait((10, 20, 30)) if group == "timeout" else RetryWait()
        end(store, "job", Error(b"{}", group, wait=wait))
        waits.append(job(store, "job")["timer"] - clock.now)
        clock.now = job(store, "job")["timer"]
    assert waits == [1000, 10, 2000, 20, 30]


def test_a_stopped_attempt_is_charged_when_it_ends_and_a_retry_when_it_starts(store: Store, clock: TestClock) -> None:
    put(store, "job", timeouts=3)
    stop(store, "job", "timeout", delay=60_000)
    assert fields(store, "job", "state", "timeouts_used", "retries_used") == ("scheduled", 1, 0)
    clock.advance(60)
    assert take(store) == ["job"]
    end(store, "job", Release())
    assert fields(store, "job", "timeouts_used", "retries_used") == (1, 0)


def test_a_retry_by_an_operator_and_a_next_stage_renew_the_budgets(store: Store) -> None:
    put(store, "job", timeouts=1)
    stop(store, "job", "timeout")
    stop(store, "job", "timeout")
    store.run(commands.retry(["job"]))
    assert fields(store, "job", "state", "timeouts_used", "timeouts") == ("waiting", 0, 1)
    stop(store, "job", "timeout")
    assert take(store) == ["job"]
    end(store, "job", Advanced("next", {"stalls": 4}, b"2"))
    assert fields(store, "job", "stalls_used", "stalls") == (0, 4)
    assert "timeouts" not in job(store, "job")


def test_a_cancelled_or_at_most_once_job_is_not_retried_whatever_its_budgets(store: Store) -> None:
    put(store, "once", timeouts=9, at_most_once=True)
    stop(store, "once", "timeout")
    assert fields(store, "once", "state", "final_reason", "timeouts_used") == ("failed", "at_most_once", 1)
    put(store, "stopped", timeouts=9)
    assert take(store) == ["stopped"]
    store.run(commands.cancel(["stopped"]))
    end(store, "stopped", Error(b"{}", "timeout"))
    assert fields(store, "stopped", "state", "timeouts_used") == ("cancelled", 0)


def test_an_attempt_that_must_not_be_retried_is_counted_all_the_same(store: Store) -> None:
    put(store, "job", timeouts=9, retries=9)
    stop(store, "job", "timeout", final=True)
    assert fields(store, "job", "state", "final_reason", "timeouts_used", "retries_used") == (
        "failed",
        "declared",
        1,
        0,
    )
    store.run(commands.retry(["job"]))
    assert take(store) == ["job"]
    assert fields(store, "job", "timeouts_used", "retries_used") == (0, 0)


def test_a_damaged_count_uses_the_budget_up(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "job", timeouts=1000, lost=9)
    assert take(store) == ["job"]
    end(store, "job", Error(b"{}", "timeout", delay=0))
    record = f"hf:{{{namespace}}}:j:job"
    status = client.hget(record, "s").ljust(36, b"\0")
    client.hset(record, "s", status[:30] + b"\xff" * 6)
    stop(store, "job", "timeout")
    assert fields(store, "job", "state", "final_reason", "timeouts_used") == ("failed", "exhausted", 65535)


def test_a_moved_job_keeps_its_budgets_and_what_it_has_used(store: Store) -> None:
    put(store, "job", timeouts=7, stalls=1)
    stop(store, "job", "timeout")
    store.run(commands.move(["job"], queue="video", priority=3))
    assert fields(store, "job", "queue", "priority", "timeouts", "timeouts_used", "stalls") == ("video", 3, 7, 1, 1)


def test_a_job_without_these_budgets_takes_no_byte_for_them(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "plain", timeout=5)
    put(store, "own", timeout=5, timeouts=2)
    heads, statuses = {}, {}
    for id in ("plain", "own"):
        heads[id], statuses[id] = map(len, client.hmget(f"hf:{{{namespace}}}:j:{id}", "h", "s"))
    assert statuses == {"plain": 7, "own": 7}
    assert heads["own"] == heads["plain"] + 2
    for id in ("plain", "own"):
        stop(store, id, "timeout", delay=1000)
    lengths = {id: len(client.hget(f"hf:{{{namespace}}}:j:{id}", "s")) for id in ("plain", "own")}
    assert lengths == {"plain": 29, "own": 32}


@pytest.mark.parametrize("budget", BUDGETS.values())
def test_a_budget_out_of_bounds_is_refused(store: Store, budget: str) -> None:
    for value in (-1, 1001, 1.5, "3"):
        with pytest.raises(errors.Invalid, match=budget):
            put(store, "job", **{budget: value})
