"""What a job's process says and asks, by threads, after its end, and while it is stopped."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Job
from tests.apps import link_app as app
from tests.relay import Relay
from tests.workers import Crew, Worker, until


def start(crew: Crew, *options: str, **env: str) -> Worker:
    crew.app.tasks.update(app.jobs.tasks)
    return crew.start("--processes", "1", *options, app="tests.apps.link_app", **env)


def checkpoint(crew: Crew, job: Job[Any]) -> bytes | None:
    return crew.get(job).checkpoint_bytes


@pytest.fixture
def relay(crew: Crew) -> Iterator[Relay]:
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    made = Relay(folder, crew.url)
    yield made
    made.close()
    shutil.rmtree(folder)


# What a job leaves behind


def test_a_thread_that_a_job_leaves_behind_does_no_step_of_the_next_job(crew: Crew) -> None:
    start(crew)
    process = crew.put(app.haunt, "ghost").result(timeout="30s")
    after = crew.put(app.do_step, "after")
    crew.pids("after", "runs")

    crew.open("ghost-speaks")
    until(lambda: crew.said("ghost", "ended"))
    crew.open("after")

    assert after.result(timeout="30s") == (process, "my own")
    assert crew.said("ghost", "ended") == [["LeaseLost"]]


def test_a_thread_that_asks_in_an_idle_process_takes_no_job_away(crew: Crew) -> None:
    start(crew)
    process = crew.put(app.haunt, "ghost").result(timeout="30s")

    crew.open("ghost-speaks")
    until(lambda: crew.said("ghost", "speaks"))
    crew.open("after")

    assert crew.put(app.do_step, "after").result(timeout="30s") == (process, "my own")
    assert crew.said("ghost", "ended") == [["LeaseLost"]]


def test_a_thread_that_still_waits_for_an_answer_holds_up_neither_its_job_nor_the_next(
    crew: Crew, relay: Relay
) -> None:
    worker = start(crew, "--log-level", "debug", HOLDFAST_URL=relay.url)
    job = crew.put(app.leave_asking, "ghost")
    until(lambda: crew.get(job).state == "running")
    relay.cut()
    crew.open("ghost-speaks")
    until(lambda: crew.said("ghost", "speaks"))

    crew.open("ghost")
    crew.open("after")
    until(lambda: f"{job.id}: attempt 1 of {app.leave_asking.name} succeeded" in worker.log)
    relay.mend()

    process = job.result(timeout="30s")
    assert crew.put(app.do_step, "after").result(timeout="30s") == (process, "my own")


def test_a_copy_that_a_job_leaves_behind_says_nothing_for_the_next_job(crew: Crew) -> None:
    start(crew)
    process = crew.put(app.leave_copy, "ghost").result(timeout="30s")
    after = crew.put(app.do_step, "after")
    crew.pids("after", "runs")

    crew.open("ghost-speaks")
    until(lambda: [] in crew.said("ghost", "ended"))
    crew.open("after")

    assert after.result(timeout="30s") == (process, "my own")
    assert not checkpoint(crew, after)


# Threads of a job


def test_a_job_speaks_and_hears_while_a_thread_of_it_waits_for_an_answer(crew: Crew, relay: Relay) -> None:
    start(crew, HOLDFAST_URL=relay.url)
    job = crew.put(app.speak_while_a_thread_asks.options(soft_timeout="1s"), "both")
    crew.pids("both", "runs")
    relay.cut()
    crew.open("both-speaks")

    until(lambda: crew.said("both", "told"))
    assert crew.said("both", "ended") == []
    relay.mend()

    assert job.result(timeout="30s") == "soft_timeout"
    assert crew.said("both", "ended") == [["heard"]]


def test_each_of_many_threads_hears_its_own_answers(crew: Crew) -> None:
    start(crew)

    assert crew.put(app.ask_at_once, 8, 40).result(timeout="40s") == [True] * 8


# A job that is stopped while it speaks


def test_the_last_save_of_jobs_that_are_stopped_in_the_middle_of_one_arrives(crew: Crew) -> None:
    start(crew)
    for _ in range(4):  # it is always in the middle of one, but for moments
        job = crew.put(app.save_much)
        until(partial(checkpoint, crew, job))

        crew.app.cancel(job.id)

        assert crew.ended(job).state == "cancelled"
        assert checkpoint(crew, job) == b'"' + b"y" * app.BIG + b'"'


# An executor that cannot do what it is asked for


def test_a_step_is_kept_though_the_machine_had_nothing_left_for_a_while(crew: Crew) -> None:
    start(crew, FAIL_STEPS="machine")

    assert crew.put(app.step_here).result(timeout="30s") == "done"


def test_a_job_hears_of_an_error_of_its_executor(crew: Crew) -> None:
    start(crew, FAIL_STEPS="bug")

    ended = crew.ended(crew.put(app.step_here))

    assert ended.state == "failed"
    assert ended.failure
    assert "a bug of ours" in ended.failure.message
