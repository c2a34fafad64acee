"""Jobs inside the executor's own process, threads and coroutines: whatever they do, the executor continues."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Job, JobFailed, Task, current_job
from holdfast.job.option_table import Runner
from holdfast.job.outcome import Release
from holdfast.store.commands import ClaimedJob
from holdfast.worker.attempt import Attempt, ExecutorContext, Request
from holdfast.worker.pending_saves import Update
from holdfast.worker.runners.async_runner import AsyncRunner
from holdfast.worker.runners.inprocess_job import InProcessJob, InProcessJobs
from holdfast.worker.runners.thread_runner import ThreadRunner
from tests.apps import inprocess_app as app
from tests.support.workers import Crew, Worker, is_alive, until

INSIDE: tuple[Runner, ...] = ("thread", "async")


def start(crew: Crew, *options: str) -> Worker:
    crew.app.tasks.update(app.jobs.tasks)
    return crew.start("--processes", "4", *options, app="tests.apps.inprocess_app")


def put(crew: Crew, program: str, runner: Runner, *args: Any, **options: Any) -> Job[Any]:
    return crew.put(app.find(program, runner).options(**options), *args)


# Asking the event loop from inprocess of it


@pytest.mark.parametrize(("how", "instead"), [("once", "aonce"), ("flush", "asave")])
def test_a_blocking_request_in_a_coroutine_is_refused_with_a_hint(crew: Crew, how: str, instead: str) -> None:
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
def test_the_last_save_of_a_job_is_stored_when_it_has_ended(crew: Crew, program: Task[[int], int]) -> None:
    start(crew)

    jobs = crew.put_all([program.bind(number) for number in range(200)])

    for number, job in enumerate(jobs):
        ended = crew.ended(job)
        assert (ended.state, ended.attempt) == ("succeeded", 1)
        assert ended.progress
        assert ended.progress.message == "done"
        assert [note.text for note in ended.notes] == [f"note {number}"]


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


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=["thread", "memory"])
def test_jobs_are_released_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def main() -> None:
        part = Part()
        runner = ThreadRunner(part.inprocess, concurrency=4)
        with monkeypatch.context() as patch:
            patch.setattr(ThreadPoolExecutor, "submit", raising(error))
            attempts = [part.attempt(id) for id in ("one", "two")]
            for attempt in attempts:
                runner.begin(attempt)
            await asyncio.sleep(0)

        given_back = Release(f"the worker failed: {error!r}"[:60], 1000)
        assert [attempt.outcome for attempt in attempts] == [given_back, given_back]
        assert [has_started(attempt) for attempt in attempts] == [False, False]
        assert not runner._is_submitted

    asyncio.run(main())


# Being asked to end


def test_a_thread_that_yields_when_it_was_just_asked_to_end_takes_no_neighbour_with_it(crew: Crew) -> None:
    worker = start(crew)
    neighbour, job = put(crew, "hold", "thread", "neighbour", True), crew.put(app.yield_unasked, "yields")
    ((executor,), _) = [crew.pids(name, "runs") for name in ("yields", "neighbour")]

    job.cancel()
    until(lambda: f"{job.id}: attempt 1 was cancelled, stopping it" in worker.log)
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
    assert f"{deaf.id}: attempt 1 has not stopped after 1 s and is abandoned" in worker.log
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


# A part of an executor, without a store


NOTHING = app.meet.bind().payload  # for arguments


class Part:
    """Where jobs of one small task run in this process."""

    def __init__(self, tmp_path: Path | str = "", on_request: Request = asyncio.sleep) -> None:
        self.jobs = Holdfast("redis://nowhere")
        self.task = self.jobs.task(name="small")
        self.inprocess = InProcessJobs(self.jobs.tasks, on_abandoned=print)
        self.ended = asyncio.Event()
        self._context = ExecutorContext(
            executor="node/worker.1",
            directory=str(tmp_path),
            logs="",
            captures_output=False,
            in_directory=False,
            on_start=lambda _: None,
            on_end=lambda *_: self.ended.set(),
            on_first_save=lambda _: None,
            on_request=on_request,
            renewed_at=lambda: 0.0,
        )

    def attempt(self, id: str = "job") -> Attempt:
        return Attempt(ClaimedJob(id, 1, "default", "small", "json", NOTHING, b"", 0, 1, False), self._context, 0.0)

    async def run(self, make: Callable[[InProcessJobs], AsyncRunner | ThreadRunner]) -> Attempt:
        """Run the task to its end."""
        attempt = self.attempt()
        make(self.inprocess).begin(attempt)
        async with asyncio.timeout(30):
            await self.ended.wait()
        return attempt


def raising(error: BaseException) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise error

    return refuse


def fail() -> None:
    raise ValueError


def one_thread(inprocess: InProcessJobs) -> ThreadRunner:
    return ThreadRunner(inprocess, concurrency=1)


def has_started(attempt: Attempt) -> bool:
    """Whether the store will hear that it has."""
    finish = attempt.finish(Release(""))
    assert [finish.pid is None, finish.started is None] == [finish.unstarted] * 2
    return not finish.unstarted


@pytest.mark.parametrize("make", [one_thread, AsyncRunner], ids=INSIDE)
def test_a_job_that_was_stopped_before_it_began_has_not_started(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[InProcessJobs], AsyncRunner | ThreadRunner]
) -> None:
    async def main() -> None:
        part = Part()
        part.task(fail)
        begin = InProcessJob.begin

        def begin_late(work: InProcessJob) -> Task[..., Any] | None:
            work.ask_to_end()
            return begin(work)

        monkeypatch.setattr(InProcessJob, "begin", begin_late)
        assert not has_started(await part.run(make))

    asyncio.run(main())


def test_a_flush_waits_for_what_was_said_before_though_another_thread_has_not_woken_the_loop_yet() -> None:
    async def main() -> None:
        heard = []

        async def answer(attempt: Attempt, word: str) -> tuple[str, Any]:
            heard.append((word, attempt.saves and attempt.saves.unsent))
            return "", None

        part = Part(on_request=answer)
        attempt = part.attempt()
        work = InProcessJob(attempt, part.inprocess)
        part.inprocess.calls._is_woken = True  # that thread is about to

        def save() -> tuple[str, Any]:
            work.save(b"1", None)
            return work.request("flush")

        await asyncio.to_thread(save)
        work.save(b"2", None)
        await work.arequest("flush")

        assert heard == [("flush", Update(b"1")), ("flush", Update(b"2"))]

    asyncio.run(main())


def test_what_a_coroutine_saves_after_its_thread_has_counts_more() -> None:
    async def main() -> None:
        part = Part()
        attempt = part.attempt()
        work = InProcessJob(attempt, part.inprocess)
        thread = threading.Thread(target=work.save, args=(b"1", None))
        thread.start()
        thread.join()
        work.save(b"2", None)
        await asyncio.sleep(0)
        assert attempt.saves
        assert attempt.saves.unsent == Update(b"2")

    asyncio.run(main())


@pytest.mark.parametrize("make", [one_thread, AsyncRunner], ids=INSIDE)
def test_a_job_ends_though_its_end_cannot_be_described(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[InProcessJobs], AsyncRunner | ThreadRunner]
) -> None:
    async def main() -> None:
        part = Part()
        part.task(fail)
        monkeypatch.setattr("holdfast.worker.runners.inprocess_job.outcome_of_exception", raising(SystemExit(3)))
        attempt = await part.run(make)
        assert attempt.outcome == Release("the worker failed: SystemExit(3)", 1000)
        assert has_started(attempt)

    asyncio.run(main())


@pytest.mark.parametrize("step", ["_run", "_submit_thread"])
def test_a_job_ends_whose_thread_is_hit_where_the_task_is_not(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    async def main() -> None:
        part = Part()
        part.task(lambda: None)
        runner = one_thread(part.inprocess)
        attempt = part.attempt()
        runner._waiting.append((InProcessJob(attempt, part.inprocess), copy_context()))
        monkeypatch.setattr(runner, step, raising(SystemExit(3)))
        runner._run_waiting()
        await part.ended.wait()
        assert attempt.outcome == Release("the worker failed: SystemExit(3)", 1000)
        assert not has_started(attempt)

    asyncio.run(main())


def test_a_thread_can_be_called_again_after_a_call_was_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        part = Part()
        runner = one_thread(part.inprocess)
        monkeypatch.setattr(ThreadPoolExecutor, "submit", raising(SystemExit(3)))
        with pytest.raises(SystemExit):
            runner.begin(part.attempt())
        assert not runner._is_submitted

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_directory_is_found_that_only_a_forked_child_has_used(tmp_path: Path) -> None:
    def use_by_child() -> None:
        if (pid := os.fork()) == 0:
            with suppress(BaseException):
                (current_job().directory / "file").touch()
            os._exit(0)
        os.waitpid(pid, 0)

    async def main() -> None:
        part = Part(tmp_path)

        @part.task
        async def small() -> None:
            use_by_child()

        attempt = await part.run(AsyncRunner)
        assert (attempt.directory / "file").exists()
        assert attempt.has_directory

    asyncio.run(main())
