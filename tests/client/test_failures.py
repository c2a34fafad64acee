"""jobs.failures() and jobs.failure(), sync and async, and bulk actions by fingerprint."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, errors
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_failures import PRINT, error, fail
from tests.store.lua.test_state_machine import put, take


@pytest.fixture
def jobs(server_url: str, namespace: str) -> Iterator[Holdfast]:
    app = Holdfast(server_url, namespace=namespace)
    yield app
    app.close()


def test_failures_are_read_page_by_page_and_limited(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    for number in range(12):
        fail(store, f"job-{number}", error(group=f"group-{number % 10}"))
        clock.advance(1)
    assert [group.name for group in jobs.failures(limit=3)] == ["group-1", "group-0", "group-9"]
    assert sum(group.count for group in jobs.failures()) == 12
    assert [group.count for group in jobs.failures(by="task")] == [12]
    assert [(group.name, group.count) for group in jobs.failures(by="queue", limit=1)] == [("q", 12)]
    assert list(jobs.failures(limit=0)) == []


def test_failures_of_one_queue_are_added_up(
    jobs: Holdfast, store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.failures.MAX_PAGE", 2)
    for number in range(5):
        fail(store, f"job-{number}", error(group=("Disk", "Net")[number % 2]))
        clock.advance(1)
    found = list(jobs.failures(queue="q"))
    assert [(group.name, group.count, group.example) for group in found] == [("Disk", 3, "job-4"), ("Net", 2, "job-3")]
    assert found[0].first_seen
    assert found[0].last_seen
    assert (found[0].last_seen - found[0].first_seen).total_seconds() == 4
    assert [(each.name, each.count, each.errors) for each in jobs.failures(by="fingerprint", queue="q")] == [
        (PRINT, 5, 5)
    ]
    assert list(jobs.failures(queue="empty")) == []


def test_a_group_is_retried_in_another_queue(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    for number in range(4):
        fail(store, f"job-{number}", error(group=("Memory", "Net")[number % 2]))
    clock.advance(1)
    operation = jobs.retry_all(group="Memory", to="large")
    assert operation.counts == {"waiting": 2}
    assert [(job.id, job.queue) for job in jobs.list(state="waiting")] == [("job-0", "large"), ("job-2", "large")]
    assert {group.name: group.count for group in jobs.failures()} == {"Net": 2}
    assert {queue.name: (queue.counts["failed"], queue.counts["waiting"]) for queue in jobs.queues()} == {
        "large": (0, 2),
        "q": (2, 0),
    }
    moved = [event for event in jobs.events() if event.type == "moved"]
    assert [(event.jobs, event.details[0]["from"], event.details[0]["to"]) for event in moved] == [
        (("job-0", "job-2"), "q", "large")
    ]
    assert take(store, "n/w.1", "large", limit=2) == ["job-0", "job-2"]

    jobs.retry("job-1", to="large")
    assert jobs.get("job-1").queue == "large"
    assert jobs.retry_many(["job-3"], to="large") == ["waiting"]
    assert jobs.count(queue="q") == 0


def test_jobs_that_wait_for_another_are_cancelled_and_retried_in_another_queue(jobs: Holdfast, store: Store) -> None:
    put(store, "root", "other")
    put(store, "a", "b", after=("root",))
    assert jobs.cancel_all(waits_for="root").counts == {"cancelled": 2}
    assert jobs.count(waits_for="root") == 0
    assert jobs.retry_many(["a", "b"], to="large") == ["blocked", "blocked"]
    assert [(job.id, job.queue) for job in jobs.list(waits_for="root")] == [("a", "large"), ("b", "large")]
    jobs.cancel("a")
    with pytest.raises(errors.Invalid, match="queue"):
        jobs.retry("a", to="no queue")
    assert (jobs.get("a").state, jobs.get("a").queue) == ("cancelled", "large")


def test_failures_and_failure_are_awaited_too(jobs: Holdfast, store: Store) -> None:
    fail(store, "a")

    async def read() -> tuple[list[str], str]:
        names = [group.name async for group in jobs.afailures(by="fingerprint")]
        details = await jobs.afailure(names[0])
        await jobs.aclose()
        return names, details.message

    assert asyncio.run(read()) == ([PRINT], "no")


def test_an_unknown_fingerprint_and_a_wrong_kind_are_refused(jobs: Holdfast) -> None:
    with pytest.raises(errors.NotFound, match="no error with fingerprint abc is known"):
        jobs.failure("abc")
    with pytest.raises(errors.Invalid, match="expected `by` as group, fingerprint, task or queue, got 'colour'"):
        list(jobs.failures(by="colour"))  # type: ignore[arg-type]


def test_a_failure_of_a_job_names_the_owner_of_its_traceback(jobs: Holdfast, store: Store) -> None:
    fail(store, "a", error("of a"))
    fail(store, "b", error("of b"))
    first, second = jobs.get("a"), jobs.get("b")
    assert first.failure
    assert second.failure
    assert (first.failure.traceback_of, second.failure.traceback_of) == (None, ("a", 1))
    assert first.failure.traceback == second.failure.traceback != ""
    assert (second.failure.message, second.failure.place, second.fingerprint) == ("of b", "tasks:save", PRINT)


def test_jobs_are_retried_by_fingerprint(jobs: Holdfast, store: Store) -> None:
    fail(store, "a")
    fail(store, "b", error(fingerprint="another"))
    put(store, "c")
    assert jobs.retry_all(fingerprint=PRINT).counts == {"waiting": 1}
    assert sorted(take(store, limit=5)) == ["a", "c"]
    assert jobs.delete_all(fingerprint="another").counts == {"deleted": 1}
