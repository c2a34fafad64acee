"""Jobs that wait for others: a real server, the test's clock; after each test, all dependencies are checked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Command
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, end, fields, happened, job, new, put, standing, take

LETTERS = {"succeeded": "S", "failed": "F", "cancelled": "C"}


@pytest.fixture(autouse=True)
def _what_waits_fits_in_the_end(store: Store, client: redis.Redis, namespace: str) -> Iterator[None]:
    yield
    check(store, client, namespace)


def check(store: Store, client: redis.Redis, namespace: str) -> None:
    """Every blocked job has a reason; every dependent is told of; no set names a job that does not wait."""
    base = f"hf:{{{namespace}}}:"
    states = {found["id"]: found["state"] for found in everything(store)}
    continued = {id.decode() for id in client.hkeys(f"{base}resolving")}
    for id, state in states.items():
        if state != "blocked":
            continue
        left, policy, _ = client.hget(f"{base}j:{id}", "b").decode().split()
        wrong = 0
        for dependency, mark in client.hgetall(f"{base}a:{id}").items():
            letter = mark.decode().lstrip("0123456789w")[0]
            now = LETTERS.get(states.get(dependency.decode(), ""), "-")
            is_wrong = not (letter == "S" or (policy == "r" and letter != "-"))
            if is_wrong and dependency.decode() in states and dependency.decode() not in continued:
                assert letter == now, (id, dependency, letter, now)
            wrong += is_wrong
            is_told = client.zscore(f"{base}d:{dependency.decode()}", id) is not None
            assert is_told == is_wrong or dependency.decode() not in states, (id, dependency)
        assert int(left) == wrong > 0, (id, left, wrong)
    for key in client.scan_iter(f"{base}d:*", count=10_000):
        for dependent in client.zrange(key, 0, -1):
            assert states.get(dependent.decode()) == "blocked", (key, dependent)


def everything(store: Store) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        page = store.run(commands.list_jobs(limit=1000, cursor=cursor))
        yield from page.jobs
        cursor = page.cursor
        if cursor is None:
            return


def succeed(store: Store, *ids: str) -> None:
    for _ in ids:
        [id] = take(store)
        assert id in ids
        assert end(store, id, Succeed(b"1")) == "OK"


def fail(store: Store, id: str) -> None:
    assert take(store) == [id]
    assert end(store, id, Error(b"", "g", final=True)) == "OK"


def test_a_job_waits_for_the_last_of_its_dependencies(store: Store) -> None:
    put(store, "one", "two")
    put(store, "both", after=("one", "two"))
    assert standing(store) == {"waiting": ["one", "two"], "blocked": ["both"]}

    succeed(store, "one")
    assert fields(store, "both", "state", "waits_for") == ("blocked", 1)
    succeed(store, "two")

    assert fields(store, "both", "state", "waits_for") == ("waiting", 0)
    assert [row[:2] for row in job(store, "both")["after"]] == [[b"one", b"succeeded"], [b"two", b"succeeded"]]
    assert ("unblocked", ["both"]) in happened(store)


def test_jobs_of_one_call_may_wait_for_each_other_in_any_order(store: Store) -> None:
    jobs = [new("c", after=("b", "a")), new("b", after=("a",)), new("a")]
    store.run(commands.enqueue(jobs))

    for id in "abc":
        assert standing(store)["waiting"] == [id]
        succeed(store, id)


def test_ended_dependencies_are_not_waited_for(store: Store) -> None:
    put(store, "done")
    succeed(store, "done")

    put(store, "next", after=("done",))

    assert fields(store, "next", "state", "waits_for") == ("waiting", 0)


@pytest.mark.parametrize(
    ("policy", "state"), [(None, "blocked"), ("block", "blocked"), ("cancel", "cancelled"), ("run", "waiting")]
)
@pytest.mark.parametrize("before", [True, False])
def test_on_failed_decides_what_happens_when_a_dependency_fails(
    store: Store, policy: str | None, state: str, before: bool
) -> None:
    put(store, "bad")
    if before:
        fail(store, "bad")
    put(store, "next", after=("bad",), on_failed=policy)
    if not before:
        fail(store, "bad")

    assert fields(store, "next", "state") == (state,)
    assert [row[:2] for row in job(store, "next")["after"]] == [[b"bad", b"failed"]]


def test_a_dependency_that_is_retried_and_succeeds_releases_its_blocked_dependents(store: Store) -> None:
    put(store, "bad")
    put(store, "next", after=("bad",))
    fail(store, "bad")
    assert [row[:2] for row in job(store, "next")["after"]] == [[b"bad", b"failed"]]

    assert store.run(commands.retry(["bad"])) == ["waiting"]
    assert job(store, "next")["after"] == [[b"bad", b"pending", 0]]
    succeed(store, "bad")

    assert fields(store, "next", "state") == ("waiting",)


def test_a_cancellation_cascades_along_on_failed_cancel(store: Store) -> None:
    jobs = [new("a"), *(new(b, after=(a,), on_failed="cancel") for a, b in zip("abcd", "bcde", strict=True))]
    store.run(commands.enqueue(jobs))

    store.run(commands.cancel(["a"]))

    assert standing(store) == {"cancelled": ["a", "b", "c", "d", "e"]}


def test_a_job_is_cancelled_with_all_dependents_in_one_call(store: Store) -> None:
    store.run(commands.enqueue([new("a"), new("b", after=("a",)), new("c", after=("a", "b")), new("other")]))

    answers = store.run(commands.cancel(["a"], dependents=True))

    assert answers == ["cancelled", "b", "cancelled", "c", "cancelled"]
    assert standing(store) == {"cancelled": ["a", "b", "c"], "waiting": ["other"]}


def test_unless_awaited_does_not_cancel_a_job_with_dependents(store: Store) -> None:
    store.run(commands.enqueue([new("a"), new("b", after=("a",)), new("c", after=("b",)), new("free")]))
    before = happened(store)

    answers = store.run(commands.cancel(["a", "b", "free", "nobody"], unless_awaited=True))

    assert answers == ["BLOCKED", "BLOCKED", "cancelled", "NOTFOUND"]
    assert standing(store) == {"waiting": ["a"], "blocked": ["b", "c"], "cancelled": ["free"]}
    assert happened(store)[len(before) :] == [("cancelled", ["free"])]


def test_unless_awaited_cancels_jobs_whose_dependents_are_all_named(store: Store) -> None:
    store.run(commands.enqueue([new("a"), new("b", after=("a",)), new("c", after=("a", "b"))]))

    assert store.run(commands.cancel(["a", "c", "b"], unless_awaited=True)) == ["cancelled"] * 3


def test_unless_awaited_does_not_cancel_a_job_with_one_unnamed_dependent(store: Store) -> None:
    """Of a chain of four all but the last are named: not one of them can be cancelled without leaving another stuck."""
    store.run(commands.enqueue([new("a"), *(new(b, after=(a,)) for a, b in zip("abc", "bcd", strict=True))]))

    for ids in (["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]):
        assert store.run(commands.cancel(ids, unless_awaited=True)) == ["BLOCKED"] * 3


def test_unless_awaited_does_not_cancel_a_running_job_with_dependents(store: Store) -> None:
    put(store, "a")
    put(store, "b", after=("a",))
    take(store)

    assert store.run(commands.cancel(["a"], unless_awaited=True)) == ["BLOCKED"]
    assert job(store, "a")["cancelling"] == 0
    store.run(commands.depend("b", remove=["a"]))
    assert store.run(commands.cancel(["a"], unless_awaited=True)) == ["cancelling"]


def test_unless_awaited_is_checked_again_when_the_call_is_repeated(store: Store) -> None:
    """Nothing was done, so there is no answer to keep."""
    put(store, "a")
    put(store, "b", after=("a",))
    cancel = commands.cancel(["a"], unless_awaited=True)
    assert store.run(cancel) == ["BLOCKED"]
    store.run(commands.cancel(["b"]))

    assert store.run(cancel) == ["cancelled"]


def test_unless_awaited_inspects_only_a_few_of_very_many_dependents(store: Store) -> None:
    put(store, "a")
    for part in range(3):
        put(store, *(f"{part}-{number}" for number in range(1000)), after=("a",))

    assert store.run(commands.cancel(["a"], unless_awaited=True)) == ["BLOCKED"]


def test_unless_awaited_refuses_each_of_a_thousand_awaited_jobs(store: Store) -> None:
    ids = [f"a{number}" for number in range(1000)]
    put(store, *ids)
    for number in range(25):
        put(store, f"next{number}", after=tuple(ids))

    assert store.run(commands.cancel(ids, unless_awaited=True)) == ["BLOCKED"] * 1000


def test_unless_awaited_ignores_dependents_that_are_gone(store: Store, client: redis.Redis, namespace: str) -> None:
    """The record decides; whoever stands in a set is asked."""
    put(store, "a", "b")
    put(store, "gone", after=("a",))
    client.delete(f"hf:{{{namespace}}}:j:gone")
    client.zadd(f"hf:{{{namespace}}}:d:b", {"a": 1})

    assert store.run(commands.cancel(["a"], unless_awaited=True)) == ["cancelled"]
    assert store.run(commands.cancel(["b"], unless_awaited=True)) == ["cancelled"]
    client.delete(*client.keys(f"hf:{{{namespace}}}:*"))


def test_unless_awaited_counts_unreadable_dependents(store: Store, client: redis.Redis, namespace: str) -> None:
    """It cannot be cancelled, though it is named, and would be left behind."""
    put(store, "a")
    put(store, "newer", after=("a",))
    head = client.hget(f"hf:{{{namespace}}}:j:newer", "h")
    client.hset(f"hf:{{{namespace}}}:j:newer", "h", bytes([head[0] + 1]) + head[1:])

    assert store.run(commands.cancel(["a", "newer"], unless_awaited=True)) == ["BLOCKED", "NEWER"]
    client.hset(f"hf:{{{namespace}}}:j:newer", "h", head)
    assert store.run(commands.cancel(["a", "newer"], unless_awaited=True)) == ["cancelled", "cancelled"]


def test_unless_awaited_refuses_too_many_edges_in_one_call(store: Store) -> None:
    ids = [f"n{number:03}" for number in range(150)]
    for place, id in enumerate(ids):
        put(store, id, after=tuple(ids[:place]) or None)

    with pytest.raises(errors.TooBig, match="cancel them in parts"):
        store.run(commands.cancel(ids, unless_awaited=True))
    assert standing(store) == {"waiting": ids[:1], "blocked": ids[1:]}


@pytest.mark.parametrize(
    ("verb", "args"),
    [
        ("cancel", {"ids": ["a"], "dependents": True, "unless_awaited": True}),
        ("start_operation", {"id": "o", "action": "cancel", "with": {"unless_awaited": True}}),
    ],
)
def test_unless_awaited_is_refused_for_operations_and_with_dependents(
    store: Store, verb: str, args: dict[str, Any]
) -> None:
    put(store, "a")
    with pytest.raises(errors.Invalid, match="unless_awaited"):
        store.run(Command(verb, args, list))
    assert standing(store) == {"waiting": ["a"]}


def test_an_unknown_job_cannot_be_waited_for(store: Store) -> None:
    with pytest.raises(errors.JobNotFound, match="dependency nobody does not exist"):
        put(store, "next", after=("nobody",))
    assert standing(store) == {}


@pytest.mark.parametrize(
    "edges",
    [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}, {"x": "a", "a": "b", "b": "c", "c": "b"}],
)
def test_a_cycle_is_refused(store: Store, edges: dict[str, str]) -> None:
    with pytest.raises(errors.DependencyCycle):
        store.run(commands.enqueue([new(id, after=tuple(after)) for id, after in edges.items()]))
    assert standing(store) == {}


def test_dependencies_are_added_and_removed_later(store: Store) -> None:
    put(store, "one", "two", "next")

    assert store.run(commands.depend("next", add=["one", "two"])) == ("blocked", 2)
    assert store.run(commands.depend("next", remove=["one"])) == ("blocked", 1)
    succeed(store, "one")
    assert fields(store, "next", "state") == ("blocked",)
    assert store.run(commands.depend("next", remove=["two"])) == ("waiting", 0)


def test_a_cycle_by_a_dependency_that_is_added_is_refused(store: Store) -> None:
    store.run(commands.enqueue([new("a"), new("b", after=("a",)), new("c", after=("b",))]))

    with pytest.raises(errors.DependencyCycle):
        store.run(commands.depend("a", add=["c"]))

    assert fields(store, "a", "state") == ("waiting",)


def test_a_running_job_takes_no_more_dependencies(store: Store) -> None:
    put(store, "one", "two")
    take(store)

    with pytest.raises(errors.WrongState, match="only before a job starts"):
        store.run(commands.depend("one", add=["two"]))


def test_a_blocked_job_that_is_due_later_becomes_scheduled_when_unblocked(store: Store, clock: TestClock) -> None:
    put(store, "one")
    put(store, "next", after=("one",), delay=60_000)
    succeed(store, "one")

    assert fields(store, "next", "state") == ("scheduled",)
    clock.advance(60)
    assert take(store) == ["next"]


def test_a_job_that_others_wait_for_cannot_be_deleted(store: Store) -> None:
    put(store, "bad")
    put(store, "next", after=("bad",))
    fail(store, "bad")

    assert store.run(commands.delete(["bad"])) == ["BLOCKED"]
    store.run(commands.cancel(["next"]))
    assert store.run(commands.delete(["bad"])) == ["OK"]


def test_three_thousand_dependents_are_released_in_steps_by_the_next_calls(store: Store) -> None:
    put(store, "first")
    for part in range(3):
        put(store, *(f"n{part}-{n}" for n in range(1000)), after=("first",), queue="other")
    succeed(store, "first")
    assert store.run(commands.count(states=["blocked"])) == 2000

    released = 0
    while got := take(store, ONE, "other", limit=1000):
        released += len(got)
    assert released == 3000


def test_a_dependency_that_is_not_kept_releases_its_dependents(store: Store) -> None:
    put(store, "gone", keep=False)
    put(store, "next", after=("gone",))

    succeed(store, "gone")

    assert standing(store) == {"waiting": ["next"]}


def remove(store: Store, clock: TestClock, *ids: str) -> None:
    """Have ended jobs pruned."""
    clock.advance(40 * 86_400)
    for _ in ids:
        store.run(commands.upkeep())
        clock.advance(2)
    assert store.run(commands.get(list(ids))) == [None] * len(ids)


def learned(store: Store, id: str) -> list[list[bytes]]:
    """What a job knows of its dependencies, without the times."""
    return [part[:2] for part in job(store, id)["after"]]


def end_as(store: Store, id: str, state: str) -> None:
    if state == "cancelled":
        store.run(commands.cancel([id]))
        return
    assert take(store) == [id]
    end(store, id, Succeed(b"") if state == "succeeded" else Error(b"{}", "ValueError", final=True))


OUTCOMES = [*LETTERS]
GOES_ON = {"block": "blocked", "cancel": "cancelled", "run": "waiting"}


@pytest.mark.parametrize("policy", GOES_ON)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_dependency_that_was_pruned_counts_as_it_ended(
    store: Store, clock: TestClock, outcome: str, policy: str
) -> None:
    put(store, "gone")
    put(store, "other", after=("gone",), queue="else", keep=False)
    put(store, "late", queue="elsewhere")
    end_as(store, "gone", outcome)
    remove(store, clock, "gone")

    put(store, "new", after=("gone",), on_failed=policy)
    store.run(commands.depend("late", add=["gone"], on_failed=policy))

    for id in ("new", "late"):
        assert fields(store, id, "state") == ("waiting" if outcome == "succeeded" else GOES_ON[policy],)
        assert learned(store, id) == [[b"gone", outcome.encode()]]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_retried_job_learns_how_its_dependency_ended_before_it_was_pruned(
    store: Store, clock: TestClock, outcome: str
) -> None:
    put(store, "one")
    put(store, "next", after=("one",), keep=86_400_000 * 365)
    store.run(commands.cancel(["next"]))
    end_as(store, "one", outcome)
    remove(store, clock, "one")

    store.run(commands.retry(["next"]))

    assert fields(store, "next", "state") == ("waiting" if outcome == "succeeded" else "blocked",)


def test_the_last_outcome_of_a_dependency_counts_not_the_one_that_a_job_knew(store: Store, clock: TestClock) -> None:
    put(store, "one")
    put(store, "next", after=("one",), on_failed="cancel", keep=86_400_000 * 365)
    end_as(store, "one", "failed")
    assert fields(store, "next", "state") == ("cancelled",)
    store.run(commands.retry(["one"]))
    end_as(store, "one", "succeeded")
    remove(store, clock, "one")

    assert store.run(commands.retry(["next"])) == ["waiting"]


@pytest.mark.parametrize("way", ["deleted", "not kept"])
def test_a_dependency_that_was_removed_otherwise_counts_as_it_ended(store: Store, way: str) -> None:
    put(store, "gone", keep=False if way == "not kept" else None)
    put(store, "next", after=("gone",))
    succeed(store, "gone")
    if way == "deleted":
        assert store.run(commands.delete(["gone"])) == ["OK"]

    put(store, "late", after=("gone",))

    assert standing(store) == {"waiting": ["next", "late"]}


def test_a_new_job_has_nothing_of_an_earlier_one_with_its_id(store: Store, clock: TestClock) -> None:
    put(store, "gone")
    put(store, "next", after=("gone",))
    succeed(store, "gone")
    remove(store, clock, "gone")
    put(store, "gone", queue="else")
    put(store, "late", after=("gone",))
    assert fields(store, "late", "state") == ("blocked",)
    store.run(commands.cancel(["gone"]))
    remove(store, clock, "gone")

    put(store, "later", after=("gone",))

    assert learned(store, "later") == [[b"gone", b"cancelled"]]


def test_a_job_that_nobody_waits_for_has_not_the_outcome_of_an_earlier_one_with_its_id(
    store: Store, clock: TestClock
) -> None:
    put(store, "gone")
    put(store, "next", after=("gone",))
    succeed(store, "gone")
    remove(store, clock, "gone")
    put(store, "gone", queue="else")
    store.run(commands.cancel(["gone"]))
    remove(store, clock, "gone")

    with pytest.raises(errors.JobNotFound):
        put(store, "later", after=("gone",))


def test_a_job_that_nobody_waited_for_is_forgotten_when_it_is_removed(store: Store) -> None:
    put(store, "plain", keep=False)
    succeed(store, "plain")
    with pytest.raises(errors.JobNotFound, match="ended and was removed"):
        put(store, "late", after=("plain",))
    put(store, "stays")
    with pytest.raises(errors.JobNotFound, match="plain"):
        store.run(commands.depend("stays", add=["plain"]))


def test_a_job_is_not_forgotten_before_all_that_wait_for_it_have_learned(store: Store, clock: TestClock) -> None:
    put(store, "first")
    for part in range(3):
        put(store, *(f"n{part}-{n}" for n in range(1000)), after=("first",), queue="other")
    end_as(store, "first", "failed")
    store.run(commands.delete(["first"]))  # refused while some wait
    assert fields(store, "first", "state") == ("failed",)
    clock.advance(40 * 86_400)
    for _ in range(6):
        store.run(commands.upkeep())
        clock.advance(2)

    assert {mark for n in range(1000) for mark in [job(store, f"n2-{n}")["after"][0][1]]} == {b"failed"}


def test_a_repaired_job_learns_how_its_dependency_ended(
    store: Store, client: redis.Redis, namespace: str, clock: TestClock
) -> None:
    put(store, "one")
    put(store, "next", after=("one",))
    put(store, "other", after=("one",), queue="else")
    succeed(store, "one")
    remove(store, clock, "one")
    base = f"hf:{{{namespace}}}:"
    put(store, "hung", after=("other",), queue="else")
    client.hset(f"{base}a:hung", mapping={"one": "2-"})
    client.hset(f"{base}j:hung", "b", "2 b 0")
    for _ in range(3):
        clock.advance(2)
        store.run(commands.upkeep())

    assert [b"one", b"succeeded"] in learned(store, "hung")


def test_a_cancelled_job_that_is_retried_waits_again(store: Store) -> None:
    put(store, "one")
    put(store, "next", after=("one",))
    store.run(commands.cancel(["next"]))

    assert store.run(commands.retry(["next"])) == ["blocked"]
    succeed(store, "one")

    assert fields(store, "next", "state") == ("waiting",)


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_end_explained(store: Store, client: redis.Redis, namespace: str, seed: int) -> None:
    chance = random.Random(seed)
    ids = [f"j{n}" for n in range(200)]
    jobs = []
    for place, id in enumerate(ids):
        after = tuple(chance.sample(ids[:place], k=min(place, chance.choice([0, 1, 1, 2, 5]))))
        jobs.append(new(id, after=after or None, on_failed=chance.choice([None, "block", "cancel", "run"])))
    store.run(commands.enqueue(jobs))

    for step in range(600):
        _do_something(store, chance, ids)
        if step % 20 == 0:
            check(store, client, namespace)
    while got := take(store, limit=100):
        for id in got:
            end(store, id, Succeed(b"1"))
    states = standing(store)
    assert set(states) <= {"succeeded", "failed", "cancelled", "blocked"}
    for id in states.get("blocked", []):
        after = job(store, id)["after"]
        assert any(state in (b"failed", b"cancelled") for _, state, _ in after) or any(
            fields(store, other.decode(), "state") == ("blocked",) for other, *_ in after
        )


def _do_something(store: Store, chance: random.Random, ids: list[str]) -> None:
    what, id, other = chance.random(), chance.choice(ids), chance.choice(ids)
    outcomes: list[Any] = [Succeed(b"1"), Error(b"", "g", final=True)]
    if what < 0.6:
        for got in take(store):
            end(store, got, chance.choice(outcomes))
    elif what < 0.7:
        store.run(commands.cancel([id], dependents=chance.random() < 0.2))
    elif what < 0.85:
        store.run(commands.retry([id]))
    elif what < 0.95:
        with suppress(errors.WrongState, errors.DependencyCycle, errors.JobNotFound):
            store.run(commands.depend(id, add=[other], remove=[chance.choice(ids)]))
    else:
        store.run(commands.delete([id]))
        if store.run(commands.get([id]))[0] is None:
            put(store, id)
