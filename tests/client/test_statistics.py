"""`jobs.stats`, `jobs.stats_tasks` and `jobs.stats_series`, sync and async: periods, merging, quantiles."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from holdfast import Holdfast, Invalid
from holdfast.client.statistics import Bucket, Quantile, Times
from holdfast.job.outcome import Error, Succeed
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import end, put, take

DAY = timedelta(days=1)


@pytest.fixture
def jobs(server_url: str, namespace: str, clock: TestClock) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    for each in (made.store, made.async_store):
        each._clock = clock
    yield made
    made.close()


def run(store: Store, clock: TestClock, id: str, *, queue: str = "q", waits: float, runs: float, **more: Any) -> None:
    put(store, id, queue=queue, **more)
    clock.advance(waits)
    take(store, "node/one.0", queue)
    clock.advance(runs)
    end(store, id, Succeed(b""))


def day_of(clock: TestClock) -> date:
    return datetime.fromtimestamp(clock.now / 1000, UTC).date()


def test_a_queue_and_all_queues(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    run(store, clock, "a", queue="mail", waits=1, runs=0.25)
    run(store, clock, "b", queue="mail", waits=3, runs=0.75)
    run(store, clock, "c", queue="video", waits=5, runs=60)

    mail, every = jobs.stats("mail"), jobs.stats()

    assert (mail.wait.count, mail.wait.mean, mail.wait.variance, mail.wait.stdev) == (2, 2.0, 2.0, 2.0**0.5)
    assert (mail.run.count, mail.run.mean, mail.ended) == (2, 0.5, 2)
    assert mail.wait.histogram == (Bucket(1.0, 2.0, 1), Bucket(3.0, 4.0, 1))
    assert (every.queue, every.wait.count, every.wait.mean, every.wait.variance) == (None, 3, 3.0, 4.0)
    assert [bucket.lower for bucket in every.wait.histogram] == [1.0, 3.0, 5.0]
    assert mail.since == datetime.combine(day_of(clock), datetime.min.time(), UTC)
    assert mail.until - mail.since == DAY


def test_a_task_and_the_tasks_of_a_queue(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    run(store, clock, "a", waits=1, runs=1, task="send")
    run(store, clock, "b", waits=1, runs=2, task="app.clean")
    assert jobs.stats_tasks("q") == ["app.clean", "send"]
    assert (jobs.stats("q", task="send").run.total, jobs.stats(task="app.clean").run.total) == (1.0, 2.0)
    assert jobs.stats("q", task="send").failed is None
    assert jobs.stats("q", task="unknown").run.mean is None


def test_days_and_periods(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    first = day_of(clock)
    run(store, clock, "a", waits=1, runs=1)
    clock.advance(2 * 86_400)
    run(store, clock, "b", waits=1, runs=1)
    now = datetime.fromtimestamp(clock.now / 1000, UTC)

    def runs(**period: Any) -> int:
        return jobs.stats("q", **period).run.count

    assert runs() == 1
    assert runs(day=first) == runs(day=first.isoformat()) == 1
    assert runs(day=first + DAY) == 0
    assert runs(since="2d") == runs(since=timedelta(days=2)) == runs(since=first) == runs(since=now - 2 * DAY) == 2
    assert runs(since=first, until=first + DAY) == 1
    assert runs(since=first, until=now) == 2
    assert runs(since="1d") == 1


def test_failures_and_retries(jobs: Holdfast, store: Store) -> None:
    put(store, "a", retries=1)
    for _ in range(2):
        take(store)
        end(store, "a", Error(b"", "g", delay=0))
    found = jobs.stats("q")
    assert (found.failures, found.failed, found.retries, found.ended, found.run.count) == (1, 1, 1, 2, 0)
    jobs.retry("a")
    assert (jobs.stats("q").failures, jobs.stats("q").failed) == (1, 0)


def test_a_series_has_a_point_for_each_minute_or_hour(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    run(store, clock, "a", queue="mail", waits=2, runs=0.5)
    run(store, clock, "b", queue="video", waits=4, runs=0.5)
    clock.advance(120)

    minutes = jobs.stats_series(since="5m")

    assert [later.time - point.time for point, later in pairwise(minutes)] == [timedelta(minutes=1)] * (
        len(minutes) - 1
    )
    assert len(minutes) == 6
    assert sum(point.arrivals or 0 for point in minutes) == sum(point.ended for point in minutes) == 2
    assert sum(point.waits * point.wait for point in minutes if point.wait is not None) == 6.0
    hours = jobs.stats_series("mail", resolution="hour", since="3h")
    assert (len(hours), hours[-1].runs, hours[-1].run, hours[0].run) == (4, 1, 0.5, None)
    assert jobs.stats_series("mail", resolution="hour", task="task")[-1].arrivals is None
    assert len(jobs.stats_series("mail")) == 181


def test_a_namespace_without_queues_has_empty_statistics(jobs: Holdfast, clock: TestClock) -> None:
    found = jobs.stats()
    assert (found.run, found.failed, found.since.date()) == (Times(), 0, day_of(clock))
    assert all(point.ended == 0 for point in jobs.stats_series(resolution="hour"))


def test_the_async_methods_are_the_same(jobs: Holdfast, store: Store, clock: TestClock) -> None:
    run(store, clock, "a", waits=1, runs=1)

    async def ask() -> tuple[Any, ...]:
        found = await jobs.astats("q"), await jobs.astats_tasks("q"), await jobs.astats_series("q")
        await jobs.aclose()
        return found

    assert asyncio.run(ask()) == (jobs.stats("q"), jobs.stats_tasks("q"), jobs.stats_series("q"))


@pytest.mark.parametrize(
    ("period", "words"),
    [
        ({"day": "1.7.2024"}, "2024-07-01"),
        ({"day": 5}, "a date"),
        ({"day": datetime(2024, 7, 1, tzinfo=UTC)}, "a date"),
        ({"day": date(2024, 7, 1), "since": "1d"}, "excludes"),
        ({"since": "yesterday"}, "since"),
        ({"since": datetime(2024, 7, 1)}, "time zone"),
        ({"since": date(2024, 7, 2), "until": date(2024, 7, 1)}, "not after"),
        ({"until": "2024-07-01T00:00"}, "2024-07-01"),
        ({"task": "no spaces"}, "task"),
    ],
)
def test_periods_are_checked(jobs: Holdfast, period: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        jobs.stats("q", **period)


def test_a_resolution_is_checked(jobs: Holdfast) -> None:
    with pytest.raises(Invalid, match="minute"):
        jobs.stats_series("q", resolution="second")  # type: ignore[arg-type]


def test_quantiles_are_read_off_the_buckets() -> None:
    times = Times(4, 9.0, 0.0, (Bucket(0.512, 1.0, 1), Bucket(1.0, 2.0, 2), Bucket(103 * 86_400.0, None, 1)))
    assert times.quantile(0) == times.quantile(0.25) == Quantile(0.756, 0.512, 1.0)
    assert times.quantile(0.5) == Quantile(1.25, 1.0, 2.0)
    assert times.quantile(0.75) == Quantile(1.75, 1.0, 2.0)
    assert times.quantile(1) == Quantile(103 * 86_400.0, 103 * 86_400.0, None)
    assert Times().quantile(0.5) is None
    for wrong in (-0.1, 1.1, "0.5", True, float("nan")):
        with pytest.raises(Invalid, match="from 0 to 1"):
            times.quantile(wrong)  # type: ignore[arg-type]


def test_merging_is_the_same_in_any_order() -> None:
    one, other = Times(2, 4.0, 2.0, (Bucket(1.0, 2.0, 2),)), Times(1, 8.0, 0.0, (Bucket(8.0, 9.0, 1),))
    assert one.merge(other) == other.merge(one)
    assert one.merge(other).variance == pytest.approx(13.0)  # of 1, 3 and 8
    assert one.merge(Times()) == Times().merge(one) == one
