"""A job's record: fields of other programs, and its history."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast import Holdfast, Invalid, JobNotFound, TooBig, WrongState, current_job
from holdfast.job.outcome import Error, Release, Succeed
from holdfast.store import commands
from holdfast.store.caller import caller_name
from holdfast.store.commands import Command, Lease
from holdfast.store.store import Store
from holdfast.task.task import Task
from tests.apps import record_app
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, dump, end, job, new, put, take
from tests.support.consistency import check_all_keys, client
from tests.support.workers import Crew

__all__ = ["check_all_keys", "client"]  # fixtures


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
def send(timed: Holdfast) -> Task[[str], str]:
    @timed.task(name="send", queue="q")
    def send(words: str) -> str:
        return words

    return send


# Own fields


def test_other_programs_keep_fields_with_a_job(timed: Holdfast, send: Task[[str], str]) -> None:
    stored = send.enqueue("x")
    assert stored.fields == {}
    assert timed.attach(stored.id, {"customer": "17", "note": "ünï\n" * 10}) == {
        "customer": "17",
        "note": "ünï\n" * 10,
    }
    assert timed.attach(stored.id, {"customer": "18", "empty": ""}, remove=["note", "unknown"]) == {
        "customer": "18",
        "empty": "",
    }
    assert timed.attach(stored.id, {}) == timed.get(stored.id).fields == {"customer": "18", "empty": ""}
    assert timed.attach(stored.id, {"both": "1"}, remove=["both"]) == {"customer": "18", "empty": ""}


@pytest.mark.parametrize("state", ["scheduled", "waiting", "running", "succeeded", "failed", "cancelled"])
def test_a_job_in_any_state_takes_fields_and_notes_and_loses_them_when_it_is_deleted(
    store: Store, client: redis.Redis, namespace: str, state: str
) -> None:
    put(store, "a", delay=1000 if state == "scheduled" else None)
    if state == "cancelled":
        store.run(commands.cancel(["a"]))
    elif state not in ("scheduled", "waiting"):
        take(store)
        if state != "running":
            end(store, "a", Succeed(b"") if state == "succeeded" else Error(b"", "e", final=True))
    assert store.run(commands.attach("a", {"x": "1"})) == {"x": "1"}
    store.run(commands.note("a", "words"))
    assert job(store, "a")["state"] == state
    if state == "running":
        end(store, "a", Succeed(b""))
    elif state in ("scheduled", "waiting"):
        store.run(commands.cancel(["a"]))
    assert job(store, "a")["fields"] == [b"x", b"1"]
    store.run(commands.delete(["a"]))
    assert [key for key in dump(client, namespace) if key.endswith(b":a")] == []


def test_a_job_has_64_fields_at_most(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "a")
    store.run(commands.attach("a", {f"f{number}": "x" * 4096 for number in range(64)}))
    before = dump(client, namespace)
    with pytest.raises(TooBig, match=r"65 fields \(limit 64\)"):
        store.run(commands.attach("a", {"one.more": ""}))
    with pytest.raises(TooBig, match=r"4097 bytes \(limit 4096\)"):
        store.run(commands.attach("a", {"f0": "x" * 4097}))
    assert dump(client, namespace) == before
    assert len(store.run(commands.attach("a", {"one.more": ""}, remove=["f0"]))) == 64


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"a b": "x"}, "the name of a field"),
        ({"": "x"}, "the name of a field"),
        ({"x" * 101: "x"}, "the name of a field"),
        ({"a": 5}, "field a is 5; it must be a str"),
        ({"a": b"bytes"}, "field a is b'bytes'; it must be a str"),
        ({"a": None}, "field a is None"),
        ({"a": "\ud800"}, "which cannot be encoded as UTF-8"),
        ({5: "x"}, "the name of a field is 5"),
        ({"good": "x", "bad": ["x"]}, "field bad"),
        ("a=b", "fields is 'a=b'; it must be a dict of texts"),
    ],
)
def test_fields_that_cannot_be_kept_are_refused(
    timed: Holdfast, send: Task[[str], str], fields: Any, words: str
) -> None:
    stored = send.enqueue("x")
    with pytest.raises(Invalid, match=re.escape(words)):
        timed.attach(stored.id, fields)
    assert timed.get(stored.id).fields == {}


@pytest.mark.parametrize("args", [{"set": 5}, {"set": {"a": 5}}, {"remove": "a"}, {"remove": ["a b"]}])
def test_the_store_refuses_fields_that_make_no_sense(store: Store, args: dict[str, Any]) -> None:
    put(store, "a")
    with pytest.raises(Invalid):
        store.run(Command("attach", {"id": "a", **args}, lambda reply: reply))


def test_a_field_that_another_language_wrote_badly_is_shown_all_the_same(
    timed: Holdfast, client: redis.Redis, namespace: str, send: Task[[str], str]
) -> None:
    stored = send.enqueue("x")
    timed.attach(stored.id, {"x": "first"})
    client.hset(f"hf:{{{namespace}}}:u:{stored.id}", "x", b"\xff!")
    assert timed.get(stored.id).fields == timed.attach(stored.id, {}) == {"x": "\N{REPLACEMENT CHARACTER}!"}


def test_there_is_nothing_to_attach_to_a_job_that_is_not_there(timed: Holdfast) -> None:
    with pytest.raises(JobNotFound, match="job nobody does not exist"):
        timed.attach("nobody", {"a": "b"})
    with pytest.raises(JobNotFound, match="job nobody does not exist"):
        timed.note("nobody", "words")
    with pytest.raises(Invalid, match="id is <function"):
        timed.attach(current_job, {"a": "b"})  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="remove is 'a'; it must be a list of names"):
        timed.attach("nobody", {}, remove="a")


def test_fields_survive_a_retry_and_not_a_replacement(timed: Holdfast, store: Store, send: Task[[str], str]) -> None:
    stored = send.options(id="a").enqueue("x")
    timed.attach("a", {"x": "1"})
    stored.cancel()
    stored.retry()
    assert timed.get("a").fields == {"x": "1"}
    send.options(id="a", on_exists="replace").enqueue("y")
    assert timed.get("a").fields == {}
    assert take(store) == ["a"]


# History


def test_the_history_of_a_job_is_in_order(
    timed: Holdfast, store: Store, clock: TestClock, send: Task[[str], str]
) -> None:
    stored = send.options(id="a", retries=1).enqueue("x")
    clock.advance(1)
    timed.note("a", "looked at by ann")
    clock.advance(1)
    take(store, pid=17)
    clock.advance(1)
    store.run(commands.save(Lease(ONE, "a", 1), notes=["half", "way"]))
    clock.advance(1)
    end(store, "a", Error(b"", "e", delay=0))
    clock.advance(1)
    take(store)
    clock.advance(1)
    end(store, "a", Release("stopping"))
    clock.advance(1)
    stored.cancel(reason="not needed")
    clock.advance(1)
    stored.retry()

    found = timed.get("a").history
    here = caller_name()
    assert [(entry.what, entry.text, entry.attempt, entry.who) for entry in found] == [
        ("created", "task send in queue q", 0, ""),
        ("noted", "looked at by ann", 0, here),
        ("claimed", "", 1, ONE),
        ("reported", "half", 1, ONE),
        ("reported", "way", 1, ONE),
        ("error", "", 1, ONE),
        ("claimed", "", 2, ONE),
        ("released", "stopping", 2, ONE),
        ("cancelled", "not needed", 0, here),
        ("retried", "", 0, here),
    ]
    assert [entry.at for entry in found] == sorted(entry.at for entry in found)
    assert [note.what for note in timed.get("a").notes] == ["noted", "reported", "reported", "cancelled", "retried"]


def test_entries_of_the_same_millisecond_are_in_order_too(store: Store, clock: TestClock, timed: Holdfast) -> None:
    put(store, "a", retries=5)
    take(store)
    store.run(commands.save(Lease(ONE, "a", 1), notes=["said"]))
    end(store, "a", Error(b"", "e", delay=0))
    take(store)
    clock.advance(0.001)
    store.run(commands.cancel(["a"]))
    end(store, "a", Error(b"", "e"))
    timed.note("a", "words")
    timed.retry("a")
    take(store)
    end(store, "a", Succeed(b""))
    assert [entry.what for entry in timed.get("a").history] == [
        *("created", "claimed", "reported", "error", "claimed", "cancelling", "error", "cancelled"),
        *("noted", "retried", "claimed", "succeeded"),
    ]


def test_a_note_that_is_repeated_after_a_lost_reply_is_written_once(store: Store) -> None:
    put(store, "a")
    note = commands.note("a", "words")
    take(store)
    save = commands.save(Lease(ONE, "a", 1), notes=["said"])
    for _ in range(2):
        store.run(note)
        store.run(save)
    assert [words for _, _, words, _ in job(store, "a")["notes"]] == [b"words", b"said"]


@pytest.mark.parametrize(
    ("words", "error"),
    [("", Invalid), (5, Invalid), (b"bytes", Invalid), ("\ud800", Invalid), ("é" * 501, TooBig), ("x" * 1001, TooBig)],
)
def test_notes_that_cannot_be_kept_are_refused(
    timed: Holdfast, send: Task[[str], str], words: Any, error: type[Exception]
) -> None:
    stored = send.enqueue("x")
    with pytest.raises(error, match="note"):
        timed.note(stored.id, words)
    with pytest.raises(error, match="note"):
        current_job().note(words)
    assert timed.get(stored.id).notes == ()
    timed.note(stored.id, "é" * 500)
    assert timed.get(stored.id).notes[0].text == "é" * 500


def test_the_history_is_bounded_in_number_and_bytes(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "a")
    for _ in range(150):
        store.run(commands.note("a", "x" * 1000))
    assert len(job(store, "a")["notes"]) == 100
    assert client.memory_usage(f"hf:{{{namespace}}}:n:a") < 130_000
    store.run(commands.configure(set={"history": 1}))
    store.run(commands.note("a", "last"))
    assert [words for _, _, words, _ in job(store, "a")["notes"]] == [b"last"]


def test_many_jobs_with_long_records_do_not_make_one_endless_reply(store: Store) -> None:
    ids = [str(number) for number in range(300)]
    put(store, *ids)
    for id in ids:
        store.run(commands.attach(id, {f"f{number}": "x" * 4096 for number in range(64)}))
    with pytest.raises(TooBig, match="get fewer at once"):
        store.run(commands.get(ids))
    assert len(store.run(commands.get(ids[:200]))) == 200
    assert len(store.run(commands.get(ids, brief=True))) == 300


def test_the_async_client_keeps_fields_and_notes(app: Holdfast) -> None:
    @app.task(name="send")
    def send(words: str) -> None: ...

    async def use() -> None:
        stored = await send.aenqueue("x")
        assert await app.aattach(stored.id, {"a": "b"}) == {"a": "b"}
        await app.anote(stored.id, "words")
        found = await stored.arefresh()
        assert (found.fields, [note.text for note in found.notes]) == ({"a": "b"}, ["words"])
        await stored.acancel()
        await stored.adelete()
        assert await app.aforget("default")
        assert not await app.aforget("default")
        await app.aclose()

    asyncio.run(use())


# A job adds to its own history


@pytest.mark.parametrize("runner", ["fork", "process", "spawn", "thread", "async"])
def test_a_job_adds_entries_to_its_own_history_under_every_runner(crew: Crew, runner: Any) -> None:
    crew.start("--processes", "2", app="tests.apps.record_app")
    task: Task[[int], str] = record_app.say_async if runner == "async" else record_app.say
    stored = crew.app.enqueue(task.options(runner=runner).bind(20))
    found = crew.ended(stored)
    assert found.state == "succeeded"
    assert [note.text for note in found.notes] == [f"step {number}" for number in range(20)]
    assert {note.what for note in found.notes} == {"reported"}
    what = [entry.what for entry in found.history]
    assert what[:3] == ["created", "claimed", "started"]
    assert what[-1] == "succeeded"


def test_notes_of_a_job_before_its_death_are_in_its_history(crew: Crew) -> None:
    crew.start(app="tests.apps.record_app")
    found = crew.ended(crew.put(record_app.say_and_die))
    assert [note.text for note in found.notes] == ["attempt 1", "attempt 2"]
    assert [attempt.outcome for attempt in found.attempts] == ["crash", "succeeded"]


def test_the_last_of_many_notes_are_kept_and_invalid_ones_are_refused(crew: Crew) -> None:
    crew.start(app="tests.apps.record_app")
    much, nonsense = crew.put(record_app.say, 1000), crew.put(record_app.say_nonsense)
    found = crew.ended(much)
    assert len(found.notes) <= 100
    assert found.notes[-1].text == "step 999"
    refused = ["Invalid", "Invalid", "Invalid", "Invalid", "Invalid", "TooBig", "TooBig"]
    assert crew.app.result(nonsense, "40s") == refused
    assert [note.text for note in crew.ended(nonsense).notes] == ["é" * 500]


# Deleting and forgetting


def test_a_queue_without_jobs_is_forgotten_with_all_that_was_known_of_it(
    timed: Holdfast, store: Store, client: redis.Redis, namespace: str
) -> None:
    put(store, "other", queue="other")
    take(store, ONE, "other")
    before, idle = set(dump(client, namespace)), f"hf:{{{namespace}}}:idle:mail".encode()
    timed.configure({"lease": "1m"}, queue="mail")
    timed.pause("mail")
    put(store, "a", queue="mail")
    with pytest.raises(WrongState, match=r"queue mail is not empty \(1 waiting\): cancel or delete its jobs first"):
        timed.forget("mail")
    timed.cancel("a")
    with pytest.raises(WrongState, match="1 cancelled"):
        timed.forget("mail")
    timed.delete("a")
    take(store, ONE, "mail")
    assert timed.forget("mail")
    assert not timed.forget("mail")
    assert [queue.name for queue in timed.queues()] == ["other"]
    assert {key for key in dump(client, namespace) if b"}:t:" not in key} - before == {idle}
    assert 0 < client.ttl(idle) <= 86_400  # its executors stay idle
    assert timed.config("mail")[0].source == "default"
    put(store, "b", queue="mail")
    assert take(store, ONE, "mail") == ["b"]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a{b}", "*"])
def test_a_queue_that_cannot_be_is_not_forgotten(timed: Holdfast, name: str) -> None:
    with pytest.raises(Invalid):
        timed.forget(name)


def test_only_ended_jobs_are_deleted_and_nothing_of_them_is_left(
    timed: Holdfast, store: Store, client: redis.Redis, namespace: str
) -> None:
    put(store, "warm-up")
    take(store)
    end(store, "warm-up", Succeed(b""))
    before = set(dump(client, namespace))
    store.run(commands.enqueue([new("a", payload=b"x" * 100, retries=5)]))
    for outcome in (Error(b"x" * 100, "e", delay=0), Succeed(b"x" * 100)):
        with pytest.raises(WrongState, match="cancel it first"):
            timed.delete("a")
        take(store)
        attempt = job(store, "a")["attempt"]
        store.run(commands.save(Lease(ONE, "a", attempt), b"x" * 100, progress="p" * 100, notes=["n"]))
        end(store, "a", outcome)
    timed.attach("a", {"x": "1"})
    timed.delete("a")
    passing = re.compile(rb"}:(t:|fi:|fingerprints$)")  # what is known of an error is not of its job
    assert {key for key in set(dump(client, namespace)) - before if not passing.search(key)} == set()
    with pytest.raises(JobNotFound):
        timed.get("a")
