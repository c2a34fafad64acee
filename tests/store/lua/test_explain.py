"""Why a job is not running: every obstacle made true, and then false."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from holdfast.job.job import ITEM_TASK
from holdfast.job.outcome import Error, Release, Snoozed, Succeed, Unknown
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease
from holdfast.store.store import Store
from holdfast.task import PROGRAM
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import LEASE, ONE, TWO, dump, end, keep, put, take

Facts = dict[str, Any]


def explained(store: Store, id: str = "a") -> Facts:
    [found] = store.run(commands.explain([id]))
    assert found is not None
    return found


def codes(store: Store, id: str = "a") -> list[str]:
    return [code for code, _ in explained(store, id)["reasons"]]


def reason(store: Store, id: str = "a") -> Facts:
    return dict(explained(store, id)["reasons"][0][1])


def serve(store: Store, *queues: str, executor: str = ONE, about: str = '{"tasks":["task"]}', **more: Any) -> None:
    """Send the heartbeat of a worker that serves these queues."""
    keep(store, executor=executor, queues=list(queues or ("q",)), about=about, **more)


def be_idle(store: Store, *queues: str, executor: str = ONE) -> None:
    assert take(store, executor, *queues) == []


@pytest.fixture
def worker(store: Store) -> None:
    """A worker of the queue, with a free slot."""
    serve(store)
    be_idle(store)


@pytest.mark.usefixtures("worker")
def test_a_job_that_a_worker_would_take_now_is_ready(store: Store) -> None:
    put(store, "a", "b")
    assert codes(store) == codes(store, "b") == ["ready"]
    assert explained(store)["ready"] == explained(store, "b")["ready"] == 1
    assert explained(store, "b")["ahead"] == 1
    assert take(store, limit=2) == ["a", "b"]


@pytest.mark.usefixtures("worker")
def test_a_job_that_does_not_exist_has_no_explanation(store: Store) -> None:
    put(store, "a")
    assert [row is None for row in store.run(commands.explain(["a", "nobody"]))] == [False, True]


@pytest.mark.usefixtures("worker")
def test_a_delay(store: Store, clock: TestClock) -> None:
    put(store, "a", delay=60_000)
    assert codes(store) == ["not-due"]
    assert reason(store) == {"due": clock.now + 60_000}
    clock.advance(60)
    assert explained(store)["ready"] == 1
    assert take(store) == ["a"]


@pytest.mark.usefixtures("worker")
def test_a_retry(store: Store, clock: TestClock) -> None:
    put(store, "a", retries=3, backoff=10_000)
    take(store)
    end(store, "a", Error(b'{"type":"ValueError","message":"no"}', "ValueError"))
    assert codes(store) == ["retrying"]
    found = reason(store)
    assert (found["outcome"], found["attempt"], found["retry"], found["retries"]) == ("error", 1, 1, 3)
    assert b"ValueError" in found["error"]
    clock.advance((found["due"] - clock.now) / 1000)
    assert explained(store)["ready"] == 1


@pytest.mark.usefixtures("worker")
def test_a_snooze_and_a_task_that_the_last_worker_did_not_know(store: Store, clock: TestClock) -> None:
    put(store, "a")
    take(store)
    end(store, "a", Snoozed(5000))
    assert (codes(store), reason(store)["outcome"]) == (["not-due"], "snoozed")
    clock.advance(5)
    assert take(store) == ["a"]
    end(store, "a", Unknown())
    assert codes(store) == ["unknown-to-last"]
    clock.advance(60)
    assert explained(store)["ready"] == 1


@pytest.mark.usefixtures("worker")
def test_a_job_that_must_run_alone_and_was_released_by_a_worker_that_cannot(store: Store, clock: TestClock) -> None:
    put(store, "a", "b")
    take(store, limit=2)
    store.run(commands.requeue_orphaned(executor=ONE))
    assert explained(store)["alone"] == 1
    assert take(store, TWO) == ["a"]
    why = Release("it must run alone; an embedded worker cannot", 1000)
    store.run(commands.finish(TWO, [Finish("a", 2, why, unstarted=True)]))
    assert (codes(store), reason(store)["reason"]) == (["alone"], why.reason)
    clock.advance(1)
    assert explained(store)["ready"] == 1


@pytest.mark.usefixtures("worker")
def test_dependencies_in_every_state(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "done", "fails", "runs", "gone", "damaged", "waits")
    put(store, "a", after=["done", "fails", "runs", "gone", "damaged", "waits"])
    assert take(store, limit=3) == ["done", "fails", "runs"]
    end(store, "done", Succeed(b"1"))
    end(store, "fails", Error(b"{}", "x", final=True))
    base = f"hf:{{{namespace}}}:"
    gone, before = client.hgetall(f"{base}j:gone"), client.hget(f"{base}j:damaged", "h")
    client.delete(f"{base}j:gone")
    client.hset(f"{base}j:damaged", "h", b"\x01")
    states = dict(reason(store)["by"])
    assert states == {"fails": "failed", "runs": "running", "gone": "deleted", "damaged": "damaged", "waits": "waiting"}
    assert reason(store)["by"][0] == ["fails", "failed"]
    assert (codes(store), reason(store)["count"]) == (["blocked"], 5)
    client.hset(f"{base}j:damaged", "h", before)
    client.hset(f"{base}j:gone", mapping=gone)
    store.run(commands.depend("a", remove=["fails", "gone", "damaged", "waits"]))
    assert reason(store)["by"] == [["runs", "running"]]
    end(store, "runs", Succeed(b"1"))
    assert codes(store) == ["ready"]


@pytest.mark.usefixtures("worker")
def test_a_paused_queue(store: Store) -> None:
    put(store, "a")
    store.run(commands.pause("q"))
    assert codes(store) == ["paused"]
    assert take(store) == []
    store.run(commands.resume("q"))
    assert codes(store) == ["ready"]


@pytest.mark.usefixtures("worker")
def test_the_concurrency_of_a_queue(store: Store) -> None:
    put(store, "r", "a", "b")
    store.run(commands.configure("q", set={"concurrency": 1}))
    assert take(store, limit=3) == ["r"]
    assert codes(store) == ["concurrency"]
    assert reason(store) == {"slots": 1, "free": 0, "ahead": 0, "held": 1, "holders": ["r"]}
    end(store, "r", Succeed(b"1"))
    assert codes(store) == ["ready"]
    assert (codes(store, "b"), reason(store, "b")["ahead"], reason(store, "b")["free"]) == (["concurrency"], 1, 1)
    assert take(store, limit=3) == ["a"]


@pytest.mark.usefixtures("worker")
def test_a_limit_and_who_holds_it(store: Store) -> None:
    store.run(commands.set_limit("gpu", 1))
    put(store, "r", "a", "b", limits=("gpu:0",))
    assert codes(store, "r") == ["ready"]
    assert (codes(store), reason(store)["free"]) == (["limit"], 1)  # the one ahead of it takes the slot
    assert take(store, limit=3) == ["r"]
    assert explained(store)["state"] == "throttled"
    assert codes(store) == ["limit"]
    found = reason(store)
    assert (found["limit"], found["slots"], found["free"], found["holders"]) == ("gpu:0", 1, 0, ["r"])
    end(store, "r", Succeed(b"1"))
    assert codes(store) == ["ready"]
    assert codes(store, "b") == ["limit"]
    assert explained(store, "b")["ready"] == 0
    assert take(store, limit=3) == ["a"]


@pytest.mark.usefixtures("worker")
def test_a_limit_per_period_and_its_next_slot(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 1, per=10_000))
    put(store, "r", "a", limits=("api",))
    clock.advance(1)
    assert take(store, limit=2) == ["r"]
    assert (codes(store), reason(store)["next"], reason(store)["per"]) == (["limit"], clock.now + 10_000, 10_000)
    clock.advance(10)
    assert explained(store)["ready"] == 1
    assert take(store) == ["a"]


@pytest.mark.usefixtures("worker")
def test_a_deadline_that_has_passed(store: Store, clock: TestClock) -> None:
    put(store, "a", deadline=5000)
    assert (codes(store), explained(store)["deadline"]) == (["ready"], clock.now + 5000)
    clock.advance(5)
    assert codes(store) == ["deadline"]
    assert take(store) == []
    assert codes(store) == ["ended"]


@pytest.mark.usefixtures("worker")
def test_a_payload_that_is_lost(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "a", payload=b"x" * 100)
    assert codes(store) == ["ready"]
    kept = client.get(f"hf:{{{namespace}}}:p:a")
    client.delete(f"hf:{{{namespace}}}:p:a")
    assert codes(store) == ["payload-lost"]
    client.set(f"hf:{{{namespace}}}:p:a", kept)
    assert codes(store) == ["ready"]


@pytest.mark.usefixtures("worker")
def test_a_record_that_cannot_be_read(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "a")
    whole = client.hgetall(f"hf:{{{namespace}}}:j:a")
    client.hset(f"hf:{{{namespace}}}:j:a", "h", b"\x01")
    assert explained(store) == {"id": "a", "unreadable": "DAMAGED", "reasons": []}
    client.hset(f"hf:{{{namespace}}}:j:a", mapping=whole)
    assert codes(store) == ["ready"]


def test_no_worker_at_all_and_none_for_this_queue(store: Store, clock: TestClock) -> None:
    put(store, "a")
    assert codes(store) == ["no-worker"]
    assert explained(store)["ready"] == 1  # a claim would take it
    serve(store, "mail", "video-*", about='{"queues":["mail","video-*","!video-x"]}')
    assert codes(store) == ["unserved"]
    assert reason(store)["served"] == ["mail", "video-*", "!video-x"]
    put(store, "v", queue="video-1")
    be_idle(store, "video-2")
    assert codes(store, "v") == ["ready"]
    clock.advance(31)  # without a heartbeat
    assert codes(store) == codes(store, "v") == ["no-worker"]
    serve(store)
    assert codes(store) == ["ready"]


def test_workers_that_drain(store: Store) -> None:
    put(store, "a")
    serve(store, about='{"draining":true}')
    serve(store, about='{"draining":true}', executor=TWO)
    assert (codes(store), reason(store)) == (["draining"], {"workers": 2})
    serve(store, executor=TWO)
    assert codes(store) == ["ready"]


def test_an_unknown_task_names_the_workers_and_their_tasks(store: Store) -> None:
    put(store, "a", task="tasks.sned")
    serve(store, about='{"tasks":["tasks.send","tasks.add"]}')
    assert codes(store) == ["unknown-task"]
    assert reason(store) == {"workers": 1, "names": ["node/one"], "tasks": ["tasks.add", "tasks.send"]}
    assert take(store) == ["a"]
    assert codes(store) == ["running", "unknown-task"]  # until the worker finds out
    end(store, "a", Release("stop"))
    serve(store, about="{}", executor=TWO)  # does not say
    assert codes(store) == ["ready"]


def test_each_of_many_jobs_has_the_tasks_that_the_workers_know(store: Store) -> None:
    put(store, "a", "b", task="tasks.sned")
    put(store, "known", task="tasks.add")
    put(store, "other", task="tasks.sned", queue="p")
    serve(store, about='{"tasks":["tasks.send","tasks.add"]}')
    serve(store, "p", about='{"tasks":["tasks.move"]}', executor=TWO)
    rows = [row for row in store.run(commands.explain(["a", "known", "b", "other"])) if row]
    assert [row["reasons"][-1][1].get("tasks") for row in rows] == [
        ["tasks.add", "tasks.send"], None, ["tasks.add", "tasks.send"], ["tasks.move"],
    ]  # fmt: skip


def test_programs_need_a_worker_that_allows_them(store: Store) -> None:
    put(store, "a", task=PROGRAM)
    serve(store)
    assert codes(store) == ["no-exec"]
    serve(store, about='{"allow_exec":true}', executor=TWO)
    assert codes(store) == ["ready"]


def test_all_slots_are_busy_with_jobs_ahead(store: Store) -> None:
    serve(store)
    put(store, "r", "s", "b", "a")
    assert take(store, limit=2) == ["r", "s"]
    assert (codes(store), reason(store)) == (["busy"], {"ahead": 1, "workers": 1, "held": 2})
    end(store, "r", Succeed(b"1"))
    assert take(store, limit=2) == ["b", "a"]


def test_an_item_needs_no_worker(store: Store) -> None:
    put(store, "a", task=ITEM_TASK, codec="raw")
    assert (codes(store), explained(store)["item"]) == (["item"], 1)
    store.run(commands.pause("q"))
    assert codes(store) == ["paused"]


@pytest.mark.usefixtures("worker")
def test_a_running_job_its_lease_and_a_cancellation(store: Store, clock: TestClock) -> None:
    put(store, "a")
    take(store)
    assert codes(store) == ["running"]
    found = reason(store)
    assert (found["executor"], found["lease_ends"], found["live"]) == (ONE, clock.now + LEASE * 1000, 1)
    store.run(commands.cancel(["a"]))
    assert reason(store)["cancelling"] == 1
    clock.advance(LEASE)
    assert codes(store) == ["lease-ended"]
    keep(store, Lease(ONE, "a", 1))
    assert codes(store) == ["running"]


@pytest.mark.usefixtures("worker")
def test_an_ended_job(store: Store) -> None:
    put(store, "a")
    take(store)
    end(store, "a", Error(b"{}", "Broken", final=True))
    assert (codes(store), reason(store)) == (["ended"], {"group": "Broken"})
    store.run(commands.retry(["a"]))
    assert codes(store) == ["ready"]


@pytest.mark.usefixtures("worker")
def test_further_reasons_follow_the_first(store: Store) -> None:
    store.run(commands.set_limit("gpu", 1))
    put(store, "r", "a", limits=("gpu",))
    take(store, limit=2)
    store.run(commands.pause("q"))
    put(store, "later", delay=5000)
    assert codes(store) == ["paused", "limit"]
    assert codes(store, "later") == ["not-due", "paused"]


@pytest.mark.usefixtures("worker")
def test_it_writes_nothing(store: Store, client: redis.Redis, namespace: str, clock: TestClock) -> None:
    store.run(commands.set_limit("gpu", 1))
    put(store, "r", "a", limits=("gpu",))
    put(store, "b", after=["a"])
    put(store, "c", delay=10)
    take(store)
    clock.advance(LEASE + 1)
    before = dump(client, namespace)
    store.run(commands.explain(["r", "a", "b", "c", "nobody"]))
    assert dump(client, namespace) == before


@pytest.mark.usefixtures("worker")
def test_more_than_a_hundred_ids_are_refused(store: Store) -> None:
    with pytest.raises(Exception, match="1 to 100"):
        store.run(commands.explain([f"j{n}" for n in range(101)]))


@pytest.mark.parametrize("field", ["s", "d"])
def test_damage_is_no_obstacle_to_the_explanations_of_others(
    store: Store, server_url: str, namespace: str, field: str
) -> None:
    serve(store)
    put(store, "damaged", deadline=5000)
    put(store, "a", "b", "c")
    put(store, "d", after=["damaged"])
    with redis.Redis.from_url(server_url) as client:
        key = f"hf:{{{namespace}}}:j:damaged"
        saved = client.hget(key, field)
        assert saved
        client.hset(key, field, "?")
        rows = store.run(commands.explain(["damaged", "a", "b", "d"]))
        assert [row and row.get("unreadable") for row in rows] == ["DAMAGED", None, None, None]
        assert [row["ahead"] for row in rows[1:3] if row] == [0, 1]
        client.hset(key, field, saved)


def test_dependencies_that_cannot_be_read_make_one_job_unreadable(
    store: Store, server_url: str, namespace: str
) -> None:
    put(store, "first", "other")
    put(store, "a", after=["first"])
    key = f"hf:{{{namespace}}}:a:a"
    with redis.Redis.from_url(server_url) as client:
        saved = client.dump(key)
        assert saved
        client.set(key, "not a hash")
        rows = store.run(commands.explain(["a", "other"]))
        assert [row and row.get("unreadable") for row in rows] == ["DAMAGED", None]
        client.restore(key, 0, saved, replace=True)


def test_many_workers_that_do_not_know_a_task_are_asked_quickly(store: Store) -> None:
    about = json.dumps({"tasks": [f"app.task_{number}" for number in range(100)], "queues": ["q"]})
    for number in range(200):
        serve(store, executor=f"node/w{number}.0", about=about)
    put(store, "a", "b")
    put(store, "known", task="app.task_99")
    assert codes(store) == codes(store, "b") == ["unknown-task"]
    assert "unknown-task" not in codes(store, "known")
