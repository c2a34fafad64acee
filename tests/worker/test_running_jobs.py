"""What a worker does with ordinary jobs: results, retries, saves, directories, children."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import JobFailed, Task
from tests.apps import worker_app as app
from tests.support.workers import Crew, is_alive, said_of, until


def test_three_hundred_coroutines_and_a_hundred_processes_go_through_one_worker_and_leave_nothing(crew: Crew) -> None:
    calls = [app.add_async.bind(number, 1) for number in range(300)] + [
        app.add.bind(number, 2) for number in range(100)
    ]
    jobs = crew.put_all(calls)
    worker = crew.start("--processes", "4")

    assert sum(job.result(timeout="60s") for job in jobs) == sum(range(301)) + sum(range(2, 102))
    assert until(lambda: not crew.held())
    outcomes = [[attempt.outcome for attempt in crew.get(job).attempts] for job in jobs]
    assert {last for *_, last in outcomes} == {"succeeded"}
    assert {outcome for *before, _ in outcomes for outcome in before} <= {"released"}  # claimed ahead, if it is slow
    assert worker.stop() == 0
    assert crew.app.workers() == []
    assert "Warning" not in worker.log


def test_a_job_starts_while_another_runs(company: Crew) -> None:
    long = company.put(app.hold, "long")
    company.pids("long", "runs")

    assert company.put(app.add, 1, 2).result(timeout="30s") == 3
    assert company.put(app.add_async, 1, 3).result(timeout="30s") == 4
    company.open("long")
    assert long.result(timeout="30s") == "long"


def test_the_queue_that_is_named_first_is_emptied_first(crew: Crew) -> None:
    for queue, word in (("b", "b1"), ("c", "c1"), ("a", "a1"), ("a", "a2"), ("b", "b2")):
        crew.put(app.say.options(queue=queue), word)
    crew.start("--queues", "a,b,c", "--processes", "1")

    assert until(lambda: len(words := crew.said()) == 5 and words) == [["a1"], ["a2"], ["b1"], ["b2"], ["c1"]]


def test_an_idle_worker_starts_a_delayed_job_when_it_is_due(crew: Crew) -> None:
    crew.start("--processes", "1", "--lease", "60s")
    crew.put(app.add, 1, 1).result(timeout="30s")
    before = crew.calls()

    job = crew.put(app.add.options(delay="1s"), 1, 2)

    assert job.result(timeout="30s") == 3
    late = crew.get(job).attempts[0].claimed_at - (job.due_at or job.created_at)
    assert late < timedelta(seconds=3), "it was not woken, and came by after five seconds"
    assert crew.calls() - before < 20, "it polls"


def test_an_unknown_task_is_released_without_using_up_a_retry_and_runs_on_a_worker_that_knows_it(crew: Crew) -> None:
    old = crew.start(app="tests.apps.other_app")
    job = crew.put(app.add, 1, 2)
    until(lambda: crew.outcomes(job) == ["unknown"])
    assert crew.get(job).state == "scheduled"
    assert "is not known here" in crew.get(job).attempts[0].reason
    old.stop()
    crew.start()

    ended = crew.ended(job)

    assert (ended.decoded_result(), ended.retries_used, ended.crashes_used, ended.lost_used) == (3, 0, 0, 0)


def test_an_app_that_cannot_be_imported_ends_the_worker_with_its_error(crew: Crew) -> None:
    worker = crew.start(app="tests.apps.broken_app")

    assert worker.wait() == 1
    assert "RuntimeError: no such luck" in worker.log


# Results


@pytest.mark.parametrize("task", [app.big, app.big_async], ids=["sync", "async"])
def test_a_result_of_one_mebibyte_arrives_and_a_bigger_one_fails_clearly(company: Crew, task: Task[[int], str]) -> None:
    fits = company.put(task, 2**20 - 2)
    too_big = company.put(task, 2**20 - 1)
    far_too_big = company.put(task, 80_000_000)

    assert len(fits.result(timeout="30s")) == 2**20 - 2
    for job in (too_big, far_too_big):
        with pytest.raises(
            JobFailed, match=r"result-too-big \(refused\): .* bytes \(limit 1048576\); store it elsewhere"
        ):
            job.result(timeout="30s")
        assert company.outcomes(job) == ["error"]


@pytest.mark.parametrize("task", [app.hold, app.hold_async], ids=["sync", "async"])
def test_a_job_that_takes_too_long_is_stopped_and_fails(company: Crew, task: Task[[str], str]) -> None:
    name = f"too long {task.name}".replace(" ", "-")
    job = company.put(task.options(timeout="300ms", retries=0), name)

    with pytest.raises(JobFailed, match=r"longer than its timeout of 0\.3 s"):
        job.result(timeout="30s")
    assert company.get(job).group == "timeout"
    assert company.said(name, "ends") == []


def test_a_job_that_raises_retry_runs_again_until_its_retries_are_spent(company: Crew) -> None:
    enough = company.put(app.try_until.options(retries=2), 3, "retry")
    too_few = company.put(app.try_until.options(retries=1), 3, "retry")

    assert enough.result(timeout="30s") == 3
    assert company.get(enough).retries_used == 2
    ended = company.ended(too_few)
    assert (ended.group, ended.final_reason) == ("holdfast.Retry", "exhausted")
    assert company.outcomes(too_few) == ["error", "error"]


def test_a_job_that_raises_snooze_runs_again_without_using_up_a_retry(company: Crew) -> None:
    job = company.put(app.try_until.options(retries=0), 3, "snooze")

    assert job.result(timeout="30s") == 3
    assert company.outcomes(job) == ["snoozed", "snoozed", "succeeded"]
    assert company.get(job).retries_used == 0


def test_a_job_that_raises_fail_is_not_tried_again(company: Crew) -> None:
    job = company.put(app.try_until.options(retries=5), 3, "fail")

    with pytest.raises(JobFailed, match=r"hopeless \(declared\): .*for good"):
        job.result(timeout="30s")
    assert company.outcomes(job) == ["error"]


# What a job has


def test_saves_arrive_while_a_job_runs_and_the_next_attempt_finds_them(company: Crew) -> None:
    job = company.put(app.save_and_hold, "saver")
    until(lambda: said_of(company.get(job)) == (0.25, "a quarter"))
    assert company.get(job).checkpoint_bytes == b'"saved by 1"'
    company.open("saver")
    assert job.result(timeout="30s") == "nothing"

    job.retry()

    assert until(lambda: company.said("saver", "found")[1:]) == [["saved", "by", "1"]]


def test_of_many_saves_few_are_sent_and_the_last_is(company: Crew) -> None:
    job = company.put(app.save_often, 3000)

    assert job.result(timeout="30s") == 3000
    assert company.get(job).checkpoint_bytes == b"2999"
    assert len([ids for ids in company.events("saved") if job.id in ids]) < 300


def test_a_job_has_a_directory_that_is_removed_when_it_ends(company: Crew) -> None:
    job = company.put(app.use_directory, "directory")
    company.pids("directory", "runs")
    company.open("directory")

    directory = Path(job.result(timeout="30s"))

    assert "holdfast-" in str(directory)
    assert not directory.exists()


def test_jobs_whose_ids_look_alike_have_directories_of_their_own(company: Crew) -> None:
    jobs = [
        company.put(app.use_directory.options(id=f"look{sign}alike"), f"look{place}") for place, sign in enumerate("/_")
    ]
    for place in range(len(jobs)):
        company.pids(f"look{place}", "runs")
        company.open(f"look{place}")

    assert len({job.result(timeout="30s") for job in jobs}) == len(jobs)


def test_context_variables_of_coroutines_do_not_mix(company: Crew) -> None:
    red, blue = company.put(app.paint, "paint", "red"), company.put(app.paint, "paint", "blue")
    until(lambda: company.get(red).state == company.get(blue).state == "running")
    company.open("paint")
    after = company.put(app.paint, "paint", "green")

    assert [job.result(timeout="30s") for job in (red, blue, after)] == ["none"] * 3


# Manners


def test_a_job_that_closes_its_descriptors_crashes_alone(company: Crew) -> None:
    neighbour = company.put(app.hold, "neighbour")
    company.pids("neighbour", "runs")

    with pytest.raises(JobFailed, match="closed its connection"):
        company.put(app.close_all.options(crashes=0)).result(timeout="30s")

    company.open("neighbour")
    assert neighbour.result(timeout="30s") == "neighbour"
    assert company.outcomes(neighbour) == ["succeeded"]


def test_a_child_that_a_job_leaves_behind_is_killed_when_the_job_ends(company: Crew) -> None:
    job = company.put(app.leave_child, "behind", False)

    assert job.result(timeout="30s") == "left"
    (child,) = company.pids("behind", "started")
    assert until(lambda: not is_alive(child))


def test_a_child_that_left_the_process_group_is_killed_before_the_job_counts_as_ended(company: Crew) -> None:
    job = company.put(app.leave_child, "away", True)

    assert job.result(timeout="30s") == "left"

    (child,) = company.pids("away", "started")
    assert not is_alive(child)
