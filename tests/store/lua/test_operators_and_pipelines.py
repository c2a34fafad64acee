"""What operators and pipelines do to jobs: move, release, fail, advance to the next stage."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Advanced, Blocked, Error, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, TWO, end, fields, job, keep, put, standing, take


def test_a_job_moved_to_another_queue_is_last_there(store: Store) -> None:
    put(store, "a", "b")
    put(store, "c", queue="other")

    assert store.run(commands.move(["a"], queue="other")) == ["waiting"]

    assert take(store, ONE, "other", limit=5) == ["c", "a"]
    assert fields(store, "a", "queue") == ("other",)
    assert take(store, limit=5) == ["b"]


def test_a_changed_priority_keeps_the_arrival_order(store: Store) -> None:
    put(store, "a", "b", "c")

    store.run(commands.move(["c", "b"], priority=-1))

    assert take(store, limit=5) == ["b", "c", "a"]


@pytest.mark.parametrize("state", ["scheduled", "blocked", "throttled"])
def test_a_job_moves_in_any_state_that_is_not_running(store: Store, clock: TestClock, state: str) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, "first", limits=("one",))
    take(store)
    options: dict[str, Any] = {
        "scheduled": {"delay": 1000},
        "blocked": {"after": ("first",)},
        "throttled": {"limits": ("one",)},
    }
    put(store, "job", **options[state])
    take(store)
    assert fields(store, "job", "state") == (state,)

    store.run(commands.move(["job"], queue="other"))

    end(store, "first", Succeed(b"1"))
    clock.advance(1)
    assert take(store, ONE, "other") == ["job"]


def test_a_running_job_cannot_move_and_an_ended_neither(store: Store) -> None:
    put(store, "a")
    take(store)
    assert store.run(commands.move(["a", "nobody"], queue="other")) == ["STATE", "NOTFOUND"]
    assert store.run(commands.move(["a"], priority=5)) == ["running"]
    end(store, "a", Succeed(b"1"))
    assert store.run(commands.move(["a"], queue="other")) == ["STATE"]


def test_releasing_a_running_job_uses_up_no_retry_and_notifies_its_worker(
    store: Store, server_url: str, namespace: str
) -> None:
    put(store, "a")
    take(store)

    assert store.run(commands.release(["a"], reason="wrong node")) == ["waiting"]

    with redis.Redis.from_url(server_url) as client:
        assert client.lpop(f"hf:{{{namespace}}}:inbox:node/one") == b"lost node/one.0 a 1"
    assert fields(store, "a", "state", "retries_used", "crashes_used", "lost_used") == ("waiting", 0, 0, 0)
    assert end(store, "a", Succeed(b"1"), attempt=1) == "LOST"
    assert take(store, TWO) == ["a"]


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_an_operator_fails_a_job(store: Store, state: str) -> None:
    put(store, "a")
    if state == "running":
        take(store)

    assert store.run(commands.fail(["a"], group="bad-data", reason="no such file")) == ["failed"]

    assert fields(store, "a", "state", "group") == ("failed", "bad-data")
    assert keep(store).unreported == []


def test_a_pipeline_of_three_stages_is_one_job_with_one_history(store: Store) -> None:
    put(store, "job", task="fetch", queue="net", payload=b"1")
    assert take(store, ONE, "net") == ["job"]
    store.run(commands.save(commands.Lease(ONE, "job", 1), b"half"))
    assert end(store, "job", Advanced("resize", {"queue": "cpu"}, b"2" * 100)) == "OK"

    [claimed] = store.run(commands.claim(ONE, commands.claim_args(["cpu"], counter=10**9, limit=1))).jobs
    assert (claimed.task, claimed.queue, claimed.payload, claimed.checkpoint) == ("resize", "cpu", b"2" * 100, b"")
    assert end(store, "job", Advanced("upload", {"queue": "net"}, b"3")) == "OK"

    assert take(store, TWO, "net") == ["job"]
    assert end(store, "job", Succeed(b"done"), executor=TWO) == "OK"
    found = job(store, "job")
    assert (found["state"], found["task"], found["result"]) == ("succeeded", "upload", b"done")
    assert [row[5] for row in found["attempts"]] == [b"advanced", b"advanced", b"succeeded"]


def test_a_stage_has_its_own_retries(store: Store, clock: TestClock) -> None:
    put(store, "job", retries=1)
    take(store)
    end(store, "job", Error(b"", "g"))
    clock.advance(60)
    take(store)
    end(store, "job", Advanced("work", {"queue": "next", "retries": 1}, b""))
    assert take(store, ONE, "next") == ["job"]

    end(store, "job", Error(b"", "g"))

    assert fields(store, "job", "state", "retries_used") == ("scheduled", 0)


def test_a_stage_may_come_after_a_delay(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store)
    end(store, "job", Advanced("work", {"queue": "next", "delay": 5000}, b""))

    assert standing(store) == {"scheduled": ["job"]}
    clock.advance(5)
    assert take(store, ONE, "next") == ["job"]


def test_a_move_without_queue_and_priority_is_refused(store: Store) -> None:
    put(store, "a")
    with pytest.raises(errors.Invalid, match="specify `queue` or `priority`"):
        store.run(commands.move(["a"]))
    with pytest.raises(errors.Invalid, match="queue"):
        store.run(commands.move(["a"], queue="{x}"))


def test_a_stage_has_its_own_options(store: Store) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, "job", limits=("one",), timeout=9000, priority=7, share="acme")
    take(store)
    end(store, "job", Advanced("work", {"queue": "next", "retries": 9, "limits": ["two"], "priority": -3}, b""))

    found = job(store, "job")
    assert (found["retries"], found["timeout"], found["priority"], found["limits"]) == (9, 0, -3, "two")
    assert found["share"] == "acme"


@pytest.mark.parametrize(("policy", "state"), [("block", "blocked"), ("cancel", "cancelled"), ("run", "waiting")])
def test_a_stage_may_wait_for_others(store: Store, policy: str, state: str) -> None:
    put(store, "job", "bad", "good")
    take(store, limit=3)
    end(store, "bad", Error(b"", "g", final=True))
    after = {"queue": "next", "after": ["bad", "good"], "on_failed": policy}
    assert end(store, "job", Advanced("work", after, b"")) == "OK"
    end(store, "good", Succeed(b""))

    assert fields(store, "job", "state", "task") == (state, "work")


@pytest.mark.parametrize(
    ("batch", "answer"),
    [
        ({"after": ["nobody"]}, "NOTFOUND"),
        ({"after": ["child"]}, "CYCLE"),
        ({"after": ["job"]}, "CYCLE"),
        ({"queue": "{x}"}, "INVALID"),
        ({"unique": "key"}, "INVALID"),
    ],
)
def test_an_invalid_stage_is_refused_and_nothing_changes(store: Store, batch: Any, answer: str) -> None:
    put(store, "job")
    take(store)
    put(store, "child", after=("job",))
    before = job(store, "job")

    assert end(store, "job", Advanced("work", batch, b"")) == answer

    assert job(store, "job") == before


def test_a_cycle_by_wait_for_is_refused(store: Store) -> None:
    put(store, "job")
    take(store)
    put(store, "child", after=("job",))

    assert end(store, "job", Blocked(("child",))) == "CYCLE"
    assert fields(store, "job", "state") == ("running",)


def test_dependencies_added_by_wait_for_are_not_listed_in_after(store: Store) -> None:
    put(store, "input", "child")
    put(store, "job", after=("input",), queue="next")
    take(store, limit=2)
    end(store, "input", Succeed(b""))
    take(store, TWO, "next")
    end(store, "job", Blocked(("child",)), executor=TWO)
    assert fields(store, "job", "state", "waits_for", "waits") == ("blocked", 1, [[b"child", b"pending", 0]])

    end(store, "child", Error(b"", "g", final=True))

    state, after = fields(store, "job", "state", "after")
    assert (state, [row[:2] for row in after]) == ("waiting", [[b"input", b"succeeded"]])
    assert take(store, TWO, "next") == ["job"]


def test_a_job_moved_into_a_shared_queue_shares_it(store: Store) -> None:
    put(store, *(f"a{number}" for number in range(5)), queue="fair", share="acme")
    take(store, ONE, "fair", limit=3)
    put(store, "job")

    store.run(commands.move(["job"], queue="fair"))

    assert take(store, ONE, "fair", limit=2) == ["job", "a3"]


def test_an_at_most_once_stage_runs_once(store: Store) -> None:
    put(store, "job", retries=5)
    take(store)
    end(store, "job", Advanced("charge", {"queue": "q", "at_most_once": True}, b""))
    take(store)
    end(store, "job", Error(b"", "g", delay=0))
    assert fields(store, "job", "state", "group") == ("failed", "g")


def test_a_stage_after_an_at_most_once_stage_may_be_retried(store: Store) -> None:
    put(store, "job", at_most_once=True)
    take(store)
    end(store, "job", Advanced("mail", {"queue": "q"}, b""))
    take(store)
    end(store, "job", Error(b"", "g", delay=0))
    assert fields(store, "job", "state", "at_most_once") == ("waiting", 0)
