"""Operations: the same action on all jobs that match filters; stopped, resumed, and continued by others."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, errors
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.caller import caller_name
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import end, fields, put, take
from tests.support.new_job import NewJob
from tests.support.workers import Crew, until


@pytest.fixture
def jobs(server_url: str, namespace: str) -> Iterator[Holdfast]:
    app = Holdfast(server_url, namespace=namespace)
    yield app
    app.close()


def many(store: Store, number: int, prefix: str = "j", **options: object) -> list[str]:
    ids = [f"{prefix}{n:04}" for n in range(number)]
    for first in range(0, number, 1000):
        put(store, *ids[first : first + 1000], **options)
    return ids


def test_all_jobs_of_a_task_are_cancelled_and_no_others(jobs: Holdfast, store: Store) -> None:
    many(store, 1700, task="remind")
    many(store, 30, "k", task="other")
    many(store, 20, "l", task="remind", queue="elsewhere")
    many(store, 5, "m", task="remind", delay=60_000)
    take(store, limit=3)

    counts = jobs.cancel_all(queue="q", task="remind", reason="too late").counts

    assert counts == {"cancelled": 1702, "cancelling": 3}
    assert [jobs.count(state=state) for state in ("cancelled", "running", "waiting")] == [1702, 3, 50]


def test_jobs_that_fail_again_while_all_are_retried_are_met_once(store: Store, clock: TestClock) -> None:
    ids = many(store, 3, retries=0)
    for id in take(store, limit=3):
        end(store, id, Error(b"", "SMTP"))
    operation = store.run(commands.start_operation("o", "retry", states=["failed"], group="SMTP"))
    while operation.state == "running":
        clock.advance(1)
        operation = store.run(commands.continue_operation("o", operation.steps, limit=1))
        clock.advance(1)
        for id in take(store, limit=3):
            end(store, id, Error(b"", "SMTP"))

    assert operation.answers == {"waiting": 3}
    assert fields(store, ids[0], "state", "attempt") == ("failed", 2)


def test_failures_of_one_group_are_retried(jobs: Holdfast, store: Store) -> None:
    many(store, 4, retries=0)
    for number, id in enumerate(take(store, limit=4)):
        end(store, id, Error(b"", "SMTP" if number % 2 else "Disk"))

    assert jobs.retry_all(group="SMTP").counts == {"waiting": 2}
    assert jobs.delete_all(state="failed").counts == {"deleted": 2}


def test_bulk_delete_reports_jobs_with_dependents_and_keeps_them(jobs: Holdfast, store: Store) -> None:
    put(store, "a", "b")
    put(store, "c", after=("a",), queue="next")
    for id in take(store, limit=2):
        end(store, id, Error(b"", "g", final=True))

    assert jobs.delete_all(queue="q").counts == {"deleted": 1, "has dependents": 1}


def test_jobs_are_moved_released_and_failed(jobs: Holdfast, store: Store) -> None:
    many(store, 10)
    assert jobs.move_all(queue="q", to="slow", priority=5).counts == {"waiting": 10}
    take(store, "node/one.0", "slow", limit=4)
    assert jobs.release_all(queue=["slow"]).counts == {"waiting": 4}
    assert jobs.fail_all(queue="slow", with_group="given-up", reason="nobody needs them").counts == {"failed": 10}
    assert jobs.count(state="failed") == 10


def test_a_bulk_action_needs_a_filter(jobs: Holdfast) -> None:
    with pytest.raises(errors.Invalid, match="give queue, state, task, group"):
        jobs.cancel_all()
    with pytest.raises(errors.Invalid, match="unknown state"):
        jobs.cancel_all(state="asleep")
    with pytest.raises(errors.Invalid, match="specify `to`"):
        jobs.move_all(queue="q")


def test_bulk_actions_report_progress(jobs: Holdfast, store: Store) -> None:
    many(store, 1200)
    seen: list[int] = []

    jobs.cancel_all(queue="q", progress=seen.append)

    assert sum(seen) == 1200
    assert len(seen) > 1


def test_bulk_actions_have_async_methods(server_url: str, namespace: str, store: Store) -> None:
    put(store, "a")
    take(store)
    end(store, "a", Succeed(b""))

    async def run() -> dict[str, int]:
        app = Holdfast(server_url, namespace=namespace)
        counts = (await app.adelete_all(queue="q")).counts
        await app.aclose()
        return counts

    assert asyncio.run(run()) == {"deleted": 1}


def test_all_matching_jobs_are_tagged_and_untagged(jobs: Holdfast, store: Store) -> None:
    many(store, 60)
    put(store, "full", tags=[str(number) for number in range(32)])
    jobs.tag("j0000", "incident")
    take(store)
    tagged = jobs.tag_all(["incident"], queue="q")
    assert tagged.counts == {"tagged": 59, "unchanged": 1, "has too many tags": 1}
    assert jobs.count(tag="incident") == 60
    untagged = jobs.untag_all(["incident"], tag="incident")
    assert (untagged.counts, untagged.looked_at) == ({"untagged": 60}, 60)
    with pytest.raises(errors.Invalid, match="no tags are given"):
        jobs.tag_all([], queue="q")
    with pytest.raises(errors.Invalid, match="needs a filter"):
        jobs.tag_all(["incident"])


def test_a_filter_that_selects_everything_or_nothing_by_mistake_is_refused(jobs: Holdfast) -> None:
    with pytest.raises(errors.Invalid, match="id_prefix is empty"):
        jobs.cancel_all(id_prefix="")
    with pytest.raises(errors.Invalid, match="use with_group"):
        jobs.fail_all(queue="q", group="given-up")
    with pytest.raises(errors.Invalid, match="since is later than until"):
        jobs.retry_all(since="1h", until="2h")
    assert jobs.count(since="2h", until="1h") == 0


# Operations live in the store


def test_an_operation_that_nobody_waits_for_is_driven_by_whoever_asks(jobs: Holdfast, store: Store) -> None:
    many(store, 700)

    started = jobs.cancel_all(queue="q", wait=False)
    assert (started.state, started.counts, started.total) == ("running", {}, 700)
    assert jobs.count(state="waiting") == 700

    done = jobs.operation(started.id).wait()
    assert (done.state, done.counts, done.looked_at, done.acted_on) == ("done", {"cancelled": 700}, 700, 700)
    assert [each.id for each in jobs.operations()] == [started.id]
    assert done.filter == {"queues": ["q"], "states": ["scheduled", "waiting", "blocked", "throttled", "running"]}
    assert "@" in done.who


def test_an_operation_is_stopped_half_way_and_resumed(jobs: Holdfast, store: Store) -> None:
    many(store, 700)
    operation = jobs.cancel_all(queue="q", wait=False)

    stopped = operation.wait(progress=lambda _: operation.stop())
    assert stopped.state == "stopped"
    assert 0 < stopped.counts["cancelled"] == jobs.count(state="cancelled") < 700
    assert operation.stop().state == "stopped"
    many(jobs.store, 5, "later")  # by the clock of the server

    resumed = operation.resume()
    assert resumed.state == "running"
    assert resumed.wait().counts == {"cancelled": 700}
    assert operation.resume().state == "done"
    assert jobs.count(state="waiting") == 5


def test_upkeep_continues_an_operation_whose_driver_is_gone(store: Store, clock: TestClock) -> None:
    many(store, 300)
    store.run(commands.start_operation("o", "cancel", queues=["q"]))
    store.run(commands.continue_operation("o", 0))
    steps = 1

    clock.advance(4.9)
    take(store, "node/two.0", "other")
    assert the_operation(store).steps == steps  # its driver may only be slow
    while (operation := the_operation(store)).state == "running":
        clock.advance(5 if operation.steps == steps else 0.02)
        request = commands.claim_args(["other"], counter=operation.steps + 1_000_000, limit=1)
        claim = store.run(commands.claim("node/two.0", request))
        assert claim.wait <= 20  # it comes back soon, as it does the work
    assert operation.answers == {"cancelled": 300}
    assert operation.steps > 3


def test_a_program_that_does_only_upkeep_continues_operations(store: Store, clock: TestClock) -> None:
    many(store, 3)
    store.run(commands.start_operation("o", "cancel", queues=["q"]))
    assert store.run(commands.upkeep()).wait == 5000
    clock.advance(5)
    store.run(commands.upkeep())
    assert the_operation(store).answers == {"cancelled": 3}
    assert store.run(commands.upkeep()).wait is None


def test_events_of_an_operation_name_who_started_it(store: Store, clock: TestClock) -> None:
    many(store, 2)
    operation = store.run(commands.start_operation("o", "cancel", queues=["q"]))
    clock.advance(5)
    take(store, "node/two.0", "other")
    (event,) = [event for event in store.run(commands.events()).events if event.type == "cancelled"]
    assert event.who == operation.who == caller_name()


def test_a_repeated_step_changes_nothing(store: Store) -> None:
    many(store, 5)
    store.run(commands.start_operation("o", "cancel", queues=["q"]))
    first = store.run(commands.continue_operation("o", 0, limit=2))
    assert store.run(commands.continue_operation("o", 0, limit=2)) == first
    assert store.run(commands.start_operation("o", "delete", queues=["other"])) == first
    assert first.answers == {"cancelled": 2}


def test_each_job_is_moved_once_although_the_walk_meets_its_new_place(jobs: Holdfast, store: Store) -> None:
    many(store, 40, queue="a")
    many(store, 40, "k", queue="c")
    operation = store.run(commands.start_operation("o", "move", arguments={"queue": "b"}, states=["waiting"]))
    while operation.state == "running":  # the clock of this store stands
        operation = store.run(commands.continue_operation("o", operation.steps, limit=7))
    assert operation.answers == {"waiting": 80}
    assert jobs.count(queue="b") == 80
    assert store.execute("KEYS", f"hf:{{{store.address.namespace}}}:acted:*") == []


def test_jobs_set_aside_are_met_once(store: Store, clock: TestClock) -> None:
    """Those that outlive their queue's setting are a part of their own in the index of ended jobs."""
    put(store, "old", keep=40 * 86_400_000)
    for id in take(store):
        end(store, id, Succeed(b""))
    clock.advance(8 * 86_400)
    take(store, "node/two.0", "other")  # prunes
    many(store, 70, retries=0)
    for id in take(store, limit=70):
        end(store, id, Succeed(b""))
    clock.advance(1)
    operation = store.run(commands.start_operation("o", "cancel", states=["succeeded"]))
    while operation.state == "running":
        operation = store.run(commands.continue_operation("o", operation.steps, limit=1))
    assert (operation.answers, operation.looked_at) == ({"STATE": 71}, 71)
    far = -(2**52)  # a negative time counts from now: long before 1970
    assert store.run(commands.count(states=["succeeded"], since=far)) == 71
    assert len(store.run(commands.list_jobs(states=["succeeded"], since=far, limit=1000)).jobs) == 71


def test_the_last_hundred_operations_are_kept_and_no_more_can_run(jobs: Holdfast, store: Store) -> None:
    for number in range(100):
        store.run(commands.start_operation(f"o{number}", "cancel", queues=["q"]))
    with pytest.raises(errors.WrongState, match="100 operations are running"):
        jobs.cancel_all(queue="q")
    for number in range(100):
        store.run(commands.continue_operation(f"o{number}", 0))
    last = jobs.cancel_all(queue="q")
    assert len(jobs.operations()) == 100
    with pytest.raises(errors.OperationNotFound, match="the last 100 are kept"):
        jobs.operation("o0")
    assert jobs.operation(last.id).state == "done"


def test_the_operation_that_ends_last_is_kept_although_it_began_first(store: Store, clock: TestClock) -> None:
    many(store, 2)
    for id in ("done", "stopped"):
        store.run(commands.start_operation(id, "cancel", queues=["q"]))
    for number in range(101):
        clock.advance(0.01)
        store.run(commands.start_operation(f"o{number}", "cancel", queues=["none"]))
        store.run(commands.continue_operation(f"o{number}", 0))
    assert store.run(commands.continue_operation("done", 0)).state == "done"
    clock.advance(0.01)
    assert store.run(commands.stop_operation("stopped")).state == "stopped"
    kept = {each.id for each in store.run(commands.operations())}
    assert len(kept) == 100
    assert {"done", "stopped", "o100"} <= kept


def change_record(store: Store, id: str, **fields: str) -> None:
    key = f"hf:{{{store.address.namespace}}}:op:{id}"
    store.execute("HSET", key, *(part for pair in fields.items() for part in pair))


@pytest.mark.parametrize(("field", "text"), [("action", "paint"), ("filter", '{"colour":"red"}'), ("cursor", "z,1,a")])
def test_claims_go_on_beside_an_operation_that_only_a_newer_release_knows(
    store: Store, clock: TestClock, field: str, text: str
) -> None:
    many(store, 5)
    store.run(commands.start_operation("new", "cancel", queues=["q"]))
    store.run(commands.start_operation("old", "cancel", id_prefix="j0004"))
    change_record(store, "new", **{field: text})
    clock.advance(6)
    assert take(store) == ["j0000"]
    assert store.run(commands.operations(["new"]))[0].answers == {}
    with pytest.raises(errors.Invalid):
        store.run(commands.continue_operation("new", 0))
    assert take(store) == ["j0001"]  # and the other operation gets its turn
    assert store.run(commands.operations(["old"]))[0].answers == {"cancelled": 1}


@pytest.mark.parametrize("field", ["steps", "started", "total", "filter", "with", "n:cancelled"])
def test_a_damaged_operation_is_left_out_and_changes_no_jobs(
    jobs: Holdfast, store: Store, clock: TestClock, field: str
) -> None:
    many(store, 5)
    for id in ("damaged", "fine"):
        store.run(commands.start_operation(id, "cancel", queues=["none"]))
    change_record(store, "damaged", **{field: "{x"})
    assert [each.id for each in jobs.operations()] == ["fine"]
    with pytest.raises(errors.OperationNotFound):
        jobs.operation("damaged")
    clock.advance(6)
    assert take(store, limit=5) == [f"j{n:04}" for n in range(5)]
    store.execute("DEL", f"hf:{{{store.address.namespace}}}:op:damaged")
    assert [each.id for each in jobs.operations()] == ["fine"]
    jobs.stop_operation("fine")
    store.execute("ZREM", f"hf:{{{store.address.namespace}}}:operations", "damaged")
    assert [each.id for each in jobs.operations()] == ["fine"]


@pytest.mark.parametrize("ids", ["x", 3, ["x"] * 1001])
def test_named_operations_are_a_bounded_list(store: Store, ids: object) -> None:
    with pytest.raises(errors.Invalid, match="must be a list"):
        store.run(commands.Command("operations", {"ids": ids}, lambda reply: reply))


def test_times_that_count_from_now_count_from_the_start(store: Store, clock: TestClock) -> None:
    many(store, 1)
    clock.advance(60)
    many(store, 1, "k")
    store.run(commands.start_operation("o", "cancel", since=-1000))
    clock.advance(60)
    assert store.run(commands.continue_operation("o", 0)).answers == {"cancelled": 1}
    assert fields(store, "k0000", "state") == ("cancelled",)


def test_an_operation_has_async_methods(server_url: str, namespace: str, store: Store) -> None:
    many(store, 3)

    async def run() -> list[str]:
        app = Holdfast(server_url, namespace=namespace)
        operation = await app.acancel_all(queue="q", wait=False)
        states = [(await operation.astop()).state, (await operation.aresume()).state]
        done = await operation.wait_async()
        states += [done.state, (await operation.arefresh()).state, *(each.state for each in await app.aoperations())]
        await app.aclose()
        return states

    assert asyncio.run(run()) == ["stopped", "running", "done", "done", "done"]


def the_operation(store: Store) -> commands.OperationReply:
    (operation,) = store.run(commands.operations())
    return operation


# A killed driver, live workers

DRIVER = """
import os, signal, sys
from holdfast import Holdfast
jobs = Holdfast(sys.argv[1], namespace=sys.argv[2])
steps = []
def progress(count):
    steps.append(count)
    if len(steps) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
jobs.move_all(queue="old", to="default", progress=progress)
"""


def test_an_operation_outlives_its_driver_beside_live_workers(crew: Crew) -> None:
    """5,000 jobs; `bench/operations.py` does the same with 200,000."""
    app = crew.app

    def new(number: int) -> NewJob:
        return NewJob(id=f"n{number}", payload=b"{}", queue="old", task="nobody.knows")

    for first in range(0, 5000, 1000):
        app.store.run(commands.enqueue([new(first + n) for n in range(1000)]))
    killed = subprocess.run([sys.executable, "-c", DRIVER, crew.url, app.address.namespace], check=False)
    assert killed.returncode == -signal.SIGKILL
    (operation,) = app.operations()
    assert (operation.state, 0 < operation.acted_on < 5000) == ("running", True)

    crew.start("--processes", "1", "--queues", "elsewhere")
    until(lambda: app.operations()[0].acted_on > operation.acted_on, what="no worker continued it")
    stopped = operation.stop()
    assert stopped.counts == {"waiting": app.count(queue="default")}
    assert operation.resume().wait().counts == {"waiting": 5000}
    assert (app.count(queue="old"), app.count(queue="default")) == (0, 5000)
