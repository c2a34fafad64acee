"""Forks with real workers: a job fails, or is killed, at step 7 of 10; a fork of it continues there."""

from __future__ import annotations

import pytest

from holdfast import Job
from tests.apps import fork_app as app
from tests.support.workers import Crew


def begun(crew: Crew, name: str) -> list[int]:
    return [int(step) for (step,) in crew.said(name, "begins")]


def charged(crew: Crew, name: str) -> list[int]:
    return [int(step) for (step,) in crew.said(name, "charged")]


def stuck(crew: Crew, way: str) -> Job[str]:
    """A job that has ended at step 7."""
    crew.start("--queues", "forks", "--processes", "1", app="tests.apps.fork_app")
    job = crew.put(app.steps, "job", way)
    assert crew.ended(job).state == "failed"
    assert begun(crew, "job") == [1, 2, 3, 4, 5, 6, 7]
    assert charged(crew, "job") == [1, 2]
    return job


@pytest.mark.parametrize("way", ["killed", "raises"])
def test_a_fork_continues_where_the_job_ended_and_does_not_repeat_its_kept_steps(crew: Crew, way: str) -> None:
    job = stuck(crew, way)
    crew.open("fixed")

    new = crew.app.fork(job.id, id="again")

    assert (new.id, new.created, new.forked_from) == ("again", True, job.id)
    assert new.result(timeout="30s") == "from 7"
    assert begun(crew, "job")[7:] == [7, 8, 9, 10]
    assert charged(crew, "job") == [1, 2]
    assert crew.get(job).state == "failed"
    assert [note.text for note in crew.get(job).notes if note.what == "forked"] == ["into again"]
    assert [entry.text for entry in crew.get(new).history[:2]] == [
        "task tests.apps.fork_app.steps in queue forks",
        f"from {job.id} at attempt 1",
    ]


def test_from_the_start_all_is_done_again_in_a_fork_and_in_a_retry(crew: Crew) -> None:
    job = stuck(crew, "raises")
    crew.open("fixed")

    assert crew.get(job).fork(from_start=True).result(timeout="30s") == "from 1"
    assert begun(crew, "job")[7:] == [*range(1, 11)]
    assert charged(crew, "job") == [1, 2, 1, 2]

    crew.app.retry(job.id, from_start=True)

    assert crew.get(job).result(timeout="30s") == "from 1"
    assert begun(crew, "job")[17:] == [*range(1, 11)]
    assert charged(crew, "job") == [1, 2, 1, 2, 1, 2]


def test_a_running_job_and_its_fork_run_side_by_side(crew: Crew) -> None:
    job = stuck(crew, "raises")
    forks = [crew.app.fork(job.id, id=f"fork-{number}") for number in range(5)]
    assert {crew.ended(each).state for each in forks} == {"failed"}  # at the same step
    assert begun(crew, "job")[7:] == [7] * 5
    crew.open("fixed")

    crew.app.retry_many([job.id, *[each.id for each in forks]])

    assert {crew.ended(each).state for each in (job, *forks)} == {"succeeded"}
    assert charged(crew, "job") == [1, 2]
    assert not crew.held()
