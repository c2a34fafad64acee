"""Bulk actions: the same action on all jobs that match filters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, errors
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import end, fields, put, take


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

    counts = jobs.cancel_all(queue="q", task="remind", reason="too late")

    assert counts == {"cancelled": 1702, "cancelling": 3}
    assert [jobs.count(state=state) for state in ("cancelled", "running", "waiting")] == [1702, 3, 50]


def test_jobs_that_fail_again_while_all_are_retried_are_met_once(store: Store, clock: TestClock) -> None:
    ids = many(store, 3, retries=0)
    for id in take(store, limit=3):
        end(store, id, Error(b"", "SMTP"))
    cursor = since = None
    answers: dict[str, int] = {}
    for _ in range(10):
        clock.advance(1)
        acted = store.run(commands.bulk("retry", states=["failed"], group="SMTP", cursor=cursor, since=since, limit=1))
        for answer, count in acted.answers.items():
            answers[answer] = answers.get(answer, 0) + count
        clock.advance(1)
        for id in take(store, limit=3):
            end(store, id, Error(b"", "SMTP"))
        cursor, since = acted.cursor, acted.since
        if cursor is None:
            break

    assert cursor is None
    assert answers == {"waiting": 3}
    assert fields(store, ids[0], "state", "attempt") == ("failed", 2)


def test_failures_of_one_group_are_retried(jobs: Holdfast, store: Store) -> None:
    many(store, 4, retries=0)
    for number, id in enumerate(take(store, limit=4)):
        end(store, id, Error(b"", "SMTP" if number % 2 else "Disk"))

    assert jobs.retry_all(group="SMTP") == {"waiting": 2}
    assert jobs.delete_all(state="failed") == {"deleted": 2}


def test_bulk_delete_reports_jobs_with_dependents_and_keeps_them(jobs: Holdfast, store: Store) -> None:
    put(store, "a", "b")
    put(store, "c", after=("a",), queue="next")
    for id in take(store, limit=2):
        end(store, id, Error(b"", "g", final=True))

    assert jobs.delete_all(queue="q") == {"deleted": 1, "has dependents": 1}


def test_jobs_are_moved_released_and_failed(jobs: Holdfast, store: Store) -> None:
    many(store, 10)
    assert jobs.move_all(queue="q", to="slow", priority=5) == {"waiting": 10}
    take(store, "node/one.0", "slow", limit=4)
    assert jobs.release_all(queue=["slow"]) == {"waiting": 4}
    assert jobs.fail_all(queue="slow", with_group="given-up", reason="nobody needs them") == {"failed": 10}
    assert jobs.count(state="failed") == 10


def test_a_bulk_action_needs_a_filter(jobs: Holdfast) -> None:
    with pytest.raises(errors.Invalid, match="give queue, state, task, group or fingerprint"):
        jobs.cancel_all()
    with pytest.raises(errors.Invalid, match="unknown state"):
        jobs.cancel_all(state="asleep")
    with pytest.raises(errors.Invalid, match="specify `queue` or `priority`"):
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
        counts = await app.adelete_all(queue="q")
        await app.aclose()
        return counts

    assert asyncio.run(run()) == {"deleted": 1}
