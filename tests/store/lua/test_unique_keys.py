"""Unique keys, jobs that are not kept, and jobs that run at most once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import errors
from holdfast.job.outcome import Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.commands import Command, Finish, Lease
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import (
    ONE,
    TWO,
    charges,
    end,
    fields,
    happened,
    job,
    keep,
    new,
    put,
    standing,
    take,
)


def put_unique(
    store: Store, id: str, key: str = "key", *, on_exists: str = "return", span: str | int | None = None
) -> tuple[bool, str]:
    """Returns whether it was stored, and the id of the job that has the key then."""
    stored = store.run(commands.enqueue([new(id, unique=key, unique_for=span)], on_exists=on_exists))
    return stored.created[0], stored.ids[0]


def is_stored(store: Store, key: str) -> bool:
    return bool(store.execute("EXISTS", f"hf:{{{store.address.namespace}}}:k:{key}"))


def has_key(store: Store, id: str) -> bool:
    """Whether a job has the key: then another does not get it."""
    made, owner = put_unique(store, "probe")
    if made:
        store.run(commands.cancel(["probe"]))
        store.run(commands.delete(["probe"]))
    return not made and owner == id


@pytest.mark.parametrize(
    ("span", "until"),
    [("queued", "claim"), (None, "end"), ("pending", "end"), ("kept", "delete"), (3_600_000, "never")],
)
def test_a_job_owns_its_key_for_its_declared_span(store: Store, span: str | int | None, until: str) -> None:
    steps: list[tuple[str, Callable[[], object]]] = [
        ("claim", lambda: take(store)),
        ("release", lambda: end(store, "a", Release())),
        ("claim again", lambda: take(store)),
        ("end", lambda: end(store, "a", Succeed(b"1"))),
        ("delete", lambda: store.run(commands.delete(["a"]))),
    ]
    put_unique(store, "a", span=span)
    has_it = True
    assert has_key(store, "a")
    for name, step in steps:
        step()
        has_it = has_it and name != until
        assert has_key(store, "a") == has_it, name


def test_a_second_job_with_a_key_returns_the_first_is_refused_or_replaces_it(store: Store) -> None:
    put_unique(store, "a")
    before = commands.add_waiter(["a"], "me")
    store.run(before)

    assert put_unique(store, "b") == (False, "a")
    with pytest.raises(errors.JobExists):
        put_unique(store, "b", on_exists="error")
    assert put_unique(store, "b", on_exists="replace") == (True, "a")
    assert standing(store) == {"waiting": ["a"]}
    take(store)
    with pytest.raises(errors.WrongState):
        put_unique(store, "b", on_exists="replace")


def test_a_key_is_not_taken_from_one_job_by_replacing_another(store: Store) -> None:
    put_unique(store, "a")
    put(store, "b")

    assert put_unique(store, "b") == (False, "b")
    with pytest.raises(errors.JobExists):
        put_unique(store, "b", on_exists="replace")
    assert has_key(store, "a")
    assert job(store, "b")["unique"] == ""


def test_a_key_or_job_that_occurs_twice_in_a_call_is_refused(store: Store) -> None:
    put_unique(store, "a")
    for jobs in (
        [new("b", unique="other"), new("c", unique="other", payload=b"x")],
        [new("b", unique="other"), new("c", unique="other", task="else")],
        [new("b", unique="key"), new("b")],
        [new("b", unique="key"), new("a")],
    ):
        with pytest.raises(errors.Invalid):
            store.run(commands.enqueue(jobs))
    assert standing(store) == {"waiting": ["a"]}


def test_a_retried_job_has_its_key_again_unless_another_has_it(store: Store) -> None:
    put_unique(store, "a")
    store.run(commands.cancel(["a"]))
    put_unique(store, "b")
    assert store.run(commands.retry(["a"])) == ["EXISTS"]
    store.run(commands.cancel(["b"]))

    assert store.run(commands.retry(["a", "b"])) == ["waiting", "EXISTS"]
    assert has_key(store, "a")


@pytest.mark.parametrize("span", ["queued", "pending", "kept", 600_000])
def test_the_own_key_of_a_job_does_not_prevent_its_retry(store: Store, span: str | int) -> None:
    put_unique(store, "a", span=span)
    store.run(commands.cancel(["a"]))

    assert store.run(commands.retry(["a"])) == ["waiting"]
    assert has_key(store, "a")


def test_a_replaced_job_releases_its_key(store: Store) -> None:
    put_unique(store, "a", "old")
    assert put_unique(store, "a", "new", on_exists="replace") == (True, "a")

    assert put_unique(store, "b", "old") == (True, "b")
    assert put_unique(store, "c", "new") == (False, "a")


def test_a_pruned_job_releases_its_key(store: Store) -> None:
    store.run(commands.configure(set={"keep_succeeded_count": 1}))
    put_unique(store, "a", span="kept")
    put(store, "b")
    for id in "ab":
        take(store)
        end(store, id, Succeed(b"1"))

    assert standing(store) == {"succeeded": ["b"]}
    assert put_unique(store, "c") == (True, "c")


@pytest.mark.parametrize("span", ["queued", "pending", "kept"])
def test_a_key_without_an_owner_is_not_stored(store: Store, span: str) -> None:
    put_unique(store, "a", span=span)
    take(store)
    store.run(commands.configure(set={"keep_succeeded": int(span == "pending")}))
    end(store, "a", Succeed(b"1"))

    assert standing(store) == ({"succeeded": ["a"]} if span == "pending" else {})
    assert not is_stored(store, "key")


def test_a_key_is_removed_when_its_job_starts_or_is_deleted(store: Store) -> None:
    put_unique(store, "a", "first", span="queued")
    put_unique(store, "b", "second", span="kept")
    take(store)
    store.run(commands.cancel(["b"]))
    assert (is_stored(store, "first"), is_stored(store, "second")) == (False, True)

    store.run(commands.delete(["b"]))
    assert not is_stored(store, "second")


@pytest.mark.parametrize("ending", ["succeeds", "is cancelled", "is cancelled while it runs", "fails"])
def test_a_job_that_is_not_kept_is_deleted_when_it_ends_unless_it_fails(store: Store, ending: str) -> None:
    put(store, "a", keep=False, payload=b"p" * 100)
    store.run(commands.attach("a", {"owner": "me"}))
    store.run(commands.add_waiter(["a"], "me"))
    if ending == "is cancelled":
        store.run(commands.cancel(["a"]))
    else:
        take(store)
        store.run(commands.save(Lease(ONE, "a", 1), b"c" * 100, progress="f" * 100, notes=["half"]))
        if ending == "is cancelled while it runs":
            store.run(commands.cancel(["a"]))
        outcomes: dict[str, Outcome] = {"succeeds": Succeed(b"r" * 100), "fails": Error(b"{}", "g", final=True)}
        end(store, "a", outcomes.get(ending, Cancelled()))

    assert standing(store) == ({"failed": ["a"]} if ending == "fails" else {})
    assert store.execute("LRANGE", f"hf:{{{store.address.namespace}}}:inbox:me", 0, -1) == [b"a"]
    assert happened(store)[-1] == ({"fails": "failed", "succeeds": "succeeded"}.get(ending, "cancelled"), ["a"])


def test_a_repeated_finish_with_its_token_gets_the_same_answer_after_the_job_is_deleted(store: Store) -> None:
    put(store, "a", keep=False)
    take(store)
    done = [Finish("a", 1, Succeed(b"1"))]
    finish = commands.finish(ONE, done, token=new_id())

    assert [store.run(finish).answers for _ in range(2)] == [["OK"], ["OK"]]
    assert store.run(commands.finish(ONE, done, token=new_id())).answers == ["LOST"]
    assert store.run(commands.finish(ONE, done)).answers == ["LOST"]


@pytest.mark.parametrize(
    ("outcome", "group"),
    [
        (Error(b"{}", "bug"), "bug"),
        (Error(b"{}", "bug", delay=5), "bug"),
        (Crash(b"{}"), "crashed"),
        (Release(), "interrupted"),
        (Snoozed(5), "interrupted"),
        (Cancelled(), "interrupted"),
    ],
)
def test_an_at_most_once_job_is_not_requeued_after_an_attempt(store: Store, outcome: Outcome, group: str) -> None:
    put(store, "a", at_most_once=True)
    take(store)
    end(store, "a", outcome)

    assert fields(store, "a", "state", "group") == ("failed", group)
    assert store.run(commands.retry(["a"])) == ["waiting"]
    assert take(store) == ["a"]


def test_an_at_most_once_job_is_requeued_if_it_did_not_start(store: Store, clock: TestClock) -> None:
    put(store, "a", at_most_once=True)
    take(store)
    end(store, "a", Unknown())
    clock.advance(5)
    take(store)
    unstarted = Finish("a", 2, Release(), unstarted=True)
    assert store.run(commands.finish(ONE, [unstarted])).answers == ["OK"]

    assert fields(store, "a", "state", "attempt") == ("waiting", 2)


def silence(store: Store, clock: TestClock) -> None:
    for _ in range(31):
        clock.advance(1)
        keep(store, executor=TWO)


@pytest.mark.parametrize(
    ("death", "group", "limit"),
    [
        (commands.requeue_orphaned(executor=ONE), "crashed", 1),
        (commands.requeue_orphaned(executor=ONE), "interrupted", 2),
        (commands.requeue_orphaned(worker="node/one"), "lost", 1),
        (None, "lost", 1),
    ],
)
def test_an_at_most_once_job_fails_when_its_executor_or_worker_dies(
    store: Store, clock: TestClock, death: Command[list[str]] | None, group: str, limit: int
) -> None:
    put(store, "a", at_most_once=True)
    put(store, "b")
    take(store, limit=limit)
    if death:
        store.run(death)
    else:
        silence(store, clock)

    assert charges(store, "a")[::4] == ("failed", group)
    assert standing(store) == {"waiting": ["b"], "failed": ["a"]}
