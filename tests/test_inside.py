"""Jobs inside of the executor's own process: what they may do there, and the executor goes on all the same."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Job, JobFailed, Task
from holdfast.commands import Claimed
from holdfast.options import Runner
from holdfast.outcome import Outcome, Release
from holdfast.worker.attempt import Attempt, House
from holdfast.worker.inside import Inside, ThreadRunner
from tests.apps import inside_app as app
from tests.workers import Crew, Worker, is_alive, until

INSIDE: tuple[Runner, ...] = ("thread", "async")


def start(crew: Crew, *options: str) -> Worker:
    crew.app.tasks.update(app.jobs.tasks)
    return crew.start("--processes", "4", *options, app="tests.apps.inside_app")


def put(crew: Crew, program: str, runner: Runner, *args: Any, **options: Any) -> Job[Any]:
    return crew.put(app.find(program, runner).options(**options), *args)


# Asking the event loop from inside of it


@pytest.mark.parametrize(("how", "instead"), [("once", "aonce"), ("flush", "asave")])
def test_a_coroutine_that_asks_without_await_is_told_what_to_write(crew: Crew, how: str, instead: str) -> None:
    start(crew)

    with pytest.raises(JobFailed, match=rf"write `await job\.{instead}"):
        crew.put(app.ask_without_await, how).result(timeout="30s")

    assert crew.put(app.process).result(timeout="30s")


# Many at once


def test_threads_that_wait_for_each_other_all_run(crew: Crew) -> None:
    start(crew, "--concurrency", "40")

    jobs = crew.put_all([app.meet.bind() for _ in range(40)])

    assert sorted(job.result(timeout="60s") for job in jobs) == list(range(40))


@pytest.mark.parametrize("program", [app.say_last_words, app.say_last_words_async], ids=INSIDE)
def test_what_a_job_says_last_is_in_the_store_when_it_has_ended(crew: Crew, program: Task[[int], int]) -> None:
    start(crew)

    jobs = crew.put_all([program.bind(number) for number in range(200)])

    for number, job in enumerate(jobs):
        ended = crew.ended(job)
        assert (ended.state, ended.attempt) == ("succeeded", 1)
        assert ended.progress
        assert ended.progress.message == "done"
        assert [note.words for note in ended.notes] == [f"note {number}"]


def test_jobs_run_while_others_are_fetched_and_never_more_than_have_a_place(crew: Crew) -> None:
    start(crew, "--concurrency", "3")
    holding = [put(crew, "hold", "async", f"hold{number}", True) for number in range(3)]
    for number in range(3):
        crew.pids(f"hold{number}", "runs")
    crew.put(app.process)

    assert [crew.app.count(state=state) for state in ("running", "waiting")] == [3, 1]
    for number in range(3):
        crew.open(f"hold{number}")
    assert [job.result(timeout="30s") for job in holding] == [f"hold{number}" for number in range(3)]


def test_where_no_thread_can_be_started_jobs_are_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[str, Outcome]] = []

    async def main() -> None:
        inside = Inside(app.jobs.tasks, on_abandoned=print)
        house = House(
            executor="node/worker.1",
            directory="",
            logs="",
            captured=False,
            on_start=lambda _: None,
            on_end=lambda attempt, outcome: ended.append((attempt.job.id, outcome)),
            on_first_save=lambda _: None,
            on_request=asyncio.sleep,
            renewed_at=lambda: 0.0,
        )
        runner = ThreadRunner(inside, most=4)
        monkeypatch.setattr(ThreadPoolExecutor, "submit", _refuse)
        for id in ("one", "two"):
            runner.begin(Attempt(Claimed(id, 1, "default", app.meet.name, "json", b"{}", b"", 0, 1, False), house, 0.0))
        await asyncio.sleep(0)

    asyncio.run(main())

    given_back = Release("""the worker failed: RuntimeError("can't start new thread")"""[:60], 1000)
    assert ended == [("one", given_back), ("two", given_back)]


def _refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")


# Being asked to end


def test_a_thread_that_yields_when_it_was_just_asked_to_end_takes_no_neighbour_with_it(crew: Crew) -> None:
    worker = start(crew)
    neighbour, job = put(crew, "hold", "thread", "neighbour", True), crew.put(app.yield_unasked, "yields")
    ((executor,), _) = [crew.pids(name, "runs") for name in ("yields", "neighbour")]

    job.cancel()
    until(lambda: f"{job.id}: attempt 1 is cancelled" in worker.log)
    crew.open("yields")

    assert crew.ended(job).state == "cancelled"
    assert is_alive(executor)
    crew.open("neighbour")
    assert neighbour.result(timeout="30s") == "neighbour"
    assert crew.outcomes(neighbour) == ["succeeded"]
    assert "died" not in worker.log


@pytest.mark.parametrize("runner", INSIDE)
def test_a_fresh_executor_claims_at_once_when_a_job_is_abandoned(crew: Crew, runner: Runner) -> None:
    worker = start(crew)
    deaf, neighbour = put(crew, "ignore", runner, "deaf"), put(crew, "hold", runner, "neighbour", True)
    ((executor,), _) = [crew.pids(name, "runs") for name in ("deaf", "neighbour")]

    deaf.cancel()

    assert crew.ended(deaf).state == "cancelled"
    assert crew.put(app.process).result(timeout="30s") != executor
    assert f"{deaf.id}: attempt 1 does not end when it is asked to, and is abandoned" in worker.log
    assert is_alive(executor)
    crew.open("neighbour")
    assert neighbour.result(timeout="30s") == "neighbour"
    assert crew.outcomes(neighbour) == ["succeeded"]
    until(lambda: not is_alive(executor))
    assert "died" not in worker.log


# Jobs that use up the threads of asyncio


@pytest.fixture
def full(crew: Crew) -> Crew:
    """A worker whose executor has no thread of `asyncio.to_thread` left until the gate `full` is open."""
    start(crew)
    crew.put(app.fill_threads, "full")
    crew.pids("full", "runs")
    return crew


@pytest.mark.parametrize("runner", ["fork", *INSIDE])
def test_a_time_out_is_kept_though_jobs_use_up_the_threads_of_asyncio(full: Crew, runner: Runner) -> None:
    ended = full.ended(put(full, "hold", runner, "held", True, timeout="500ms", retries=0))

    assert (ended.state, ended.group) == ("failed", "timeout")
    assert ended.failure
    assert ended.failure.traceback


def test_silence_and_memory_are_watched_though_jobs_use_up_the_threads_of_asyncio(full: Crew) -> None:
    silent = put(full, "be_silent", "async", "silent", stalled="300ms", retries=0)
    growing = put(full, "grow", "fork", "grows", "here", memory="150MiB", retries=0)

    assert (full.ended(silent).group, full.ended(growing).group) == ("stalled", "memory")


def test_a_directory_is_removed_though_jobs_use_up_the_threads_of_asyncio(full: Crew) -> None:
    directory = full.put(app.use_directory).result(timeout="30s")

    assert not Path(directory).exists()


@contextmanager
def no_stacks(pid: int) -> Iterator[None]:
    """Keep the file that a process would write its stacks to."""
    files = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if "holdfast-stacks" in os.readlink(path):
                files.append(os.open(path, os.O_RDWR))
    (file,) = files
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(file)


def test_a_job_is_stopped_by_its_time_out_though_nobody_can_say_what_it_does(crew: Crew) -> None:
    start(crew)
    job = put(crew, "hold", "fork", "held", True, timeout="3s", retries=0)
    (pid,) = crew.pids("held", "runs")

    with no_stacks(pid):
        ended = crew.ended(job)

    assert (ended.state, ended.group) == ("failed", "timeout")
    assert ended.failure
    assert ended.failure.traceback == ""
