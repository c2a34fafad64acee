"""Dependencies, pipelines, limits, deadlines and schedules with real workers."""

from __future__ import annotations

import pytest

from holdfast import JobFailed
from tests.apps import compose_app
from tests.apps.compose_app import agatherer, fetch, gatherer, parent, square
from tests.apps.worker_app import hold
from tests.support.workers import Crew, until


@pytest.mark.parametrize("reduce", ["total", "atotal"])
def test_map_and_reduce(crew: Crew, reduce: str) -> None:
    crew.start(app="tests.apps.compose_app")
    parts = [square.bind(number) for number in range(10)]
    *_, last = crew.put_all([*parts, getattr(compose_app, reduce).bind().options(after=parts)])

    assert last.state == "blocked"
    assert last.result(timeout=60) == 285


def test_a_reduce_whose_part_failed_stays_blocked_with_a_reason_until_the_part_is_removed(crew: Crew) -> None:
    crew.start(app="tests.apps.compose_app")
    parts = [square.bind(number) for number in (1, -2, 3)]
    *_, last = crew.put_all([*parts, compose_app.total.bind().options(after=parts)])
    with pytest.raises(JobFailed):
        crew.app.get(parts[1].id).result(timeout=60)
    until(lambda: last.refresh().waits_for == 1)
    assert {each.id: each.state for each in last.refresh().after}[parts[1].id] == "failed"

    crew.app.depend(last.id, remove=[parts[1]])

    assert last.result(timeout=60) == 10


def test_a_pipeline_of_three_stages(crew: Crew) -> None:
    crew.start("--queues", "net,cpu", app="tests.apps.compose_app")

    job = crew.put(fetch, "https://example.org/cat.png")

    assert job.result(timeout=60) == "uploaded cat.png.small"
    assert [attempt.outcome for attempt in job.refresh().attempts] == ["advanced", "advanced", "succeeded"]


def test_a_job_waits_for_others_without_a_slot(crew: Crew) -> None:
    crew.start("--processes", "1", app="tests.apps.compose_app")

    jobs = [crew.put(task, [1, 2, 3]) for task in (parent, gatherer, agatherer)]

    for job in jobs:
        assert job.result(timeout=60) == 14
        assert [attempt.outcome for attempt in job.refresh().attempts] == ["snoozed", "succeeded"]


def test_two_workers_keep_a_limit_and_a_killed_holder_gives_its_slot_back(crew: Crew) -> None:
    crew.app.set_limit("gpu", 2)
    for _ in range(2):
        crew.start("--processes", "2")
    jobs = [crew.app.enqueue(hold.bind(name).options(limits="gpu", crashes=0)) for name in "abcd"]
    until(lambda: len(running(crew)) == 2)
    until(lambda: crew.app.count(state="throttled") == 2)
    first = min(running(crew))

    crew.kill(crew.pids(first, "runs")[0])

    until(lambda: crew.app.count(state="failed") == 1)
    until(lambda: len(running(crew)) == 2)
    for name in "abcd":
        assert len(crew.app.limits()) == 1
        assert crew.app.limits()[0].held <= 2
        crew.open(name)
    assert sorted(crew.ended(job).state for job in jobs) == ["failed", "succeeded", "succeeded", "succeeded"]
    assert crew.held() == []
    assert crew.app.limits()[0].held == 0


def running(crew: Crew) -> list[str]:
    """The names of the jobs that run, and have said so."""
    said = {name for name in "abcd" if crew.said(name, "runs")}
    found = [(crew.get(job).payload or b"").decode() for job in crew.app.list(state="running")]
    return [name for name in said if any(f'"{name}"' in payload for payload in found)]


def test_a_job_that_is_late_is_not_started_and_one_that_runs_goes_on(crew: Crew) -> None:
    crew.start("--processes", "1", "--lease", "2s")  # time moves on when leases are renewed
    first = crew.put(hold, "first")
    crew.pids("first", "runs")
    late = crew.app.enqueue(hold.bind("late").options(deadline="100ms"))
    assert crew.ended(late).group == "deadline"
    assert crew.get(first).state == "running"

    crew.open("first")

    assert crew.ended(first).state == "succeeded"
    assert crew.said("late", "runs") == []


def test_declared_schedules_fire_each_time_once_with_three_workers(crew: Crew) -> None:
    for _ in range(3):
        crew.start(app="tests.apps.compose_app")
    names = ("tests.apps.compose_app.tick", "tests.apps.compose_app.tock")

    def fired() -> dict[str, list[str]]:
        ids = [job.id for job in crew.app.list(state="succeeded")]
        return {name: [id for id in ids if id.startswith(f"{name}@")] for name in names}

    until(lambda: all(len(ids) >= 4 for ids in fired().values()))

    for name, ids in fired().items():
        times = sorted(int(id.removeprefix(f"{name}@")) for id in ids)
        assert all(time % 1000 == 0 for time in times)
        known = crew.app.get_schedule(name)
        assert known.fired >= len(times)
        assert len(known.next(3)) == 3
