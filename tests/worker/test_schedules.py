"""Workers and schedules: each time fires once, and an unreadable schedule affects no other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, cron, every
from holdfast.client.timing import Cron, Timing, encode
from holdfast.store import commands
from holdfast.store.store import Address
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.supervisor.schedules import WorkerSchedules
from tests.apps import compose_app as compose
from tests.support.workers import Crew, until

WORKERS = 10
EACH_SECOND = encode(Cron("* * * * * *", "Europe/Berlin"))


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def jobs(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


def now() -> int:
    return time.time_ns() // 1_000_000


def schedule(name: str, *times: int, spec: str = EACH_SECOND) -> commands.Command[bool]:
    batch = {"queue": "default", "task": "tick"}
    return commands.schedule(name=name, batch=batch, payload=b"{}", spec=spec, times=times)


def fields_of(jobs: Holdfast, name: str) -> dict[str, Any]:
    (fields,) = jobs.store.run(commands.schedules([name]))
    return fields


def ticking(address: Address, ran: list[str], timing: Timing, revision: int = 0) -> Holdfast:
    """A program's app with a task that has a schedule, and one of a worker's."""
    from holdfast import current_job

    app = Holdfast(address.url, namespace=address.namespace, revision=revision)

    @app.task(name="tick", schedule=timing)
    async def tick() -> None:
        ran.append(current_job().id)

    return app


# One firing


@pytest.mark.parametrize("timing", [every("1s"), cron("* * * * * *", tz="Europe/Berlin")], ids=["every", "cron"])
def test_ten_workers_make_one_firing_of_each_time(jobs: Holdfast, timing: Timing) -> None:
    ran: list[str] = []
    apps = [ticking(jobs.address, ran, timing) for _ in range(WORKERS)]
    with ExitStack() as stack:
        for app in apps:
            stack.callback(app.close)
            stack.enter_context(app.worker())
        until(lambda: len(set(ran)) >= 3)
        until(lambda: len(jobs.workers()) == WORKERS)

    assert set(Counter(ran).values()) == {1}
    times = sorted(int(id.removeprefix("tick@")) for id in ran)
    assert all(time % 1000 == 0 for time in times)
    assert jobs.get_schedule("tick").fired == jobs.count()
    configured = [event.jobs for event in jobs.events(limit=1000) if event.type == "configured"]
    assert configured == [("tick",)]


def test_of_ten_workers_that_send_times_one_succeeds(jobs: Holdfast) -> None:
    first = now() // 1000 * 1000 + 2000
    jobs.store.run(schedule("tick", first, first + 1000))

    async def refill_all() -> None:
        stores = [RetryingStore() for _ in range(WORKERS)]
        calendars = [WorkerSchedules(store) for store in stores]
        for store, schedules in zip(stores, calendars, strict=True):
            store.connect(jobs.address)
            schedules.refill(["tick"])
        await asyncio.gather(*(schedules._refill("tick") for schedules in calendars))
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(refill_all())

    times = [int(word) for word in fields_of(jobs, "tick")["times"].split()]
    assert times == [first + 1000 * place for place in range(len(times))]
    assert len(times) == 102


def test_times_that_run_out_are_refilled_while_workers_run(jobs: Holdfast) -> None:
    start = now()
    jobs.store.run(schedule("tick", start + 100, start + 200))
    ran: list[str] = []

    @jobs.task(name="tick")
    async def tick() -> None:
        ran.append("tick")

    with jobs.worker(lease="1s"):
        until(lambda: len(fields_of(jobs, "tick")["times"].split()) > 50)
        until(lambda: ran)


# Declarations


def test_an_older_release_never_changes_what_a_newer_has_declared(
    jobs: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    newer = ticking(jobs.address, [], every("1h"), revision=2)
    older = ticking(jobs.address, [], every("2h"), revision=1)
    with newer.worker():
        until(jobs.schedules)

    with older.worker():
        until(lambda: "declared by a newer release" in caplog.text)
    with newer.worker(), older.worker():
        until(lambda: len(jobs.workers()) == 2)

    assert fields_of(jobs, "tick")["every"] == str(3600_000)
    newer.close()
    older.close()


def test_a_worker_declares_schedules_once_for_all_its_executors(crew: Crew) -> None:
    worker = crew.start(app="tests.apps.compose_app")
    assert crew.put(compose.square, 2).result(timeout="30s") == 4

    crew.kill(worker.executor)

    assert crew.put(compose.square, 3).result(timeout="30s") == 9
    assert worker.stop() == 0
    assert worker.log.count("is declared") == 2
    assert sorted(crew.events("configured")) == [
        ["tests.apps.compose_app.tick"],
        ["tests.apps.compose_app.tock"],
    ]


def test_newer_code_declares_its_schedules_again(jobs: Holdfast) -> None:
    async def declare() -> list[str]:
        store = RetryingStore()
        store.connect(jobs.address)
        schedules = WorkerSchedules(store)
        found = []
        for timing in (every("1h"), every("1h"), every("2h")):
            app = ticking(jobs.address, [], timing)
            await schedules.declare(app.declared_schedules.values())
            found.append(fields_of(jobs, "tick")["every"])
        await store.close()
        return found

    assert asyncio.run(declare()) == ["3600000", "3600000", "7200000"]


# What cannot be understood


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ('{"kind": "cron", "expression": "0 2 * * *", "zone": "Mars/Base"}', "unknown time zone 'Mars/Base'"),
        ('{"kind": "cron", "expression": "at noon", "zone": "UTC"}', "cron is 'at noon'"),
        ('{"kind": "moon", "phase": "full"}', "TypeError"),
        ("of another language", "DecodeError"),
        ("", "DecodeError"),
        ("[1]", "TypeError"),
    ],
)
def test_an_unreadable_schedule_is_left_to_others_and_logged_once(
    jobs: Holdfast, caplog: pytest.LogCaptureFixture, spec: str, says: str
) -> None:
    caplog.set_level(logging.INFO)
    jobs.store.run(schedule("strange", spec=spec))
    jobs.store.run(schedule("tick", now() + 100))

    @jobs.task(name="tick")
    async def tick() -> str:
        return "tock"

    with jobs.worker(lease="1s") as worker:
        until(lambda: says in caplog.text)
        until(lambda: len(fields_of(jobs, "tick")["times"].split()) > 50)
        seen = jobs.workers()[0].seen_at
        for _ in range(3):  # renewals go on
            until(lambda seen=seen: jobs.workers()[0].seen_at > seen)  # type: ignore[misc]
            seen = jobs.workers()[0].seen_at
        assert tick.enqueue().result(timeout="30s") == "tock"
        assert [one.name for one in jobs.workers()] == [worker.name]

    assert caplog.text.count("cannot compute its next run times") == 1
    assert "a duty of the supervisor failed" not in caplog.text


def test_a_worker_without_cronsim_continues(
    jobs: Holdfast, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    jobs.store.run(schedule("strange"))

    @jobs.task(name="add")
    async def add(x: int, y: int) -> int:
        return x + y

    with jobs.worker(lease="1s"):
        until(lambda: "cannot compute its next run times; another must: ModuleNotFoundError" in caplog.text)
        assert add.enqueue(1, 2).result(timeout="30s") == 3
