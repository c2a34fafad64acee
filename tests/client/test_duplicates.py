"""Unique ids and keys, debounced jobs, jobs that are not kept, and jobs that run at most once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from holdfast import Holdfast, Invalid, JobExists, JobNotFound, StoreUnavailable, WrongState
from holdfast.job.outcome import Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.commands import EnqueueReply, Finish
from holdfast.store.store import Store
from holdfast.task.task import Task
from tests.apps import worker_app
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import (
    ONE,
    TWO,
    dump,
    end,
    fields,
    job,
    new,
    put,
    standing,
    take,
)
from tests.support.consistency import check_all_keys, client
from tests.support.new_job import NewJob
from tests.support.workers import Crew, until

__all__ = ["check_all_keys", "client"]  # fixtures

SPANS: list[str | int] = ["queued", "pending", "kept", 60_000]


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


@pytest.fixture
def timed(app: Holdfast, store: Store) -> Holdfast:
    """The app under the test's clock."""
    app.store = store
    return app


@pytest.fixture
def send(timed: Holdfast) -> Task[[str], None]:
    @timed.task(name="send", queue="q")
    def send(words: str) -> None: ...

    return send


def store_all(store: Store, *jobs: NewJob, on_exists: str = "return", **options: Any) -> EnqueueReply:
    return store.run(commands.enqueue(jobs, on_exists=on_exists, **options))


def one(
    store: Store, id: str, key: str = "k", span: str | int | None = None, on_exists: str = "return"
) -> tuple[Any, ...]:
    """Enqueue a job with a key: returns whether it was stored, and under which id."""
    stored = store_all(store, new(id, payload=id.encode(), unique=key, unique_for=span), on_exists=on_exists)
    return stored.created[0], stored.ids[0]


def names(client: redis.Redis, namespace: str) -> set[str]:
    """The keys of the namespace, but for answers that are remembered for some minutes."""
    keys = (key.decode().partition("}:")[2] for key in dump(client, namespace))
    return {key for key in keys if not key.startswith("t:")}


# For how long a key is unique


@pytest.mark.parametrize(
    ("span", "free_when"),
    [
        ("queued", ["running", "ended", "deleted"]),
        ("pending", ["ended", "deleted"]),
        (None, ["ended", "deleted"]),
        ("kept", ["deleted"]),
        (60_000, []),
    ],
)
def test_a_key_is_unique_for_its_declared_span(store: Store, span: str | int | None, free_when: list[str]) -> None:
    assert one(store, "a", span=span) == (True, "a")
    found = {}

    def look(moment: str) -> None:
        stored, id = one(store, f"other-{moment}", span=span)
        found[moment] = stored
        assert id == (f"other-{moment}" if stored else "a")
        if stored:  # out of the way again
            store.run(commands.cancel([id]))
            store.run(commands.delete([id]))

    look("waiting")
    assert take(store) == ["a"]
    look("running")
    end(store, "a", Error(b"", "e", delay=0))
    assert take(store) == ["a"]
    end(store, "a", Succeed(b""))
    look("ended")
    store.run(commands.delete(["a"]))
    look("deleted")
    assert [moment for moment, stored in found.items() if stored] == free_when


def test_a_key_owned_for_a_duration_is_free_after_it_regardless_of_the_job(store: Store, clock: TestClock) -> None:
    one(store, "a", span=60_000)
    clock.advance(59)
    assert one(store, "b", span=60_000) == (False, "a")
    clock.advance(1)
    assert one(store, "b", span=60_000) == (True, "b")
    assert standing(store) == {"waiting": ["a", "b"]}
    assert 0 < store.execute("PTTL", f"hf:{{{store.address.namespace}}}:k:k") <= 60_000
    assert job(store, "a")["unique"] == job(store, "b")["unique"] == "k"


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("state", ["waiting", "scheduled"])
def test_on_exists_error_refuses_and_replace_keeps_the_id(store: Store, span: str | int, state: str) -> None:
    delay = 60_000 if state == "scheduled" else None
    store_all(store, new("a", unique="k", unique_for=span, delay=delay), new("other"))
    with pytest.raises(JobExists, match="job a with the unique key k already exists"):
        one(store, "b", span=span, on_exists="error")
    assert one(store, "b", span=span, on_exists="replace") == (True, "a")
    assert fields(store, "a", "state", "payload", "unique") == ("waiting", b"b", "k")
    assert standing(store) == {"waiting": ["other", "a"]}


@pytest.mark.parametrize("span", ["pending", "kept", 60_000])
def test_a_job_that_runs_is_not_replaced(store: Store, client: redis.Redis, namespace: str, span: str | int) -> None:
    one(store, "a", span=span)
    take(store)
    before = dump(client, namespace)
    with pytest.raises(WrongState, match="job a is running and cannot be replaced"):
        one(store, "b", span=span, on_exists="replace")
    assert dump(client, namespace) == before


def test_replacing_by_id_takes_no_key_from_a_third_job(store: Store, client: redis.Redis, namespace: str) -> None:
    one(store, "owner")
    put(store, "a")
    before = dump(client, namespace)
    with pytest.raises(JobExists, match="job a cannot be replaced: job owner owns the unique key k"):
        one(store, "a", on_exists="replace")
    assert dump(client, namespace) == before
    assert one(store, "a") == (False, "a")  # by its id


def test_replacing_a_job_frees_the_key_that_it_had(store: Store) -> None:
    one(store, "a", "old")
    assert one(store, "a", "new", on_exists="replace") == (True, "a")
    assert one(store, "b", "old") == (True, "b")
    assert one(store, "c", "new") == (False, "a")


@pytest.mark.parametrize("how", ["delete", "prune", "succeed unkept", "cancel unkept", "replace by id"])
def test_no_key_is_left_when_its_job_goes(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str, how: str
) -> None:
    span = "pending" if "unkept" in how else "kept"
    store_all(store, new("a", unique="k", unique_for=span, keep=False if "unkept" in how else None))
    assert "k:k" in names(client, namespace)
    if how == "cancel unkept":
        store.run(commands.cancel(["a"]))
    elif how == "replace by id":
        store_all(store, new("a"), on_exists="replace")
    else:
        take(store)
        end(store, "a", Succeed(b""))
    if how == "delete":
        store.run(commands.delete(["a"]))
    elif how == "prune":
        clock.advance(7 * 86_400)
        take(store)
    assert "k:k" not in names(client, namespace)
    assert one(store, "b") == (True, "b")


def test_a_key_that_is_kept_stays_as_long_as_the_record_also_if_that_is_made_longer(
    store: Store, clock: TestClock
) -> None:
    one(store, "a", span="kept")
    take(store)
    end(store, "a", Succeed(b""))
    assert store.execute("PTTL", f"hf:{{{store.address.namespace}}}:k:k") == -1
    store.run(commands.configure(set={"keep_succeeded": 30 * 86_400_000}))
    clock.advance(20 * 86_400)
    take(store)
    assert one(store, "b", span="kept") == (False, "a")


@pytest.mark.parametrize("outcome", [Unknown(), Release("stopping")])
def test_a_job_that_was_claimed_and_not_started_has_its_key_again_unless_another_has_it(
    store: Store, clock: TestClock, outcome: Outcome
) -> None:
    one(store, "a", span="queued")
    take(store)
    store.run(commands.finish(ONE, [Finish("a", 1, outcome, unstarted=True)]))
    assert one(store, "b", span="queued") == (False, "a")
    clock.advance(5)
    assert take(store) == ["a"]
    assert one(store, "c", span="queued") == (True, "c")
    store.run(commands.finish(ONE, [Finish("a", 2, outcome, unstarted=True)]))
    assert one(store, "d", span="queued") == (False, "c")


# Retrying a job whose key another has


@pytest.mark.parametrize("span", ["queued", "pending", "kept"])
def test_a_job_that_is_retried_has_its_key_again(store: Store, span: str) -> None:
    one(store, "a", span=span)
    take(store)
    end(store, "a", Error(b"", "e", final=True))
    assert store.run(commands.retry(["a"])) == ["waiting"]
    assert one(store, "b", span=span) == (False, "a")


def test_a_job_whose_key_another_has_by_now_is_not_retried(timed: Holdfast, send: Task[[str], None]) -> None:
    first = send.options(unique="k").enqueue("one")
    first.cancel()
    second = send.options(unique="k").enqueue("two")
    assert second.created
    with pytest.raises(JobExists, match=f"job {first.id} cannot be retried: another job has its unique key now"):
        first.retry()
    assert timed.get(first.id).state == "cancelled"
    second.cancel()
    first.retry()
    assert not send.options(unique="k").enqueue("three").created


# Several in one call


def test_one_call_stores_several_keys_and_returns_existing_owners(store: Store) -> None:
    one(store, "a", "k1")
    stored = store_all(store, new("b", unique="k1"), new("c", unique="k2"), new("d"))
    assert (stored.created, stored.ids) == ([False, True, True], ["a", "c", "d"])


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([new("b", unique="x"), new("c", task="other", unique="x")], "the unique key x occurs twice"),
        ([new("b"), new("c"), new("b", task="other")], "job b occurs twice"),
        ([new("b", unique="k"), new("a")], "job a occurs twice"),
        ([new("b", unique="k"), new("b", task="other")], "job b occurs twice"),
        ([new("b", unique="x"), new("c", unique="x")], "the unique key x occurs twice"),
    ],
)
@pytest.mark.parametrize("on_exists", ["return", "replace"])
def test_one_call_does_not_name_a_job_or_key_twice(
    store: Store, client: redis.Redis, jobs: list[NewJob], words: str, on_exists: str
) -> None:
    one(store, "a")
    before = dump(client, store.address.namespace)
    with pytest.raises(Invalid, match=words):
        store_all(store, *jobs, on_exists=on_exists)
    assert dump(client, store.address.namespace) == before


def test_the_client_stores_many_with_keys_and_returns_the_jobs_that_are_there(
    timed: Holdfast, send: Task[[str], None]
) -> None:
    there = send.options(unique="k1").enqueue("there")
    calls = [send.options(unique=f"k{number}").bind("new") for number in (1, 2)] + [send.bind("plain")]
    jobs = timed.enqueue_many(calls)
    assert [job.created for job in jobs] == [False, True, True]
    assert [job.id for job in jobs] == [there.id, calls[1].id, calls[2].id]
    assert [job.unique for job in jobs] == ["k1", "k2", ""]


# The client


def test_the_client_returns_the_existing_job_as_it_is_stored(timed: Holdfast, send: Task[[str], None]) -> None:
    for number, span in enumerate(SPANS):
        unique = send.options(unique=f"k{number}", unique_for=span if isinstance(span, str) else "1m")
        first = unique.enqueue("one")
        again = unique.enqueue("two")
        assert (first.created, again.created, again.id) == (True, False, first.id)
        assert first.unique == first.refresh().unique == again.unique == f"k{number}"
        with pytest.raises(JobExists, match=f"unique key k{number} already exists"):
            unique.options(on_exists="error").enqueue("three")
    assert timed.count() == len(SPANS)


def test_the_async_client_does_the_same(app: Holdfast) -> None:
    @app.task(name="send")
    def send(words: str) -> None: ...

    async def use() -> None:
        first = await send.options(unique="k").aenqueue("one")
        again = await send.options(unique="k").aenqueue("two")
        assert (first.created, again.created, again.id) == (True, False, first.id)
        replaced = await send.options(unique="k", on_exists="replace").aenqueue("three")
        assert (replaced.created, replaced.id) == (True, first.id)
        with pytest.raises(JobExists):
            await send.options(unique="k", on_exists="error").aenqueue("four")
        jobs = await app.aenqueue_many([send.bind("x") for _ in range(3)], fresh=True)
        assert [job.created for job in jobs] == [True] * 3
        await app.aclose()

    asyncio.run(use())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unique_for": "kept"}, "unique_for is given without unique"),
        ({"unique": "a b"}, "unique is 'a b'"),
        ({"unique": "k" * 129}, "1 to 128"),
        ({"unique": "k", "unique_for": "ever"}, "'queued', 'pending', 'kept'"),
        ({"unique": "k", "unique_for": 0}, "unique_for"),
        ({"debounce": "5s", "delay": "1s"}, "debounce and delay"),
        ({"debounce": "5s", "unique_for": "kept", "unique": "k"}, "debounce and unique_for"),
        ({"debounce": "5s", "on_exists": "error"}, "debounce and on_exists"),
        ({"debounce": 0}, "debounce"),
        ({"keep": False, "unique": "k", "unique_for": "kept"}, "the unique key would outlive the record of its job"),
        ({"keep": "no"}, "or True or False"),
        ({"at_most_once": 1}, "at_most_once is 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(send: Task[[str], None], options: Any, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        send.options(**options)


# Debounce


def test_of_debounced_calls_the_last_runs_once_after_a_pause(
    timed: Holdfast, store: Store, clock: TestClock, send: Task[[str], None]
) -> None:
    later = send.options(debounce="5s")
    first = later.enqueue("one")
    assert (first.state, first.unique, first.refresh().unique) == ("scheduled", "send", "send")
    for words in ("two", "three"):
        clock.advance(4)
        assert later.enqueue(words).id == first.id
        assert take(store) == []
    clock.advance(5)
    assert take(store) == [first.id]
    assert send.signature.decode(job(store, first.id)["payload"])[0] == ["three"]
    assert timed.count() == 1


def test_while_a_debounced_job_runs_or_waits_for_a_retry_a_call_makes_a_new_one(
    store: Store, clock: TestClock, send: Task[[str], None]
) -> None:
    later = send.options(debounce="5s")
    first = later.enqueue("one")
    clock.advance(5)
    take(store)
    second = later.enqueue("two")
    assert second.id != first.id
    end(store, first.id, Error(b"", "e", delay=1000))
    third = later.enqueue("three")
    assert third.id == second.id
    assert standing(store) == {"scheduled": [first.id, second.id]}


def test_a_debounced_job_that_is_due_and_waits_is_still_replaced(
    store: Store, clock: TestClock, send: Task[[str], None]
) -> None:
    first = send.options(debounce="5s").enqueue("one")
    clock.advance(5)
    take(store, ONE, "another")
    assert standing(store) == {"waiting": [first.id]}
    assert send.options(debounce="5s").enqueue("two").id == first.id
    assert standing(store) == {"scheduled": [first.id]}


def test_debounced_calls_with_keys_of_their_own_do_not_meet(timed: Holdfast, send: Task[[str], None]) -> None:
    for user in ("ann", "bob", "ann"):
        send.options(debounce="5s", unique=f"send:{user}").enqueue(user)
    assert timed.count() == 2


# Lost replies


@pytest.mark.parametrize("on_exists", ["return", "error", "replace"])
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("keep", [None, False])
def test_an_enqueue_with_a_key_that_is_repeated_stores_one_job(
    store: Store, on_exists: str, span: str | int, keep: bool | None
) -> None:
    command = commands.enqueue([new("a", unique="k", unique_for=span, keep=keep)], on_exists=on_exists)
    assert store.run(command).created == [True]
    again = store.run(command)
    assert again.ids == ["a"]
    take(store)
    assert store.run(command).ids == ["a"]
    end(store, "a", Succeed(b""))
    if keep is False or on_exists != "return" or span in ("kept", 60_000):
        assert store.run(command).ids == ["a"]
    assert take(store) == []
    assert store.run(commands.count(states=["scheduled", "waiting"])) == 0


@pytest.mark.parametrize("keep", [None, False])
def test_a_fresh_enqueue_that_is_repeated_stores_nothing_twice(store: Store, keep: bool | None) -> None:
    store.run(commands.configure(set={"keep_succeeded_count": 0}))
    command = commands.enqueue([new(str(number), keep=keep) for number in range(5)], fresh=True)
    assert store.run(command).created == [True] * 5
    assert store.run(command).created == [True] * 5
    assert take(store, limit=10) == ["0", "1", "2", "3", "4"]
    for id in ("0", "3"):
        end(store, id, Succeed(b""))
    assert store.run(command).created == [True] * 5
    assert take(store, limit=10) == []


def test_fresh_ids_that_exist_after_all_change_nothing(store: Store, client: redis.Redis, namespace: str) -> None:
    jobs = [new(str(number)) for number in range(5)]
    store_all(store, *jobs, fresh=True)
    assert store_all(store, *jobs, fresh=True).created == [True] * 5  # by another call, with a token of its own
    before = dump(client, namespace)
    with pytest.raises(JobExists, match="2 of these 3 jobs already exist: their ids are not fresh"):
        store_all(store, new("new"), *jobs[:2], fresh=True)
    with pytest.raises(Invalid, match="unique keys cannot be `fresh`"):
        store_all(store, new("x", unique="k"), fresh=True)
    after = dump(client, namespace)
    assert {key: value for key, value in after.items() if b"}:t:" not in key} == {
        key: value for key, value in before.items() if b"}:t:" not in key
    }


def test_the_client_stores_fresh_calls_in_parts_and_repeats_them_without_harm(
    timed: Holdfast, send: Task[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [send.bind(str(number)) for number in range(1500)]
    run, lost = timed.store.run, threading.Event()

    def lose_one_reply(command: commands.Command[Any]) -> Any:
        reply = run(command)
        if not lost.is_set():
            lost.set()
            raise StoreUnavailable("the reply was lost")
        return reply

    with monkeypatch.context() as patch:
        patch.setattr(timed.store, "run", lose_one_reply)
        with pytest.raises(StoreUnavailable):
            timed.enqueue_many(calls, fresh=True)
        jobs = timed.enqueue_many(calls, fresh=True)
    assert [job.id for job in jobs] == [call.id for call in calls]
    assert timed.count() == 1500


# Many at once


def test_one_of_many_threads_that_enqueue_a_key_stores_it(app: Holdfast) -> None:
    @app.task(name="send")
    def send(words: str) -> None: ...

    for number, on_exists in enumerate(["return", "replace"] * 3):
        ready = threading.Barrier(16)
        task = send.options(unique=f"k{number}", on_exists="return" if on_exists == "return" else "replace")

        def enqueue(words: str, task: Task[[str], None], ready: threading.Barrier) -> tuple[str, bool]:
            ready.wait()
            stored = task.enqueue(words)
            return stored.id, stored.created

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(enqueue, map(str, range(16)), [task] * 16, [ready] * 16))
        assert len({id for id, _ in found}) == 1
        if on_exists == "return":
            assert [created for _, created in found].count(True) == 1
        assert app.count() == number + 1


def test_one_of_many_processes_that_enqueue_a_key_stores_it(app: Holdfast, server_url: str) -> None:
    text = f"""
from holdfast import Holdfast
jobs = Holdfast({server_url!r}, namespace={app.address.namespace!r})
@jobs.task(name="send")
def send(words: str) -> None: ...
for number in range(100):
    print(number, send.options(unique=f"k{{number}}").enqueue("x").created)
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [process.communicate(timeout=60) for process in processes]
    assert [errors for _, errors in said] == [""] * 3
    lines = [line for words, _ in said for line in words.splitlines()]
    assert sorted(line for line in lines if line.endswith("True")) == sorted(f"{number} True" for number in range(100))
    assert app.count() == 100


# Jobs that are not kept


def run_to(store: Store, id: str, outcome: Outcome) -> str:
    take(store)
    return end(store, id, outcome)


@pytest.mark.parametrize("how", ["succeeded", "cancelled waiting", "cancelled running", "cancelled scheduled"])
def test_a_job_that_is_not_kept_leaves_no_key_behind(
    store: Store, client: redis.Redis, namespace: str, how: str
) -> None:
    put(store, "warm-up", keep=False)
    run_to(store, "warm-up", Succeed(b""))
    before = names(client, namespace)
    long = b"x" * 1000
    store_all(store, new("a", payload=long, keep=False, unique="k", delay=1 if how.endswith("scheduled") else None))
    store.run(commands.attach("a", {"colour": "red"}))
    store.run(commands.note("a", "words"))
    if how in ("succeeded", "cancelled running"):
        [claimed] = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=10**9, limit=1))).jobs
        held = commands.Lease(ONE, "a", claimed.attempt)
        store.run(commands.save(held, long, progress="p" * 100, notes=["said"]))
        end(store, "a", Error(long, "e", delay=0))
        run = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=10**9 + 1, limit=1))).jobs[0]
        if how == "cancelled running":
            store.run(commands.cancel(["a"], reason="why"))
            end(store, "a", Error(long, "e"), attempt=run.attempt)
        else:
            end(store, "a", Succeed(long), attempt=run.attempt)
    else:
        store.run(commands.cancel(["a"], reason="why"))
    for passing in ("inbox:*", "fi:*", "fingerprints"):  # the message to cancel, and what is known of the error
        client.delete(*client.keys(f"hf:{{{namespace}}}:{passing}") or ["none"])
    assert names(client, namespace) == before
    assert store.run(commands.get(["a"])) == [None]
    assert store_all(store, new("a")).created == [True]
    assert job(store, "a")["attempt"] == 0


def test_a_job_that_is_not_kept_stays_if_it_failed_and_goes_when_a_retry_succeeds(store: Store) -> None:
    put(store, "a", keep=False)
    run_to(store, "a", Error(b"", "e", final=True))
    assert fields(store, "a", "state", "keep") == ("failed", 0)
    assert not store_all(store, new("a")).created[0]
    store.run(commands.retry(["a"]))
    run_to(store, "a", Succeed(b""))
    assert store.run(commands.get(["a"])) == [None]


def test_a_finish_repeated_with_its_token_gets_the_same_answer_after_the_job_is_deleted(store: Store) -> None:
    put(store, "a", keep=False)
    take(store)
    finish, other = (commands.finish(ONE, [Finish("a", 1, Succeed(b""))], token=new_id()) for _ in range(2))
    assert store.run(finish).answers == ["OK"]
    assert store.run(finish).answers == ["OK"]
    assert store.run(other).answers == ["LOST"]


def test_an_unkept_enqueue_that_is_repeated_runs_nothing_twice(store: Store) -> None:
    command = commands.enqueue([new("a", keep=False)])
    assert store.run(command).created == [True]
    run_to(store, "a", Succeed(b""))
    assert store.run(command).created == [True]
    assert take(store) == []


def test_waiting_for_a_job_that_is_not_kept_raises_that_there_is_no_result(
    timed: Holdfast, store: Store, send: Task[[str], None]
) -> None:
    stored = send.options(keep=False).enqueue("x")
    assert (stored.keep, stored.refresh().keep) == (False, False)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stored.result, "30s")
        until(lambda: store.execute("HEXISTS", f"hf:{{{store.address.namespace}}}:j:{stored.id}", "w"))
        run_to(store, stored.id, Succeed(b"null"))
        with pytest.raises(JobNotFound, match="has keep=False: it has ended"):
            waiting.result()
    with pytest.raises(JobNotFound):
        timed.get(stored.id)


# Jobs that must not run twice


@pytest.mark.parametrize(
    ("outcome", "group"),
    [
        (Error(b"", "ValueError"), "ValueError"),
        (Error(b"", "ValueError", delay=0), "ValueError"),
        (Crash(b""), "crashed"),
        (Release("stopping"), "interrupted"),
        (Release("stopping", 1000), "interrupted"),
        (Snoozed(1000), "interrupted"),
        (Cancelled(), "interrupted"),
    ],
)
def test_the_first_started_attempt_of_an_at_most_once_job_is_the_last(
    store: Store, outcome: Outcome, group: str
) -> None:
    put(store, "a", at_most_once=True, retries=5, crashes=5, lost=5)
    run_to(store, "a", outcome)
    assert fields(store, "a", "state", "group", "attempt", "at_most_once") == ("failed", group, 1, 1)
    assert take(store) == []


def test_a_lost_lease_a_dead_executor_and_a_dead_worker_fail_an_at_most_once_job(
    store: Store, clock: TestClock
) -> None:
    for id in ("lease", "executor", "several", "worker"):
        put(store, id, at_most_once=True)
    assert take(store, ONE) == ["lease"]
    for _ in range(2):
        clock.advance(15)
        assert take(store, TWO, "another") == []
    assert take(store, TWO) == ["executor"]
    store.run(commands.requeue_orphaned(executor=TWO))
    put(store, "plain")
    assert take(store, TWO, limit=1) == ["several"]
    assert take(store, TWO, limit=1) == ["worker"]
    put(store, "both")
    store.run(commands.requeue_orphaned(executor=TWO))
    assert fields(store, "several", "state", "group") == ("failed", "interrupted")
    assert fields(store, "worker", "state", "group") == ("failed", "interrupted")
    assert fields(store, "lease", "state", "group") == ("failed", "lost")
    assert fields(store, "executor", "state", "group") == ("failed", "crashed")
    put(store, "last", at_most_once=True, priority=-1)
    assert take(store, TWO) == ["last"]
    while store.run(commands.requeue_orphaned(worker="node/two")):
        pass
    assert fields(store, "last", "state", "group") == ("failed", "lost")


def test_an_at_most_once_job_that_did_not_start_is_requeued(store: Store, clock: TestClock) -> None:
    put(store, "a", at_most_once=True)
    take(store)
    unstarted = Finish("a", 1, Release("stopping"), unstarted=True)
    assert store.run(commands.finish(ONE, [unstarted])).answers == ["OK"]
    run_to(store, "a", Unknown())
    assert job(store, "a")["state"] == "scheduled"
    clock.advance(5)
    run_to(store, "a", Succeed(b"1"))
    assert fields(store, "a", "state", "attempt") == ("succeeded", 3)


def test_a_user_may_retry_an_at_most_once_job(store: Store) -> None:
    put(store, "a", at_most_once=True)
    run_to(store, "a", Crash(b""))
    assert store.run(commands.retry(["a"])) == ["waiting"]
    run_to(store, "a", Error(b"", "e"))
    assert fields(store, "a", "state", "attempt") == ("failed", 2)


def test_a_cancelled_at_most_once_job_is_cancelled_and_not_failed(store: Store) -> None:
    put(store, "a", at_most_once=True)
    take(store)
    store.run(commands.cancel(["a"]))
    end(store, "a", Cancelled())
    assert job(store, "a")["state"] == "cancelled"


def test_a_worker_runs_an_at_most_once_job_once_although_its_process_is_killed(crew: Crew) -> None:
    crew.start("--lease", "2s")
    job = crew.app.enqueue(worker_app.hold.options(at_most_once=True).bind("gate"))
    (pid,) = crew.pids("gate", "runs")
    crew.kill(pid)
    ended = crew.ended(job)
    assert (ended.state, ended.group, ended.attempt) == ("failed", "crashed", 1)
    assert len(crew.said("gate", "runs")) == 1


def test_a_stopped_worker_does_not_requeue_an_at_most_once_job(crew: Crew) -> None:
    worker = crew.start("--stop-within", "100ms")
    job = crew.app.enqueue(worker_app.hold.options(at_most_once=True).bind("gate"))
    crew.pids("gate", "runs")
    assert worker.stop() == 0
    ended = crew.ended(job)
    assert (ended.state, ended.group, ended.attempt) == ("failed", "interrupted", 1)


def test_a_worker_leaves_nothing_of_jobs_that_are_not_kept(crew: Crew) -> None:
    crew.start()
    crew.put(worker_app.add, 1, 2).result(timeout="40s")
    call = worker_app.add.options(keep=False)
    crew.put_all([call.bind(number, 1) for number in range(50)])
    until(lambda: crew.app.count(state="pending") == 0, what="the last")
    assert crew.app.count() == 1
    assert crew.held() == []
