"""Timers without workers: overdue ones are counted, ask for a worker, and are processed by `upkeep`."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from holdfast import Holdfast
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import LoadSample
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.model import invariants
from tests.store.lua.test_state_machine import ONE, end, job, put, take
from tests.support.consistency import client
from tests.support.servers import running_server
from tests.support.shells import PROGRAM, Shell
from tests.support.workers import until

__all__ = ["client"]


@pytest.fixture
def jobs(server_url: str, namespace: str, store: Store) -> Iterator[Holdfast]:
    """An app under the test's clock, whose workers are all gone."""
    made = Holdfast(server_url, namespace=namespace)
    made.store.close()
    made.store = store
    made.task(name="work", queue="q")(lambda: None)
    yield made
    with redis.Redis.from_url(server_url) as client:
        invariants.check(client, namespace)


def row(store: Store, queue: str = "q") -> LoadSample:
    [found] = store.run(commands.load([queue])).samples
    return found


def state(store: Store, id: str) -> str:
    return str(job(store, id)["state"])


def needed(jobs: Holdfast) -> dict[str, int]:
    return {each.queue: each.needed for each in jobs.load()}


# The signal


def test_a_delayed_job_that_is_due_calls_for_a_worker(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, "a", "b", delay=10_000)
    put(store, "later", delay=60_000)
    assert (needed(jobs), jobs.overdue(), row(store).due, row(store).oldest) == ({"q": 0}, 0, 0, -1)

    clock.advance(12)

    [load] = jobs.load("q")
    assert (load.needed, load.overdue, load.scheduled, load.waiting, load.oldest) == (1, 2, 3, 0, 2.0)
    assert (jobs.overdue(), state(store, "a")) == (2, "scheduled")  # to look moves nothing


def test_due_jobs_count_as_waiting_ones_do(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, "first")
    take(store)
    clock.advance(100)
    end(store, "first", Succeed(b""))
    put(store, *(f"j{number}" for number in range(50)), delay=10_000)
    clock.advance(10)
    assert 25 <= jobs.load("q", target="100s")[0].needed <= 30  # fifty of 100 s each, half of them in a second turn


def test_a_schedule_that_is_due_calls_for_a_worker_of_its_queue(jobs: Holdfast, clock: TestClock) -> None:
    """Also of a queue that has had no job yet."""
    jobs.schedule("poll", jobs.tasks["work"].bind(), every="1m")
    assert needed(jobs) == {}
    clock.advance(61)
    assert needed(jobs) == {"q": 1}
    assert (jobs.load("q")[0].overdue, jobs.load("other")[0].needed, jobs.overdue()) == (1, 0, 1)


def test_a_deadline_that_has_passed_calls_for_a_worker(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, "x", queue="other")
    put(store, "a", after=("x",), deadline=10_000)
    assert needed(jobs)["q"] == 0
    clock.advance(11)
    assert (needed(jobs)["q"], row(store).due, jobs.load("q")[0].overdue) == (1, 0, 1)
    jobs.upkeep()
    assert state(store, "a") == "failed"
    assert needed(jobs)["q"] == 0


def test_a_limit_that_has_room_again_calls_for_a_worker(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 1, per=60_000))
    put(store, "a", "b", limits=("api",))
    assert take(store, limit=2) == ["a"]
    end(store, "a", Succeed(b""))
    assert (row(store).throttled, needed(jobs)["q"]) == (1, 0)
    clock.advance(60)
    assert (jobs.load("q")[0].overdue, needed(jobs)["q"]) == (1, 1)
    jobs.upkeep()
    assert take(store) == ["b"]


def test_a_lease_that_has_ended_calls_for_a_worker(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, "a")
    take(store)
    clock.advance(31)
    assert (needed(jobs), jobs.overdue()) == ({"q": 1}, 1)


def test_a_paused_queue_calls_for_no_worker(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, "a", delay=1000)
    jobs.pause("q")
    clock.advance(2)
    assert (needed(jobs), jobs.load("q")[0].overdue, jobs.overdue()) == ({"q": 0}, 1, 1)


@pytest.mark.parametrize("waits", [{"delay": 1000}, {"deadline": 1000}], ids=["due jobs", "deadlines"])
def test_due_jobs_of_a_paused_queue_hide_no_other_queue(
    jobs: Holdfast, store: Store, clock: TestClock, waits: dict[str, int]
) -> None:
    """Nobody comes for those, so nobody would move the others."""
    jobs.pause("paused")
    for thousand in range(2):
        put(store, *(f"j{thousand}-{number}" for number in range(1000)), queue="paused", **waits)
    jobs.schedule("poll", jobs.tasks["work"].bind(), every="1h")
    clock.advance(3600)
    assert needed(jobs) == {"paused": 0, "q": 1}


def test_the_queues_of_very_many_due_jobs_hide_no_queue_for_good(
    jobs: Holdfast, store: Store, clock: TestClock
) -> None:
    """Only the first timers are looked at for what they are about; whoever comes for those moves the others."""
    for thousand in range(10):
        put(store, *(f"j{thousand}-{number}" for number in range(1000)), queue="many", delay=1000)
    jobs.schedule("poll", jobs.tasks["work"].bind(), every="1h")
    clock.advance(3600)
    assert needed(jobs) == {"many": 1}
    jobs.upkeep()
    assert needed(jobs)["q"] == 1
    assert jobs.overdue() == 0


# Moving


def test_only_claims_renewals_and_upkeep_process_timers(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    moves: list[Callable[[], object]] = [
        lambda: take(store, ONE, "other"),
        lambda: store.run(commands.renew("node/one", [])),
        lambda: store.run(commands.upkeep()),
    ]
    for number, move in enumerate(moves):
        put(store, f"a{number}", delay=1000)
        clock.advance(2)
        put(store, f"b{number}")
        for look in (jobs.load, jobs.overdue, jobs.queues, jobs.count, jobs.workers, jobs.schedules, jobs.limits):
            look()
        jobs.pause("q")
        jobs.resume("q")
        assert state(store, f"a{number}") == "scheduled"
        move()
        assert state(store, f"a{number}") == "waiting"


def test_upkeep_processes_everything_due_and_returns_the_number(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, *(f"j{number}" for number in range(350)), delay=1000)
    put(store, "later", delay=60_000)
    jobs.schedule("poll", jobs.tasks["work"].bind(), every="1m")
    first = jobs.upkeep()
    assert (first.processed, first.overdue) == (0, 0)
    assert first.wait is not None
    assert first.wait <= 1.0
    clock.advance(61)

    done = jobs.upkeep()

    assert (done.processed, done.overdue, jobs.overdue()) == (352, 0, 0)
    assert done.wait is not None
    assert 0 < done.wait <= 60
    assert row(store).waiting == 352
    assert jobs.upkeep().processed == 0


def test_upkeep_without_timers_returns_no_wait(jobs: Holdfast) -> None:
    done = jobs.upkeep()
    assert (done.processed, done.overdue, done.wait) == (0, 0, None)


def test_upkeep_has_further_times_of_calendars(jobs: Holdfast, clock: TestClock) -> None:
    """A list of times ends; workers make it longer, and where there are none, upkeep does."""
    clock.now = 1_700_000_000_000 // 60_000 * 60_000
    jobs.schedule("minutely", jobs.tasks["work"].bind(), cron="* * * * *", missed="all", backlog=1000)
    fired = 0
    for _ in range(6):
        clock.advance(60 * 150)
        jobs.upkeep()
        fired += 150
        [schedule] = jobs.schedules()
        assert schedule.fired == fired
    assert jobs.overdue() == 0


def test_a_schedule_that_cannot_be_understood_keeps_upkeep_from_nothing(
    jobs: Holdfast, store: Store, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    batch = {"queue": "q", "task": "work"}
    store.run(commands.schedule(name="strange", spec="{}", batch=batch, payload=b"{}", times=[clock.now + 1000]))
    put(store, "a", delay=1000)
    clock.advance(2)
    assert jobs.upkeep().overdue == 0
    assert row(store).waiting == 2
    assert "schedule strange: its next times are left to workers" in caplog.text


def test_unreadable_jobs_stay_and_hold_nothing_up(
    jobs: Holdfast, store: Store, clock: TestClock, client: redis.Redis, shell: Shell
) -> None:
    put(store, "newer", *(f"j{number}" for number in range(250)), delay=1000)
    record = f"hf:{{{jobs.address.namespace}}}:j:newer"
    head = client.hget(record, "h")
    assert head
    client.hset(record, "h", b"\x02" + head[1:])
    clock.advance(2)
    done = jobs.upkeep()
    assert (done.processed, done.overdue, jobs.overdue(), row(store).waiting) == (250, 1, 1, 250)
    ended = shell("upkeep", "--once")
    assert (ended.code, ended.out) == (1, "0\n")
    assert "cannot process 1 overdue timer" in ended.err
    client.hset(record, "h", head)
    assert jobs.upkeep().processed == 1


def test_all_missed_firings_are_made_up_for_at_once(jobs: Holdfast, clock: TestClock) -> None:
    for number in range(3):
        jobs.schedule(f"s{number}", jobs.tasks["work"].bind(), every="1s", missed="all", backlog=1000)
    clock.advance(1000)
    assert jobs.upkeep().overdue == 0
    assert {schedule.fired for schedule in jobs.schedules()} == {1000}


def test_expired_jobs_are_removed_however_many_there_are(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    for number in range(3):
        put(store, *(f"j{number}.{n}" for n in range(1000)))
        ids = take(store, limit=1000)
        store.run(commands.finish(ONE, [commands.Finish(id, 1, Succeed(b"")) for id in ids]))
    jobs.configure({"keep_succeeded_count": 10}, queue="q")
    clock.advance(2)
    jobs.upkeep()
    assert jobs.count(state="succeeded") == 10


def test_leases_are_spared_by_upkeep_as_by_a_worker(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    """After a long silence it is not known who was away: a holder has a whole lease to come back."""
    put(store, "a")
    take(store)
    clock.advance(3600)
    assert jobs.upkeep().overdue == 0
    assert state(store, "a") == "running"
    for _ in range(3):
        clock.advance(10)
        jobs.upkeep()
    assert state(store, "a") == "waiting"


def test_the_async_equals_do_the_same(server_url: str, namespace: str) -> None:
    jobs = Holdfast(server_url, namespace=namespace)

    async def use() -> None:
        await jobs.items("q").aput(b"", delay="1ms")
        while not await jobs.aoverdue():
            await asyncio.sleep(0.001)  # between looks at a condition
        assert (await jobs.aload("q"))[0].needed == 1
        assert (await jobs.aupkeep()).processed == 1
        assert await jobs.aoverdue() == 0
        await jobs.aclose()

    asyncio.run(use())
    jobs.close()


def test_concurrent_upkeeps_fire_a_schedule_once(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    for number in range(20):
        jobs.schedule(f"s{number}", jobs.tasks["work"].bind(), every="1h", missed="all", backlog=10)
    put(store, *(f"d{number}" for number in range(300)), delay=1000)
    clock.advance(3 * 3600)
    with ThreadPoolExecutor(8) as pool:
        processed = sum(done.processed for done in pool.map(lambda _: jobs.upkeep(), range(16)))
    assert {schedule.fired for schedule in jobs.schedules()} == {3}
    assert (row(store).waiting, jobs.overdue()) == (20 * 3 + 300, 0)
    assert processed >= 320


# The program


def start(shell: Shell, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "upkeep", *words],
        cwd=shell.folder,
        env=shell.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGINT])
def test_the_program_moves_time_until_it_is_stopped(shell: Shell, way: signal.Signals) -> None:
    process = start(shell, "--json")
    try:
        for number in range(3):
            shell.client.items("mail").put(b"", id=f"a{number}", delay="100ms")
            until(lambda: shell.client.get(f"a{number}").state == "waiting", what="the move")  # noqa: B023
        process.send_signal(way)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert sum(json.loads(line)["processed"] for line in out.splitlines()) == 3
    assert [json.loads(line)["note"].startswith("processing timers of namespace") for line in err.splitlines()] == [
        True
    ]
    assert shell.client.workers() == []


def test_once_moves_what_is_due_and_ends(shell: Shell) -> None:
    shell.client.items("mail").put(b"", id="a", delay="1ms")
    until(lambda: shell.client.overdue() == 1, what="the time")
    assert shell("load", "--needed").out == "1\n"
    assert shell("load", "--json").json["overdue"] == 1
    ended = shell("upkeep", "--once")
    assert (ended.code, ended.out, ended.err) == (0, "1\n", "")
    assert shell.client.get("a").state == "waiting"
    assert shell("upkeep", "--once", "--json").json == {"processed": 0, "overdue": 0}


def test_the_program_outlives_an_absence_of_the_store(shell: Shell, namespace: str) -> None:
    with running_server() as url:
        shell.environ["HOLDFAST_URL"] = url
        client = Holdfast(url, namespace=namespace)
        client.items("mail").put(b"", id="a", delay="1ms")
        process = start(shell)
        try:
            assert process.stdout
            assert process.stdout.readline() == "1\n"
            with redis.Redis.from_url(url) as other:
                other.client_kill_filter(_type="normal", skipme=True)
            client.items("mail").put(b"", id="b", delay="1ms")
            until(lambda: client.get("b").state == "waiting", what="the move")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        client.close()
    assert process.returncode == 0
