"""What operators and pipelines do to jobs: move, release, fail, advance."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import commands, errors
from holdfast.outcome import Advanced, Error, Succeed
from holdfast.store import Store
from tests.conftest import TestClock
from tests.test_lua import ONE, TWO, end, fields, job, keep, put, standing, take


def test_a_job_moves_to_another_queue_and_stands_last_there(store: Store) -> None:
    put(store, "a", "b")
    put(store, "c", queue="other")

    assert store.run(commands.move(["a"], queue="other")) == ["waiting"]

    assert take(store, ONE, "other", limit=5) == ["c", "a"]
    assert fields(store, "a", "queue") == ("other",)
    assert take(store, limit=5) == ["b"]


def test_a_changed_priority_keeps_the_place_among_equals(store: Store) -> None:
    put(store, "a", "b", "c")

    store.run(commands.move(["c", "b"], priority=-1))

    assert take(store, limit=5) == ["b", "c", "a"]


@pytest.mark.parametrize("state", ["scheduled", "blocked", "throttled"])
def test_a_job_moves_in_any_state_that_is_not_running(store: Store, clock: TestClock, state: str) -> None:
    store.run(commands.limit("one", 1))
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


def test_an_operator_gives_a_running_job_back_uncharged_and_its_worker_hears_of_it(
    store: Store, server_url: str, namespace: str
) -> None:
    put(store, "a")
    take(store)

    assert store.run(commands.release(["a"], reason="wrong node")) == ["waiting"]

    with redis.Redis.from_url(server_url) as client:
        assert client.lpop(f"hf:{{{namespace}}}:inbox:node/one") == b"lost node/one.0 a 1"
    assert fields(store, "a", "state", "retried", "crashes", "lost") == ("waiting", 0, 0, 0)
    assert end(store, "a", Succeed(b"1"), attempt=1) == "LOST"
    assert take(store, TWO) == ["a"]


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_an_operator_fails_a_job(store: Store, state: str) -> None:
    put(store, "a")
    if state == "running":
        take(store)

    assert store.run(commands.fail(["a"], group="bad-data", reason="no such file")) == ["failed"]

    assert fields(store, "a", "state", "group") == ("failed", "bad-data")
    assert keep(store).unnamed == []


def test_a_pipeline_of_three_stages_is_one_job_with_one_history(store: Store) -> None:
    put(store, "job", task="fetch", queue="net", payload=b"1")
    assert take(store, ONE, "net") == ["job"]
    store.run(commands.save(commands.Held(ONE, "job", 1), b"half"))
    assert end(store, "job", Advanced("cpu", "resize", payload=b"2" * 100)) == "OK"

    [claimed] = store.run(commands.claim(ONE, commands.claim_args(["cpu"], counter=10**9, limit=1))).jobs
    assert (claimed.task, claimed.queue, claimed.payload, claimed.checkpoint) == ("resize", "cpu", b"2" * 100, b"")
    assert end(store, "job", Advanced("net", "upload", payload=b"3")) == "OK"

    assert take(store, TWO, "net") == ["job"]
    assert end(store, "job", Succeed(b"done"), executor=TWO) == "OK"
    found = job(store, "job")
    assert (found["state"], found["task"], found["result"]) == ("succeeded", "upload", b"done")
    assert [row[5] for row in found["attempts"]] == [b"advanced", b"advanced", b"succeeded"]


def test_a_stage_has_retries_of_its_own(store: Store, clock: TestClock) -> None:
    put(store, "job", retries=1)
    take(store)
    end(store, "job", Error(b"", "g"))
    clock.advance(60)
    take(store)
    end(store, "job", Advanced("next"))
    assert take(store, ONE, "next") == ["job"]

    end(store, "job", Error(b"", "g"))

    assert fields(store, "job", "state", "retried") == ("scheduled", 0)


def test_a_stage_may_come_after_a_delay(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store)
    end(store, "job", Advanced("next", delay=5000))

    assert standing(store) == {"scheduled": ["job"]}
    clock.advance(5)
    assert take(store, ONE, "next") == ["job"]


def test_a_move_to_nowhere_is_refused(store: Store) -> None:
    put(store, "a")
    with pytest.raises(errors.Invalid, match="which queue"):
        store.run(commands.move(["a"]))
    with pytest.raises(errors.Invalid, match="queue"):
        store.run(commands.move(["a"], queue="{x}"))
