"""The wait before a retry: the backoff, or what an error brings along, against a formula written here."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast.constants import MAX_BACKOFF, MAX_DURATION, MAX_SPREAD, MAX_WAITS
from holdfast.job.outcome import Error
from holdfast.job.retries import RetryWait
from holdfast.store import commands
from holdfast.store.commands import Command
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, ask, end, fields, job, put, take

numbers = count(1)
times = st.integers(0, MAX_DURATION) | st.integers(0, 100_000)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    backoff=st.integers(0, MAX_BACKOFF) | st.integers(0, 100_000),
    waits=st.lists(times, max_size=MAX_WAITS),
    cap=st.none() | times,
    spread=st.integers(0, MAX_SPREAD),
    used=st.integers(0, 25),
)
@example(backoff=20_000, waits=[], cap=None, spread=0, used=3)
@example(backoff=MAX_BACKOFF, waits=[], cap=None, spread=1000, used=25)
@example(backoff=0, waits=[MAX_DURATION], cap=None, spread=1000, used=0)
@example(backoff=0, waits=[1], cap=0, spread=1000, used=2)
@example(backoff=7, waits=list(range(MAX_WAITS)), cap=None, spread=0, used=24)
def test_the_wait_follows_from_the_policy_and_the_retries_used(
    store: Store, clock: TestClock, *, backoff: int, waits: list[int], cap: int | None, spread: int, used: int
) -> None:
    id = f"job-{next(numbers)}"
    put(store, id, queue=id, backoff=backoff, retries=1000)
    for _ in range(used):
        take(store, ONE, id)
        end(store, id, Error(b"{}", "Net", delay=0))
    take(store, ONE, id)
    assert end(store, id, Error(b"{}", "Net", wait=RetryWait(tuple(waits), cap, spread))) == "OK"

    if not waits:
        wait = backoff * 2**used
    elif used < len(waits):
        wait = waits[used]
    else:
        wait = waits[-1]
    if cap is not None and wait > cap:
        wait = cap
    wait = min(wait, MAX_DURATION)
    wait = min(wait + wait * spread // 1000, MAX_DURATION)
    state, timer, counted = fields(store, id, "state", "timer", "retries_used")
    assert counted == used
    assert (state, timer) == (("scheduled", clock.now + wait) if wait else ("waiting", 0))


def test_a_delay_overrides_all_of_it_and_is_exact(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store)
    end(store, "job", Error(b"{}", "Net", delay=7000, wait=RetryWait((1,), 2, 1000)))
    assert fields(store, "job", "timer") == (clock.now + 7000,)


INVALID: list[dict[str, Any]] = [
    {"waits": []},
    {"waits": [1] * (MAX_WAITS + 1)},
    {"waits": [-1]},
    {"waits": [1.5]},
    {"waits": [MAX_DURATION + 1]},
    {"waits": ["1s"]},
    {"waits": [None]},
    {"waits": [[1]]},
    {"waits": {"1": 5}},
    {"waits": 5},
    {"waits": "5"},
    {"waits": None},
    {"cap": -1},
    {"cap": 0.5},
    {"cap": "5m"},
    {"cap": MAX_DURATION + 1},
    {"spread": -1},
    {"spread": MAX_SPREAD + 1},
    {"spread": 0.1},
    {"spread": True},
    {"final": "not_on"},
]


@pytest.mark.parametrize("fields", INVALID, ids=str)
def test_malformed_values_are_refused_and_change_nothing(store: Store, fields: dict[str, Any]) -> None:
    put(store, "bad", "good")
    take(store, limit=2)
    before = job(store, "bad")
    items = [{"id": id, "attempt": 1, "outcome": "error", "group": "Net"} for id in ("bad", "good")]
    items[0] |= fields
    reply = store.run(Command("finish", {"executor": ONE, "items": items}, list))
    assert reply[0] == [b"INVALID", b"OK"]
    assert job(store, "bad") == before
    assert job(store, "good")["state"] == "scheduled"


def test_an_error_that_the_policy_excludes_is_final_and_keeps_its_reason(store: Store) -> None:
    put(store, "job", retries=5)
    take(store)
    error = Error(b"{}", "ValueError", final="not_retryable", reason="not retried: ValueError is in not_on")
    assert end(store, "job", error) == "OK"
    state, why, group, [attempt] = fields(store, "job", "state", "final_reason", "group", "attempts")
    assert (state, why, group) == ("failed", "not_retryable", "ValueError")
    assert attempt[8] == b"not retried: ValueError is in not_on"

    assert end(store, "job", error) == "OK", "a repeated call gets the same answer"
    assert end(store, "job", Error(b"{}", "ValueError", final=True)) == "LOST"
    assert store.run(commands.retry(["job"])) == ["waiting"]
    assert store.run(commands.claim(ONE, ask())).jobs[0].id == "job"
