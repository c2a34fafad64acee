"""Deploys: workers are stopped and started one after the other, while jobs run for longer than any of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.task.task import BoundCall
from tests.apps import rolling_app as app
from tests.support.workers import Crew, until

APP = "tests.apps.rolling_app"
ITEMS = 150
SHORT = 200


def test_a_rolling_restart_of_three_workers_loses_nothing_and_charges_nothing(
    crew: Crew, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [*app.RUNNERS, "async"]
    names = [f"{kind}-{number}" for kind in kinds for number in range(3)]
    calls: list[BoundCall[Any]] = [app.jobs.tasks[f"crawl-{name[:-2]}"].bind(name, ITEMS) for name in names]
    short: list[BoundCall[Any]] = [app.blink.bind(str(number)) for number in range(SHORT)]
    workers = [crew.start("--processes", "4", app=APP) for _ in range(3)]
    crawls = crew.put_all(calls)
    until(lambda: len({name for name, _ in crew.said("item")}) == len(names), what="all to run")

    for part, worker in enumerate(workers):
        crew.put_all(short[part::3])
        assert worker.stop() == 0
        crew.start("--processes", "4", app=APP)

    ended = [crew.ended(job) for job in crawls]
    until(lambda: len(crew.said("short")) >= SHORT)
    assert {job.state for job in ended} == {"succeeded"}
    assert {(job.retries_used, job.crashes_used, job.lost_used) for job in ended} == {(0, 0, 0)}
    done = Counter((name, item) for name, item in crew.said("item"))
    assert set(done) == {(name, str(item)) for name in names for item in range(ITEMS)}
    assert max(Counter(name for (name,) in crew.said("short")).values()) == 1
    outcomes = Counter(attempt.outcome for job in ended for attempt in job.attempts)
    assert set(outcomes) <= {"succeeded", "released"}
    assert outcomes["released"] >= 1, "a worker had work when it was stopped"
    with capsys.disabled():
        total, repeated = done.total(), done.total() - len(done)
        print(
            f"\nrolling restart: {len(ended)} jobs, {outcomes['released']} hand-overs, "
            f"{repeated} of {total} items repeated"
        )


def test_a_requeued_job_is_resumed_at_once_by_another_worker(crew: Crew, capsys: pytest.CaptureFixture[str]) -> None:
    old = crew.start(app=APP)
    job = crew.put(app.resume, "long")
    until(lambda: crew.said("resume"))
    crew.start(app=APP)
    until(lambda: len(crew.app.workers()) == 2)

    assert old.stop() == 0

    assert job.result(timeout="30s") == "resumed"
    first, second = crew.get(job).attempts
    assert (first.outcome, second.outcome) == ("released", "succeeded")
    assert first.ended_at
    assert second.started_at
    with capsys.disabled():
        gap = (second.started_at - first.ended_at).total_seconds()
        print(f"\nhand-over to a worker that is there: runs again after {gap * 1000:.0f} ms")
