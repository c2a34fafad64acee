"""Calls that are repeated because their reply was lost, and ids that are reused."""

from __future__ import annotations

from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, TWO, end, job, new, put, take


def test_a_retry_that_is_repeated_runs_the_job_once(store: Store) -> None:
    put(store, "a", retries=0)
    take(store)
    end(store, "a", Error(b"{}", "g"))
    retry = commands.retry(["a"])

    assert store.run(retry) == ["waiting"]
    assert store.run(retry) == ["waiting"]
    take(store)
    end(store, "a", Succeed(b"1"))
    assert store.run(retry) == ["waiting"]
    assert job(store, "a")["state"] == "succeeded"
    assert store.run(commands.retry(["a"])) == ["waiting"]
    assert job(store, "a")["state"] == "waiting"


def test_a_cancellation_that_is_repeated_gets_the_same_answer(store: Store) -> None:
    put(store, "waits", "runs")
    take(store)
    waits, runs = sorted(["waits", "runs"], key=lambda id: job(store, id)["state"] == "running")
    cancel = commands.cancel([waits, runs])

    assert store.run(cancel) == ["cancelled", "cancelling"]
    end(store, runs, Succeed(b"1"))
    assert store.run(cancel) == ["cancelled", "cancelling"]
    assert store.run(commands.cancel([waits, runs])) == ["STATE", "STATE"]


def test_a_repeated_enqueue_with_on_exists_does_not_conflict_with_itself(store: Store) -> None:
    careful = commands.enqueue([new("a")], on_exists="error")
    replacing = commands.enqueue([new("b", payload=b"new")], on_exists="replace")
    put(store, "b", payload=b"old")

    for _ in range(2):
        assert store.run(careful).created == [True]
        assert store.run(replacing).created == [True]
    assert take(store, limit=5) == ["a", "b"]
    assert store.run(replacing).created == [True]
    assert (job(store, "b")["state"], job(store, "b")["payload"]) == ("running", b"new")


def test_a_job_that_is_not_kept_is_not_stored_again_after_it_has_ended(store: Store) -> None:
    enqueue = commands.enqueue([new("a", keep=False)])
    store.run(enqueue)
    take(store)
    end(store, "a", Succeed(b"1"))

    assert store.run(enqueue).created == [True]
    assert store.run(commands.get(["a"])) == [None]
    assert take(store) == []


def test_jobs_with_fresh_ids_are_stored_once(store: Store) -> None:
    enqueue = commands.enqueue([new("a"), new("b")], fresh=True)
    assert [store.run(enqueue).created for _ in range(2)] == [[True, True]] * 2
    store.run(commands.cancel(["a"]))
    store.run(commands.delete(["a"]))

    assert store.run(enqueue).created == [True, True]
    assert store.run(commands.get(["a"])) == [None]


def test_a_note_that_is_repeated_is_written_once(store: Store) -> None:
    put(store, "a")
    take(store)
    note, save = commands.note("a", "seen"), commands.save(Lease(ONE, "a", 1), notes=["half", "more"])
    for command in (note, save, save, note):
        store.run(command)

    assert [words for _, _, words, _ in job(store, "a")["notes"]] == [b"seen", b"half", b"more"]


def test_a_call_that_changed_nothing_runs_when_it_is_repeated(store: Store) -> None:
    cancel, retry = commands.cancel(["a"]), commands.retry(["a"])
    assert (store.run(cancel), store.run(retry)) == (["NOTFOUND"], ["NOTFOUND"])
    put(store, "a")

    assert (store.run(retry), store.run(cancel)) == (["STATE"], ["cancelled"])
    assert (store.run(retry), store.run(cancel)) == (["waiting"], ["cancelled"])
    assert job(store, "a")["state"] == "waiting"


def test_an_executor_cannot_write_to_a_later_job_with_the_same_id(store: Store, clock: TestClock) -> None:
    put(store, "a")
    [old] = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=1, limit=1))).jobs
    store.run(commands.requeue_orphaned(executor=ONE))
    clock.advance(1)
    assert take(store, TWO) == ["a"]
    end(store, "a", Succeed(b"1"), TWO)
    store.run(commands.enqueue([new("a")], on_exists="replace"))
    [again] = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=2, limit=1))).jobs

    assert (again.id, again.attempt) == (old.id, old.attempt)
    stale = Finish("a", 1, Succeed(b"stale"), created=old.created)
    assert store.run(commands.finish(ONE, [stale])).answers == ["LOST"]
    fresh = Finish("a", 1, Succeed(b"fresh"), created=again.created)
    assert store.run(commands.finish(ONE, [fresh])).answers == ["OK"]
    assert store.run(commands.finish(ONE, [stale, fresh])).answers == ["LOST", "OK"]


def test_of_a_thousand_and_one_jobs_of_a_dead_executor_none_is_charged(store: Store) -> None:
    put(store, *(str(number) for number in range(1000)))
    take(store, limit=1000)
    put(store, "last")
    assert take(store) == ["last"]

    while store.run(commands.requeue_orphaned(executor=ONE)):
        pass
    assert {found["crashes_used"] for found in store.run(commands.list_jobs(limit=1000)).jobs} == {0}
    assert job(store, "last")["crashes_used"] == 0


def test_more_than_a_thousand_queues_are_counted_and_listed(store: Store) -> None:
    for first in range(0, 1500, 500):
        jobs = [new(str(number), queue=f"q{number}") for number in range(first, first + 500)]
        store.run(commands.enqueue(jobs))

    found, cursor, calls = 0, None, 0
    while calls == 0 or cursor:
        step = store.run(commands.count_step(cursor=cursor))
        found, cursor, calls = found + step.found, step.cursor, calls + 1
    assert calls > 1
    assert found == 1500
    names, cursor = [], None
    while cursor != "":
        page = store.run(commands.queues(cursor=cursor))
        assert len(page.queues) <= 250
        names += [queue.name for queue in page.queues]
        cursor = page.cursor
    assert names == sorted(f"q{number}" for number in range(1500))


def test_long_progress_is_kept_apart_from_the_record(store: Store) -> None:
    put(store, "a")
    take(store)
    for progress in ("x" * 500, "short", "y" * 500):
        store.run(commands.save(Lease(ONE, "a", 1), progress=progress))
        assert job(store, "a")["progress"] == progress
    assert store.execute("OBJECT", "ENCODING", f"hf:{{{store.address.namespace}}}:j:a") == b"listpack"


def test_a_dead_executor_consumes_no_wake_up(store: Store, clock: TestClock) -> None:
    for executor in (ONE, TWO):
        assert take(store, executor) == []
        clock.advance(0.1)
    store.run(commands.requeue_orphaned(worker="node/two"))
    put(store, "a")

    base = f"hf:{{{store.address.namespace}}}:wake:"
    assert store.execute("LRANGE", base + ONE, 0, -1) == [b"q"]
    assert store.execute("EXISTS", base + TWO) == 0
