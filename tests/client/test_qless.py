"""What goes wrong in qless and elsewhere with jobs that belong together, repeat or must not crowd: not here.

Each test is named for a fault of FIELD.md; and the table in `docs/qless.md` names what there is.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import holdfast
from holdfast import Holdfast, Job, cron, errors
from holdfast.items.item import Item
from holdfast.items.items import Items
from holdfast.job.outcome import Crash, Error, Succeed
from holdfast.running.running_job import RunningJob
from holdfast.store import commands, library
from holdfast.store.commands import Lease
from holdfast.store.store import Address, Store
from holdfast.task.task import Task
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import (
    LEASE,
    ONE,
    THREE,
    TWO,
    dump,
    end,
    fields,
    happened,
    job,
    keep,
    put,
    standing,
    take,
)

HOUR = 3_600_000
ROOT = Path(__file__).parents[2]


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url) as made:
        yield made


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


def server_time(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds * 1000 + microseconds // 1000)


@pytest.fixture(params=[-1, 1], ids=["behind", "ahead"])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this process is an hour behind, or ahead; that of the server is right."""
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + request.param * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + request.param * 3600 * 10**9)


# qless: clocks of clients


@pytest.mark.usefixtures("wrong_clock")
def test_a_client_whose_clock_is_wrong_delays_and_claims_by_the_clock_of_the_server(
    address: Address, client: redis.Redis
) -> None:
    store = Store(address)
    before = server_time(client)
    put(store, "now")
    put(store, "later", delay=HOUR // 2)
    after = server_time(client)

    assert before <= job(store, "later")["timer"] - HOUR // 2 <= after
    assert before <= job(store, "now")["created"] <= after
    assert take(store, limit=10) == ["now"]
    assert take(store, TWO, limit=10) == []  # nor does it take a lease that has not ended
    assert before <= job(store, "now")["timer"] - LEASE * 1000 <= server_time(client)
    store.close()


@pytest.mark.usefixtures("wrong_clock")
@pytest.mark.parametrize("how", [{"cron": "*/10 * * * *"}, {"every": "10m"}])
def test_a_schedule_made_by_a_client_whose_clock_is_wrong_fires_by_the_clock_of_the_server(
    app: Holdfast, client: redis.Redis, how: dict[str, Any]
) -> None:
    @app.task(name="report")
    def report() -> None: ...

    before = server_time(client)
    app.schedule("often", report.bind(), **how)

    [(name, first)] = client.zrange(f"hf:{{{app.store.address.namespace}}}:timers", 0, -1, withscores=True)
    assert name == b"&often"
    assert before - before % 600_000 < first <= before + 600_000


# qless: names of classes


def test_a_task_may_be_called_as_a_class_of_another_language(store: Store, server_url: str, namespace: str) -> None:
    app = Holdfast(server_url, namespace=namespace)

    @app.task(name="My::Job::Class", queue="q", schedule=cron("0 2 * * *"))
    def work() -> None: ...

    job = work.enqueue()
    assert [
        run.task for run in store.run(commands.claim(ONE, commands.claim_args(["q"], counter=1, limit=1))).jobs
    ] == ["My::Job::Class"]
    assert app.get(job.id).task == "My::Job::Class"
    assert work.options(debounce="1h").enqueue().unique == "My::Job::Class"
    app.schedule(work.name, work.bind(), every="1h")
    fired = app.trigger(work.name)
    assert app.get_schedule("My::Job::Class").task == "My::Job::Class"
    assert fired.startswith("My::Job::Class@")
    assert app.cancel_all(task="My::Job::Class").counts == {"cancelling": 1, "cancelled": 2}
    app.close()


def test_lower_numbers_run_first_and_those_out_of_bounds_are_refused(store: Store) -> None:
    for priority in (255, 0, -256, 10, -10):
        put(store, f"p{priority}", priority=priority)

    assert take(store, limit=9) == ["p-256", "p-10", "p0", "p10", "p255"]
    for priority in (-257, 256):
        with pytest.raises(errors.Invalid, match="from -256 to 255"):
            put(store, "other", priority=priority)


# qless: a pop of 9,000 dies half-way


def test_a_claim_of_nine_thousand_is_refused_before_it_changes_anything(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    for part in range(9):
        put(store, *(f"{part}-{number}" for number in range(1000)))
    before = dump(client, namespace)
    with pytest.raises(errors.Invalid, match="from 1 to 1000"):
        take(store, limit=9000)
    assert dump(client, namespace) == before

    assert sum(len(take(store, limit=1000)) for _ in range(9)) == 9000


def test_nine_thousand_that_are_due_at_once_come_in_steps(store: Store, clock: TestClock) -> None:
    for part in range(9):
        put(store, *(f"{part}-{number}" for number in range(1000)), delay=1000)
    clock.advance(1)
    got = 0
    while jobs := take(store, limit=1000):
        got += len(jobs)

    assert got == 9000


def test_nine_thousand_dependents_are_released_in_steps_and_none_is_forgotten(store: Store) -> None:
    put(store, "first", priority=-1)
    for part in range(9):
        put(store, *(f"{part}-{number}" for number in range(1000)), after=("first",))
    assert take(store) == ["first"]
    end(store, "first", Succeed(b"1"))
    got = 0
    while jobs := take(store, limit=1000):
        got += len(jobs)

    assert got == 9000


def test_to_cancel_a_job_with_nine_thousand_dependents_is_refused_before_it_changes_anything(store: Store) -> None:
    put(store, "first")
    for part in range(9):
        put(store, *(f"{part}-{number}" for number in range(1000)), after=("first",))

    with pytest.raises(errors.TooBig, match="cancel them in parts"):
        store.run(commands.cancel(["first"], dependents=True))

    assert job(store, "first")["state"] == "waiting"
    assert store.run(commands.count(states=["blocked"])) == 9000


# qless: counts drift


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_those_of_the_lists_whatever_happened(store: Store, clock: TestClock, seed: int) -> None:
    chance = random.Random(seed)
    store.run(commands.set_limit("few", 2))
    put(store, *"abcdefgh", retries=1, limits=("few",))
    put(store, *"ijkl", after=("a", "b"), on_failed="cancel", queue="r")
    acts: list[Callable[[str], Any]] = [
        lambda id: store.run(commands.cancel([id])),
        lambda id: store.run(commands.retry([id])),
        lambda id: store.run(commands.move([id], queue=chance.choice("qr"))),
        lambda id: store.run(commands.fail([id])),
        lambda id: store.run(commands.release([id], delay=chance.choice([0, 1000]))),
        lambda id: store.run(commands.delete([id])),
        lambda id: put(store, id, queue=chance.choice("qr")),
        lambda _: take(store, ONE, "q", "r", limit=2),
        lambda _: clock.advance(1),
    ]
    for _ in range(150):
        chance.choice(acts)(chance.choice("abcdefghijkl"))
        for name, _, _, counts in store.run(commands.queues()).queues:
            found = store.run(commands.list_jobs(queues=[name], limit=100)).jobs
            states = [each["state"] for each in found]
            assert counts == {state: states.count(state) for state in holdfast.job.job.STATES}
            assert store.run(commands.count(queues=[name])) == len(found)
    [row] = store.run(commands.limits()).limits
    running = [each for each in store.run(commands.list_jobs(states=["running"])).jobs if each["limits"] == "few"]
    assert row.held == len(running)


# qless: dependents of a failed job wait for ever; celery: a chord hangs when a member fails


def test_a_job_blocked_by_a_failed_dependency_names_it_and_runs_after_its_retry(store: Store) -> None:
    put(store, "bad", "good")
    put(store, "both", after=("good", "bad"))
    for id in take(store, limit=2):
        end(store, id, Succeed(b"1") if id == "good" else Error(b"", "g", final=True))

    assert fields(store, "both", "state", "waits_for") == ("blocked", 1)
    assert [row[:2] for row in job(store, "both")["after"]] == [[b"good", b"succeeded"], [b"bad", b"failed"]]
    store.run(commands.retry(["bad"]))
    assert take(store) == ["bad"]
    end(store, "bad", Succeed(b"1"))

    assert take(store) == ["both"]


def test_a_join_counts_ends_of_any_kind(store: Store, clock: TestClock) -> None:
    parts = ["succeeds", "fails", "crashes", "cancelled", "lost", "stopped"]
    put(store, *parts, crashes=0, lost=0)
    put(store, "join", after=tuple(parts), on_failed="run")
    take(store, limit=5)
    store.run(commands.cancel(["stopped"]))
    store.run(commands.cancel(["cancelled"]))
    end(store, "succeeds", Succeed(b"1"))
    end(store, "fails", Error(b"", "g", final=True))
    end(store, "crashes", Crash(b""))
    took = []
    for _ in range(8):  # the others are renewed by nobody
        clock.advance(5)
        took += take(store, TWO)

    assert took == ["join"]
    assert [word.decode() for _, word, _ in job(store, "join")["after"]] == [
        "succeeded",
        "failed",
        "failed",
        "cancelled",
        "failed",
        "cancelled",
    ]


def test_a_dependency_that_does_not_exist_is_refused_and_not_taken_for_done(store: Store) -> None:
    with pytest.raises(errors.JobNotFound, match="dependency ghost does not exist"):
        put(store, "next", after=("ghost",))
    put(store, "next")
    with pytest.raises(errors.JobNotFound, match="dependency ghost does not exist"):
        store.run(commands.depend("next", add=["ghost"]))

    assert job(store, "next")["state"] == "waiting"


# qless: cancelling a complete job reports success


def test_to_cancel_a_job_that_has_ended_is_refused_and_changes_nothing(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    put(store, "done", "next")
    store.run(commands.depend("next", add=["done"]))
    take(store)
    end(store, "done", Succeed(b'"result"'))
    before = dump(client, namespace)

    assert store.run(commands.cancel(["done", "nobody"])) == ["STATE", "NOTFOUND"]
    assert dump(client, namespace) == before
    assert fields(store, "done", "state", "result") == ("succeeded", b'"result"')


def test_the_client_says_so_too(app: Holdfast) -> None:
    item = app.items("q")
    item.put(b"x", id="done")
    claimed = item.claim()
    assert claimed
    claimed.complete()

    with pytest.raises(errors.WrongState, match="done"):
        app.cancel("done")


# qless: `[]` becomes `{}` after a heartbeat


@pytest.mark.parametrize(
    "payload",
    [b"[[]]", b'[{"a":[],"b":{}}]', b"[12345678901234567890]", b"[1.0,-0.0,1e400]", b'{"b":1,"a":2}', b"\x00\xff"],
)
def test_arguments_and_results_are_the_same_bytes_after_all_that_can_happen(
    store: Store, clock: TestClock, payload: bytes
) -> None:
    put(store, "a", payload=payload, retries=1, backoff=0)
    take(store)
    keep(store, Lease(ONE, "a", 1))
    store.run(commands.save(Lease(ONE, "a", 1), payload, progress='{"message":[]}', renew=True))
    end(store, "a", Error(b"", "g"))
    store.run(commands.move(["a"], queue="r", priority=3))
    clock.advance(1)
    [claimed] = store.run(commands.claim(TWO, commands.claim_args(["r"], counter=1, limit=1))).jobs

    assert (claimed.payload, claimed.checkpoint) == (payload, payload)
    end(store, "a", Succeed(payload), TWO)
    store.run(commands.attach("a", {"note": "[]"}))
    assert fields(store, "a", "payload", "result", "fields") == (payload, payload, [b"note", b"[]"])


def test_a_schedule_enqueues_the_bytes_that_it_was_given(store: Store, clock: TestClock) -> None:
    payload = b'[[], {}, 12345678901234567890, "\xc3\xa9"]'
    batch = {"queue": "q", "task": "report", "limits": [], "retries": 0}
    store.run(commands.schedule("often", batch, payload, every=1000))
    clock.advance(2)
    [claimed] = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=1, limit=1))).jobs

    assert claimed.payload == payload


# redis-work-queue: a stale worker completes another's lease; two cleaners push an item twice


def test_a_worker_that_lost_its_lease_releases_no_dependents_and_no_slot_of_another(
    store: Store, clock: TestClock
) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, "a", "b", limits=("one",))
    put(store, "next", after=("a",), priority=9)
    take(store)
    for _ in range(8):
        clock.advance(5)
        keep(store, executor=TWO)
    assert take(store, TWO, limit=5) == ["a"]

    assert end(store, "a", Succeed(b"stale"), ONE, attempt=1) == "LOST"

    assert standing(store) == {"running": ["a"], "throttled": ["b"], "blocked": ["next"]}
    assert take(store, THREE, limit=5) == []


def test_several_heartbeats_requeue_an_expired_job_and_release_its_slot_once(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, "a", "b", limits=("one",))
    take(store)
    for _ in range(8):
        clock.advance(5)
        keep(store, executor=TWO)
        keep(store, executor=THREE)

    assert [kind for kind, _ in happened(store)].count("lost") == 1
    assert [take(store, executor, limit=5) for executor in (TWO, THREE)] == [["a"], []]
    [row] = store.run(commands.limits()).limits
    assert (row.held, row.parked) == (1, 1)


# redis-work-queue: glob characters in a name; QuantumLeap: a prefix matches too much


def test_names_that_begin_alike_or_look_like_patterns_have_nothing_to_do_with_each_other(store: Store) -> None:
    store.run(commands.set_limit("t", 1))
    put(store, "one", limits=("t:ab",), share="a", queue="x")
    put(store, "two", limits=("t:abc",), share="ab", queue="xy")
    put(store, "three", limits=("t:a",), share="abc", queue="x-y")
    store.run(commands.pause("x"))

    assert sorted(take(store, ONE, "x", "xy", "x-y", limit=5)) == ["three", "two"]
    for name in ("t*", "t?", "[t]", "t:a"):
        with pytest.raises(errors.Invalid):
            store.run(commands.set_limit(name, 1))


# streaq: a stale cron fires at restart; rq, celery: a firing twice


def test_a_missed_firing_is_skipped_with_missed_skip(store: Store, clock: TestClock) -> None:
    batch = {"queue": "q", "task": "report"}
    times = [clock.now + minutes * 60_000 for minutes in range(1, 200)]
    store.run(commands.schedule("strict", batch, b"[]", times=times, missed="skip", late=5000))
    clock.advance(3600 + 30)

    assert take(store, limit=100) == []
    clock.advance(30)
    assert take(store, limit=100) == [f"strict@{clock.now}"]
    assert take(store, TWO, limit=100) == []


def test_workers_that_compute_the_same_times_make_one_firing_of_each(store: Store, clock: TestClock) -> None:
    batch = {"queue": "q", "task": "report"}
    times = [clock.now + 1000 * number for number in range(1, 6)]
    for _ in range(10):
        store.run(commands.schedule("often", batch, b"[]", times=times, missed="all"))
    assert sum(store.run(commands.refill("often", times[-1], [times[-1] + 1000])) for _ in range(10)) == 1
    clock.advance(6)

    got = [id for number in range(10) for id in take(store, f"node/w{number}.0", limit=100)]
    assert got == [f"often@{time}" for time in [*times, times[-1] + 1000]]


# faktory, sirepo, uwazi: one tenant starves the rest


def test_a_tenant_with_two_thousand_jobs_delays_another_by_one_job(store: Store) -> None:
    for part in range(2):
        put(store, *(f"big-{part}-{number}" for number in range(1000)), share="big")
    take(store, limit=100)
    put(store, "small", share="small")

    assert "small" in take(store, limit=2)


# celery: what is delayed fills the memory of a worker


def test_scheduled_blocked_and_throttled_jobs_are_not_claimed(store: Store) -> None:
    store.run(commands.set_limit("none", 1))
    put(store, "holder", limits=("none",))
    assert take(store) == ["holder"]
    put(store, "delayed", delay=HOUR)
    put(store, "throttled", limits=("none",))
    put(store, "blocked", after=("delayed",))

    assert take(store, TWO, limit=1000) == []
    assert standing(store)["scheduled"] == ["delayed"]


# The table of commands

QLESS = re.findall(
    r"\S+",
    """get multiget put requeue pop peek heartbeat complete fail retry timeout log cancel unfail priority pause unpause
    failed queues length workers stats track untrack recur unrecur recur.get recur.update recur.tag recur.untag
    config.get config.set config.unset worker.deregister queue.forget queue.throttle.get queue.throttle.set
    throttle.set throttle.get throttle.delete throttle.locks throttle.pending throttle.ttl throttle.release""",
)
QLESS += [
    f"jobs {name}" for name in ("complete", "running", "stalled", "scheduled", "depends", "recurring", "throttled")
]
QLESS += ["depends on", "depends off", "tag add", "tag remove", "tag get", "tag top"]
OBJECTS: dict[str, type] = {
    "jobs": Holdfast,
    "job": Job,
    "Job": Job,
    "task": Task,
    "items": Items,
    "Item": Item,
    "current_job()": RunningJob,
}


def rows() -> list[list[str]]:
    """The rows of all tables of commands: qless, its clients, Python, command line, store."""
    lines = (ROOT / "docs" / "qless.md").read_text("utf-8").partition("| event of qless |")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] != "qless"]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_command_of_qless_is_in_the_table() -> None:
    named = {name for row in rows() for name in quoted(row[0])[:1]}

    assert sorted(set(QLESS) - named) == []
    assert all(len(row) == 5 for row in rows())


def test_every_python_name_of_the_table_exists() -> None:
    for row in rows():
        for name in quoted(row[2]):
            owner, _, attribute = name.rpartition(".")
            if owner:
                known = attribute in getattr(OBJECTS[owner], "__struct_fields__", ())
                assert known or hasattr(OBJECTS[owner], attribute), name
            elif name.isidentifier():
                assert hasattr(holdfast, name), name


def test_every_verb_of_the_store_in_the_table_exists(store: Store, client: redis.Redis) -> None:
    store.run(commands.queues())  # loads the library
    names = [function[b"name"].decode() for loaded in function_list(client) for function in loaded[b"functions"]]
    verbs = {name.split("_", 2)[2] for name in names if name.startswith(f"hf_{library.digest()}_")}
    named = {name for row in rows() for name in quoted(row[4])}

    assert named <= verbs
    assert len(named) > 25


def function_list(client: redis.Redis) -> list[dict[bytes, Any]]:
    """The libraries of the server, as tables, whichever protocol is spoken."""
    tables = [as_table(loaded) for loaded in client.function_list()]
    return [{**table, b"functions": [as_table(each) for each in table[b"functions"]]} for table in tables]


def as_table(part: Any) -> dict[bytes, Any]:
    return dict(zip(part[::2], part[1::2], strict=True)) if isinstance(part, list) else part


def test_every_command_line_of_the_table_exists() -> None:
    from holdfast.cli.program import program

    for row in rows():
        for line in quoted(row[3]):
            name, *words = line.split()
            command: Any = program
            for word in words:
                if word.startswith("--"):
                    assert any(word in option.opts for option in command.params), line
                else:
                    command = command.commands[word]
            assert (name, command is program) == ("holdfast", False), line


def test_missing_features_are_listed_as_missing() -> None:
    for row in rows():
        if not quoted(row[2]):
            assert row[2] == "not yet" or "not" in row[2] or "no such" in row[2] or "a worker" in row[2], row
