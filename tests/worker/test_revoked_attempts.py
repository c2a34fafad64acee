"""Attempts that an operator ends, by `release` or `fail`; and outcomes that the store refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast import Job, Task
from holdfast.job.option_table import Runner
from tests.apps import refused_app as app
from tests.apps import runner_app, worker_app
from tests.apps.runner_app import RUNNERS
from tests.support.servers import running_server
from tests.support.workers import Crew, Worker, is_alive, new_crew, until

APP = "tests.apps.runner_app"
APART: tuple[Runner, ...] = ("fork", "spawn", "process")


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """A crew with one worker, on a server of its own, for all tests that do no harm to it."""
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("staff")) as crew:
        start(crew)
        yield crew


def start(crew: Crew) -> Worker:
    crew.app.tasks.update(runner_app.jobs.tasks)
    return crew.start("--processes", "4", app=APP)


def put(crew: Crew, program: str, runner: Runner, *args: Any) -> Job[Any]:
    return crew.put(runner_app.find(program, runner), *args)


# Taken away


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_job_that_an_operator_fails_is_stopped(staff: Crew, runner: Runner) -> None:
    name = f"fails-{runner}"
    job = put(staff, "hold", runner, name, True)
    staff.pids(name, "runs")

    assert staff.app.fail(job.id, group="bad-data", reason="no such film") == "failed"

    until(lambda: staff.said(name, "cleaned"))
    ended = staff.get(job)
    assert (ended.state, ended.group, staff.said(name, "ends")) == ("failed", "bad-data", [])
    assert until(lambda: job.id not in staff.held())


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_job_that_an_operator_releases_is_stopped_and_runs_again(staff: Crew, runner: Runner) -> None:
    name = f"back-{runner}"
    job = put(staff, "hold", runner, name, True)
    staff.pids(name, "runs")

    assert staff.app.release(job.id, reason="wrong node") == "waiting"

    until(lambda: staff.said(name, "cleaned"))
    staff.pids(name, "runs", 2)
    staff.open(name)
    assert job.result(timeout="30s") == name
    ended = staff.get(job)
    assert [attempt.outcome for attempt in ended.attempts] == ["released", "succeeded"]
    assert (ended.retries_used, ended.crashes_used, ended.lost_used) == (0, 0, 0)
    assert staff.said(name, "ends") == [[]]


@pytest.mark.parametrize("runner", APART)
def test_a_job_that_does_not_stop_when_it_is_taken_away_is_killed(staff: Crew, runner: Runner) -> None:
    name = f"deaf-{runner}"
    job = put(staff, "ignore", runner, name)
    (pid,) = staff.pids(name, "runs")

    assert staff.app.release(job.id, delay="1h") == "scheduled"

    until(lambda: not is_alive(pid))
    assert staff.get(job).state == "scheduled"


@pytest.mark.parametrize("runner", ["thread", "async"])
def test_a_job_that_cannot_be_killed_is_abandoned_and_its_executor_replaced(crew: Crew, runner: Runner) -> None:
    start(crew)
    deaf, neighbour = put(crew, "ignore", runner, "deaf"), put(crew, "hold", runner, "neighbour", True)
    (pid,) = crew.pids("deaf", "runs")
    crew.pids("neighbour", "runs")

    assert crew.app.fail(deaf.id) == "failed"

    crew.open("neighbour")
    assert neighbour.result(timeout="30s") == "neighbour"
    until(lambda: not is_alive(pid))
    assert put(crew, "nothing", runner).result(timeout="30s") is None
    assert crew.outcomes(neighbour) == ["succeeded"]
    assert crew.get(deaf).state == "failed"


def test_many_running_jobs_that_an_operator_fails_are_stopped(staff: Crew) -> None:
    names = [f"many-{number}" for number in range(20)]
    held = [put(staff, "hold", "async", name, True) for name in names]
    for name in names:
        staff.pids(name, "runs")

    for job in held:
        staff.app.fail(job.id)

    until(lambda: all(staff.said(name, "cleaned") for name in names))
    assert until(lambda: not set(staff.held()) & {job.id for job in held})


def test_the_message_alone_stops_a_job_before_the_next_renewal(crew: Crew, server_url: str) -> None:
    crew.start("--lease", "1s")
    job = crew.put(worker_app.clean_up, "held")
    crew.pids("held", "runs")
    (attempt,) = crew.get(job).attempts

    with redis.Redis.from_url(server_url) as client:  # the store itself knows nothing of it
        inbox = f"hf:{{{crew.namespace}}}:inbox:{attempt.executor.rpartition('.')[0]}"
        client.rpush(inbox, f"lost {attempt.executor} {job.id} 1")

    until(lambda: crew.said("held", "cleaned"))
    crew.pids("held", "runs", 2)  # what nobody here knows of is handed back
    crew.open("held")
    assert crew.ended(job).state == "succeeded"


def test_an_embedded_worker_stops_a_job_that_an_operator_fails(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []

    @crew.app.task(name="hold")
    async def hold() -> None:
        import asyncio

        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("stopped")

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(crew.folder))
    with crew.app.worker():
        job = hold.enqueue()
        until(lambda: crew.app.get(job.id).state == "running")
        until(lambda: crew.app.get(job.id).attempts[0].pid)
        crew.app.fail(job.id)
        until(lambda: stopped)
    assert crew.app.get(job.id).state == "failed"


# Refused


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("refused")) as crew:
        crew.start(app="tests.apps.refused_app")
        yield crew


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (
            app.go_on_with_too_much,
            "the arguments of tests.apps.refused_app.store_text are 70000011 bytes (limit 1048576)",
        ),
        (app.go_on_with_too_much_async, "the arguments of tests.apps.refused_app.store_text are 70000011 bytes"),
        (app.go_on_after_nobody, "a job that it would wait for does not exist"),
        (app.go_on_after_itself, "it would wait for itself"),
        (app.wait_for_itself, "it would wait for itself"),
        (app.wait_for_itself_async, "it would wait for itself"),
    ],
    ids=lambda value: value.name.rpartition(".")[2] if isinstance(value, Task) else "",
)
def test_an_outcome_that_the_store_refuses_is_a_clear_error_and_is_not_tried_again(
    refused: Crew, task: Task[[], None], says: str
) -> None:
    job = refused.ended(refused.put(task))

    assert (job.state, job.group) == ("failed", "refused")
    assert [attempt.outcome for attempt in job.attempts] == ["error"]
    assert job.failure
    assert says in job.failure.message
    assert refused.put(app.store_text, "abc").result(timeout="30s") == 3
