"""Bugs in the Lua library that were found by reading it, one test each."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import Holdfast, errors, every
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import Command, Finish, Lease
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import (
    ONE,
    TWO,
    MiB,
    ask,
    end,
    job,
    new,
    put,
    raw,
    standing,
    take,
)
from tests.support.new_job import NewJob


class Counted:
    """How many commands the functions of the library called in a test's calls."""

    def __init__(self, server: redis.Redis, store: Store) -> None:
        self.server, self.store = server, store

    def run(self, command: Command[Any]) -> tuple[Any, int]:
        before = self._calls()
        reply = self.store.run(command)
        return reply, self._calls() - before

    def _calls(self) -> int:
        stats: dict[str, Any] = self.server.info("commandstats")
        return sum(row["calls"] for name, row in stats.items() if name not in ("cmdstat_info", "cmdstat_fcall"))


@pytest.fixture
def counted(store: Store, client: redis.Redis) -> Counted:
    store.run(commands.queue_names())  # the library is loaded
    return Counted(client, store)


# Limits


def test_many_jobs_with_two_limits_do_not_oscillate_between_them(store: Store, counted: Counted) -> None:
    store.run(commands.set_limit("api", 2))
    store.run(commands.set_limit("tenant", 1))
    put(store, "first", *(f"x{n}" for n in range(900)), limits=("api", "tenant:x"))
    put(store, "other1", "other2", queue="other", limits=("api",))
    assert take(store, limit=10) == ["first"]
    while store.run(commands.count(queues=["q"], states=["waiting"])):
        assert take(store, limit=10) == []  # parked by tenant:x
    assert take(store, TWO, "other") == ["other1"]
    end(store, "first", Succeed(b"1"))
    assert take(store, TWO, "other") == ["other2"]  # so api is full, and tenant:x is not

    claimed, calls = counted.run(commands.claim(ONE, ask(limit=10)))
    assert (claimed.jobs, job(store, "x0")["throttled_by"]) == ([], "api")
    assert calls < 300
    end(store, "other1", Succeed(b"1"), TWO)
    assert take(store, limit=10) == ["x0"]


def test_many_jobs_parked_by_one_key_do_not_hold_up_other_keys(store: Store) -> None:
    store.run(commands.set_limit("api", 2))
    store.run(commands.set_limit("tenant", 1))
    put(store, "o1", "o2", limits=("api",))
    put(store, *(f"x{n:03}" for n in range(300)), limits=("api", "tenant:x"))
    put(store, "y", limits=("api", "tenant:y"))
    assert take(store, limit=10) == ["o1", "o2"]  # all others are parked by api

    end(store, "o1", Succeed(b"1"))
    end(store, "o2", Succeed(b"1"))
    taken = [id for _ in range(20) for id in take(store, limit=1)]

    assert sorted(taken) == ["x000", "y"]


def test_a_slot_offered_to_a_job_goes_to_another_if_that_job_ends(store: Store) -> None:
    store.run(commands.set_limit("api", 1))
    store.run(commands.set_limit("tenant", 1))
    put(store, "first", "second", "third", limits=("tenant:x", "api"))
    assert take(store, limit=10) == ["first"]
    put(store, "other", queue="other", limits=("api",))
    end(store, "first", Succeed(b"1"))
    assert take(store, TWO, "other") == ["other"]
    assert take(store, limit=10) == []
    assert job(store, "second")["throttled_by"] == "api"

    store.run(commands.cancel(["second"]))
    end(store, "other", Succeed(b"1"), TWO)

    assert take(store, limit=10) == ["third"]


def test_slots_released_in_one_call_unpark_as_many_jobs(store: Store, counted: Counted) -> None:
    store.run(commands.set_limit("api", 100))
    put(store, *(f"{n:04}" for n in range(1000)), limits=("api",))
    running = take(store, limit=1000)
    assert len(running) == 100
    while take(store, limit=1000) or standing(store).get("waiting"):
        pass

    _, calls = counted.run(commands.finish(ONE, [Finish(id, 1, Succeed(b"1")) for id in running]))

    assert len(standing(store)["waiting"]) == 100
    assert calls < 5000


def test_jobs_that_cannot_start_are_not_moved_by_every_claim(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 5, per=60_000))
    put(store, *(f"{n:03}" for n in range(100)), limits=("api",))
    assert len(take(store, limit=100)) == 5
    store.run(commands.pause("q"))
    clock.advance(60)
    waits = [store.run(commands.claim(TWO, ask("other"))).wait for _ in range(3)]

    assert len(standing(store)["waiting"]) == 5
    assert waits == [5000, 5000, 5000]
    store.run(commands.resume("q"))
    assert len(take(store, limit=100)) == 5
    assert take(store, limit=100) == []
    for _ in range(3):
        clock.advance(60)
        assert len(take(store, limit=100)) == 5


# Dependencies


def count_blocked(store: Store) -> int:
    return store.run(commands.count(states=["blocked"]))


def put_all(store: Store, jobs: list[NewJob]) -> None:
    for first in range(0, len(jobs), 1000):
        store.run(commands.enqueue(jobs[first : first + 1000]))


def test_an_ended_job_depends_on_nothing_however_long_its_history(store: Store, counted: Counted) -> None:
    chain = [new("0"), *(new(f"{n}", after=(f"{n - 1}",), on_failed="cancel") for n in range(1, 500))]
    put_all(store, chain)
    store.run(commands.cancel(["0"]))
    assert job(store, "499")["state"] == "cancelled"
    put(store, "late")

    (state, left), calls = counted.run(commands.depend("late", add=["499"]))

    assert (state, left) == ("blocked", 1)
    assert calls < 50
    _, calls = counted.run(commands.retry(["499"]))
    assert calls < 50


def test_one_call_resolves_a_bounded_number_of_dependents_however_many_jobs_it_ends(
    store: Store, counted: Counted
) -> None:
    for name in "abc":
        put_all(store, [new(name), *(new(f"{name}{n}", after=(name,), on_failed="cancel") for n in range(900))])

    _, calls = counted.run(commands.cancel(["a", "b", "c"]))

    assert count_blocked(store) == 2700 - 1000
    assert calls < 15_000
    while count_blocked(store):
        assert store.run(commands.claim(ONE, ask())).wait == 1 or not count_blocked(store)
    assert store.run(commands.claim(ONE, ask())).wait == 5000


def test_many_ended_jobs_with_few_dependents_each_are_resolved_together(store: Store) -> None:
    put(store, "root")
    put_all(store, [new(f"a{n}", after=("root",), on_failed="cancel") for n in range(1000)])
    put_all(store, [new(f"b{n}", after=(f"a{n}",), on_failed="cancel") for n in range(1000)])

    store.run(commands.cancel(["root"]))
    claims = 0
    while count_blocked(store):
        take(store)
        claims += 1

    assert claims <= 11


# Schedules


def test_declaring_a_schedule_again_does_not_lose_missed_times(store: Store, clock: TestClock) -> None:
    batch = {"queue": "q", "task": "report"}
    nightly = clock.now + 3_600_000
    store.run(commands.schedule("hourly", batch, b"[]", every=3_600_000, offset=nightly, revision=1))
    store.run(commands.schedule("nightly", batch, b"[]", spec="cron", revision=1))
    store.run(commands.refill("nightly", 0, [nightly]))
    clock.advance(4000)  # a new release comes, and the workers were stopped for that

    store.run(commands.schedule("hourly", batch, b"[1]", every=3_600_000, offset=nightly, revision=2))
    store.run(commands.schedule("nightly", batch, b"[1]", spec="cron", revision=2))

    assert sorted(take(store, limit=10)) == [f"hourly@{nightly}", f"nightly@{nightly}"]
    assert job(store, f"hourly@{nightly}")["payload"] == b"[1]"


def test_a_schedule_that_fires_at_other_times_than_before_has_missed_nothing(store: Store, clock: TestClock) -> None:
    batch = {"queue": "q", "task": "report"}
    store.run(commands.schedule("name", batch, b"[]", every=3_600_000, offset=clock.now))
    clock.advance(4000)

    store.run(commands.schedule("name", batch, b"[]", every=7_200_000, offset=clock.now + 1000))

    assert take(store, limit=10) == []
    clock.advance(1)
    assert len(take(store, limit=10)) == 1


# Unique keys


@pytest.mark.parametrize("on_exists", ["return", "replace"])
def test_a_dependency_of_the_same_call_is_replaced_by_the_owner_of_its_unique_key(store: Store, on_exists: str) -> None:
    put(store, "first", unique="key")

    store.run(
        commands.enqueue([new("second", unique="key"), new("after", after=("second", "first"))], on_exists=on_exists)
    )

    assert job(store, "after")["after"] == [[b"first", b"pending", 0]]
    assert take(store, limit=10) == ["first"]
    end(store, "first", Succeed(b"1"))
    assert take(store, limit=10) == ["after"]


# Shares


def test_a_job_with_a_new_priority_in_a_shared_queue_is_ordered_as_a_new_one(store: Store) -> None:
    put(store, *(f"low{n:02}" for n in range(50)), share="a", priority=9)
    assert len(take(store, limit=40)) == 40  # so virtual time of this priority is far ahead of that of others
    put(store, *(f"high{n}" for n in range(5)), share="b")

    store.run(commands.move(["low45"], priority=0))

    assert take(store, limit=3) == ["high0", "low45", "high1"]


def test_more_schedules_than_a_reply_has_are_all_listed(store: Store, server_url: str, namespace: str) -> None:
    app = Holdfast(server_url, namespace=namespace)
    for number in range(1003):
        batch, when = {"queue": "q", "task": "t"}, every("1m").arguments()
        store.run(commands.schedule(f"s{number:04}", batch, b"[]", **when))

    assert len(store.run(commands.schedules())) == 1000
    assert [schedule.name for schedule in app.schedules()] == [f"s{number:04}" for number in range(1003)]


def test_a_reply_about_schedules_has_bounds(store: Store) -> None:
    payload = b"x" * MiB
    for number in range(40):
        store.run(commands.schedule(f"s{number:02}", {"queue": "q", "task": "t"}, payload, every=60_000))

    first = store.run(commands.schedules())
    rest = store.run(commands.schedules(after=first[-1]["name"]))

    assert [fields["name"] for fields in (*first, *rest)] == [f"s{number:02}" for number in range(40)]
    assert 30 < len(first) < 35


def test_many_schedules_with_many_missed_times_fire_in_bounded_steps(store: Store, clock: TestClock) -> None:
    for number in range(5):
        how = {"every": 1000, "missed": "all", "backlog": 1000}
        store.run(commands.schedule(f"s{number}", {"queue": "s", "task": "t"}, b"[]", **how))
    clock.advance(100)

    counts = []
    for _ in range(5):
        take(store)
        counts.append(store.run(commands.count(queues=["s"])))

    assert counts[0] <= 300
    assert counts[-1] == 5 * 101


# Ids


def test_a_job_whose_id_looks_like_the_timer_of_something_else_is_a_job(store: Store, clock: TestClock) -> None:
    store.run(commands.schedule("daily", {"queue": "s", "task": "t"}, b"[]", every=3_600_000, offset=clock.now + 1000))
    put(store, "@daily", delay=500)
    clock.advance(0.5)
    assert take(store) == ["@daily"]
    taken = []
    for _ in range(4):
        clock.advance(10)
        taken += take(store)
    assert taken == ["@daily"]  # its lease has ended
    assert store.run(commands.count(queues=["s"])) == 1


def test_a_limit_that_is_named_twice_is_refused(store: Store) -> None:
    with pytest.raises(errors.Invalid):
        put(store, "a", limits=("api", "api"))
    assert standing(store) == {}


def test_the_load_of_many_queues_is_requested_in_parts(store: Store, server_url: str, namespace: str) -> None:
    put_all(store, [new(f"{number}", queue=f"q{number:03}") for number in range(450)])

    found = Holdfast(server_url, namespace=namespace).load()

    assert [load.queue for load in found] == [f"q{number:03}" for number in range(450)]
    assert {load.waiting for load in found} == {1}


# The short ways


def finished(*items: Any, blobs: tuple[bytes, ...] = (), executor: str = ONE) -> Command[Any]:
    return raw("finish", *blobs, executor=executor, items=list(items))


def success(store: Store, id: str, *, attempt: int = 1) -> list[Any]:
    """What may stand in the place of an object."""
    return [id, attempt, job(store, id)["created"], 4711, 5]


def test_successes_of_five_values_and_other_outcomes_are_answered_in_order(store: Store) -> None:
    put(store, "a", "b", "c", "d")
    assert take(store, limit=4) == ["a", "b", "c", "d"]
    crash = {"id": "b", "attempt": 1, "outcome": "error", "blob": True, "final": True, "group": "bad"}
    release = {"id": "c", "attempt": 1, "outcome": "release"}
    blobs = (b"one", b"what", b"four", b"late")
    said = [*success(store, "a"), crash, release, *success(store, "d"), *success(store, "a", attempt=2)]
    answers, claimed = store.run(finished(*said, blobs=blobs))

    assert answers == [b"OK", b"OK", b"OK", b"OK", b"LOST"]
    assert claimed == []
    assert [job(store, id)["state"] for id in "abcd"] == ["succeeded", "failed", "waiting", "succeeded"]
    assert [job(store, id).get("result") for id in "ad"] == [b"one", b"four"]
    [(_, _, claimed_at, started, *_)] = job(store, "a")["attempts"]
    assert (started - claimed_at, job(store, "a")["pid"]) == (5, 4711)


@pytest.mark.parametrize(
    "values",
    [
        [7, 1, 0, 1, 1],
        ["a", 1.5, 0, 1, 1],
        ["a", "1", 0, 1, 1],
        ["a", 1, 0, -1, 1],
        ["a", 1, 0, 1, 2**60],
        ["a", None, 0, 1, 1],
        [None, 1, 0, 1, 1],
    ],
    ids=str,
)
def test_an_invalid_success_of_five_values_is_refused_alone(store: Store, values: list[Any]) -> None:
    put(store, "a", "b")
    take(store, limit=2)
    answers, _ = store.run(finished(*values, *success(store, "b"), blobs=(b"1", b"2")))

    assert answers == [b"INVALID", b"OK"]
    assert [job(store, id)["state"] for id in "ab"] == ["running", "succeeded"]
    assert job(store, "b")["result"] == b"2"


def test_a_success_without_a_blob_or_of_an_earlier_job_with_the_id_is_refused(store: Store) -> None:
    put(store, "a")
    take(store)
    assert store.run(finished(*success(store, "a")))[0] == [b"INVALID"]
    [id, attempt, created, *rest] = success(store, "a")
    assert store.run(finished(id, attempt, created + 1, *rest, blobs=(b"1",)))[0] == [b"LOST"]
    assert job(store, "a")["state"] == "running"


@pytest.mark.parametrize(
    "items",
    [["a", 1, 0], ["a", 1, 0, 1, 1, "b"], "items", ["a", 1, 0, 1, 1] * 1001],
    ids=lambda it: str(it)[:30],
)
def test_an_invalid_list_of_outcomes_is_refused(store: Store, items: Any) -> None:
    put(store, "a")
    take(store)
    with pytest.raises(errors.Invalid, match="items must be a list"):
        store.run(raw("finish", b"1", executor=ONE, items=items))
    assert job(store, "a")["state"] == "running"


def test_a_claim_returns_the_kind_of_each_job(store: Store) -> None:
    put(store, "a1", task="a", timeout=5000)
    put(store, "b1", task="b", run='{"memory":1}')
    put(store, "a2", task="a", timeout=5000)
    put(store, "b2", task="b", run='{"memory":2}')
    put(store, "b3", task="b")
    request = ask(limit=9)
    reply = store.run(raw("claim", executor=ONE, **request))
    assert len(reply[2]) == 4 * 7  # a, and b in three ways
    jobs = {claimed.id: claimed for claimed in store.run(commands.claim(ONE, request)).jobs}

    assert {id: (claimed.task, claimed.timeout, claimed.run, claimed.alone) for id, claimed in jobs.items()} == {
        "a1": ("a", 5000, b"", False),
        "b1": ("b", 0, b'{"memory":1}', False),
        "a2": ("a", 5000, b"", False),
        "b2": ("b", 0, b'{"memory":2}', False),
        "b3": ("b", 0, b"", False),
    }


def test_a_caller_cannot_mark_its_arguments_as_checked(store: Store) -> None:
    for words in ({"is_known": True}, {"is_plain": True}):
        batch = {"queue": "no:colons", "task": "t", "spec": "q", **words}
        with pytest.raises(errors.Invalid, match="a queue must be"):
            store.run(raw("enqueue", b"x", b"1", batches=[batch], **words))
    store.run(
        raw("enqueue", b"x", b"1", batches=[{"queue": "q", "task": "t", "spec": "lies", "flags": 8, "is_plain": True}])
    )
    assert (job(store, "x")["task"], job(store, "x")["keep"]) == ("t", 1)


def test_cached_arguments_do_not_outlive_a_change(store: Store) -> None:
    """Arguments, kinds and keys are, but not settings."""
    put(store, "a")
    take(store)
    store.run(commands.configure("q", set={"timeout": 7000, "lease": 5000}))
    put(store, "b")
    [claimed] = store.run(commands.claim(ONE, ask())).jobs
    assert (claimed.id, claimed.timeout, claimed.lease) == ("b", 7000, 5000)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "priority": {"priority": -3, "retries": 0, "codec": "raw"},
    "delay": {"delay": 60_000},
    "run": {"run": '{"memory":1}'},
    "limits": {"limits": ("api:x", "disk")},
    "share": {"share": "tenant"},
    "deadline": {"deadline": 90_000},
    "once": {"at_most_once": True},
}
SAME = ("state", "queue", "task", "codec", "priority", "retries", "run", "limits", "share", "at_most_once", "payload")


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_with_cached_arguments_stores_the_same_as_the_first(store: Store, kind: str) -> None:
    """A call that says when it is made, as most do here, never is: it has other arguments each time."""
    now = Store(store.address)
    for id in ("first", "second", "third"):
        stored = now.run(commands.enqueue([new(id, payload=id.encode(), **KINDS[kind])]))
        assert (stored.created, stored.ids) == ([True], [id])
    first, second, third = (job(now, id) for id in ("first", "second", "third"))

    for later in (second, third):
        assert [later[name] for name in SAME[:-1]] == [first[name] for name in SAME[:-1]]
        assert later["payload"] == later["id"].encode()
        assert later["since"] == later["created"] >= first["created"]
        assert later["arrival"] > first["arrival"]
        for time in ("timer", "deadline"):
            assert bool(later[time]) is bool(first[time])
            assert later[time] - later["created"] == first[time] - first["created"] or not later[time]
    again = now.run(commands.enqueue([new("second", **KINDS[kind])]))
    assert (again.created, again.ids) == ([False], ["second"])
    assert job(now, "second")["payload"] == b"second"
    if first["state"] == "waiting":
        assert take(now, limit=9) == ["first", "second", "third"]


def test_a_call_with_cached_arguments_is_refused_like_the_first(store: Store) -> None:
    now, batches = Store(store.address), [{"queue": "q", "task": "t"}]
    for id in (b"one", b"two"):
        now.run(raw("enqueue", id, b"1", batches=batches, on_exists="return"))
    for blobs, words in {
        (b"no spaces", b"1"): "a job id must be|more ids than jobs",
        (b"", b"1"): "a job id must be|fewer ids than jobs",
        (b"x" * 129, b"1"): "a job id must be",
        (b"three",): "has no payload",
        (): "fewer ids than jobs",
    }.items():
        with pytest.raises(errors.Invalid, match=words):
            now.run(raw("enqueue", *blobs, batches=batches, on_exists="return"))
    with pytest.raises(errors.TooBig):
        now.run(raw("enqueue", b"three", b"1" * (MiB + 1), batches=batches, on_exists="return"))
    assert now.run(commands.count()) == 2


def test_a_call_with_cached_arguments_sees_what_has_changed(store: Store) -> None:
    now = Store(store.address)
    for id in ("a", "b"):
        now.run(commands.enqueue([new(id)]))
    now.run(commands.pause("q"))
    now.run(commands.enqueue([new("c")]))
    assert take(now, limit=9) == []
    now.run(commands.resume("q"))
    assert take(now, limit=9) == ["a", "b", "c"]
    now.run(commands.enqueue([new("shared", share="x")]))  # from now on its jobs take turns
    for id in ("d", "e"):
        now.run(commands.enqueue([new(id)]))
    now.run(commands.enqueue([new("other", share="y")]))
    assert sorted(take(now, limit=3)) == ["d", "other", "shared"]
    assert take(now, limit=9) == ["e"]


def test_detaching_a_job_does_not_detach_one_that_was_claimed_with_it(store: Store) -> None:
    """Two attempts that one claim began are the same bytes, which are read once."""
    put(store, "a", "b")
    assert take(store, ONE, limit=2) == ["a", "b"]
    store.run(commands.detach(Lease(ONE, "a", 1), to="detached/x.1"))

    assert job(store, "b")["executor"] == ONE
    assert end(store, "b", Succeed(b"")) == "OK"
    assert end(store, "a", Succeed(b""), "detached/x.1") == "OK"
