"""Middleware wraps the call of a task: in every runner, in the testing kit, and inline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Fail, Holdfast, Invalid, Job, JobFailed, Retry, RunningJob, Snooze
from holdfast.testing import Workbench, use
from tests.apps import middleware_app
from tests.support.servers import running_server
from tests.support.workers import Crew, new_crew, until

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """A worker for all tests here, none of which harms it."""
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("staff")) as crew:
        crew.app.tasks.update(middleware_app.jobs.tasks)
        crew.start("--processes", "4", app="tests.apps.middleware_app")
        yield crew


@pytest.fixture(params=middleware_app.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def jobs() -> Holdfast:
    return Holdfast(NOWHERE)


@pytest.fixture
def bench(jobs: Holdfast, server_url: str) -> Iterator[Workbench]:
    with use(jobs, server_url) as made:
        yield made


def run(crew: Crew, kind: str, how: str) -> tuple[Job[Any], list[list[str]]]:
    job = crew.ended(crew.put(middleware_app.find(kind), how))
    return job, crew.said(job.id)


def words(lines: list[list[str]]) -> list[str]:
    return [" ".join(line[:2]) for line in lines if line[0] != "awaited"]


# In every runner


def test_the_first_is_the_outermost_in_the_process_of_the_job(staff: Crew, kind: str) -> None:
    job, lines = run(staff, kind, "fine")

    assert job.result() == "fine:nobody:"
    assert words(lines) == ["outer enters", "inner enters", "task runs", "inner leaves", "outer returned"]
    assert lines[-1][2] == "fine:nobody:"
    assert len({line[2] for line in lines if line[1] in ("enters", "runs") and line[0] != "awaited"}) == 1


def test_what_a_task_raises_is_raised_in_each_and_one_may_raise_another(staff: Crew, kind: str) -> None:
    job, lines = run(staff, kind, "failed")

    assert (job.state, job.group, job.attempt) == ("failed", "no-key", 1)
    assert words(lines) == ["outer enters", "inner enters", "task runs", "inner leaves", "outer raised"]
    assert lines[-1][2] == "Fail"
    assert job.failure
    assert "raised by the middleware tests.apps.middleware_app.inner" in job.failure.traceback
    assert "KeyError: 'failed'" in job.failure.traceback


def test_a_middleware_may_have_the_job_retried_or_snoozed(staff: Crew, kind: str) -> None:
    retried, _ = run(staff, kind, "retried")
    snoozed, lines = run(staff, kind, "snoozed")

    assert [attempt.outcome for attempt in retried.attempts] == ["error", "succeeded"]
    assert [attempt.outcome for attempt in snoozed.attempts] == ["snoozed", "succeeded"]
    assert words(lines).count("task runs") == 1


def test_an_error_of_a_middleware_fails_the_job_and_names_the_middleware(staff: Crew, kind: str) -> None:
    job, lines = run(staff, kind, "broken")

    assert [attempt.outcome for attempt in job.attempts] == ["error"] * 2
    assert job.failure
    assert (job.state, job.failure.group) == ("failed", "LookupError")
    trace = job.failure.traceback
    assert "in inner\n" in trace
    assert trace.endswith("raised by the middleware tests.apps.middleware_app.inner\n")
    assert "task runs" not in words(lines)


def test_it_is_left_also_when_a_task_leaves_its_process(staff: Crew, kind: str) -> None:
    job, lines = run(staff, kind, "exited")

    assert (job.state, job.group) == ("failed", "crashed")
    assert words(lines)[:5] == ["outer enters", "inner enters", "task runs", "inner leaves", "outer raised"]


def test_one_that_waits_is_around_tasks_that_do(staff: Crew) -> None:
    _, lines = run(staff, "async", "fine")

    assert ["awaited", "enters"] in lines
    assert lines.index(["awaited", "leaves"]) < lines.index(["inner", "leaves"])


# In the testing kit


def test_it_is_around_tasks_in_the_testing_kit_too(jobs: Holdfast, bench: Workbench) -> None:
    seen: list[Any] = []

    @jobs.middleware
    def look(job: RunningJob) -> Iterator[None]:
        seen.append(dict(job.arguments))
        result = yield
        seen.append(result)

    @jobs.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    @jobs.task(name="treble")
    async def treble(number: int) -> int:
        return 3 * number

    double.enqueue(1)
    treble.enqueue(number=2)
    bench.run_until_empty()
    treble.enqueue(3)
    asyncio.run(bench.arun_until_empty())

    assert seen == [{"number": 1}, 2, {"number": 2}, 6, {"number": 3}, 9]
    assert double(5) == 10
    assert len(seen) == 6, "a call as a function is the plain function"


def test_it_is_around_the_tasks_that_it_names(jobs: Holdfast, bench: Workbench) -> None:
    seen = []

    @jobs.task(name="one")
    def one() -> None: ...

    @jobs.middleware(tasks=[one, "later"])
    def look(job: RunningJob) -> Iterator[None]:
        seen.append(job.task)
        yield

    @jobs.task(name="two")
    def two() -> None: ...

    @jobs.task(name="later")
    def later() -> None: ...

    for task in (one, two, later):
        task.enqueue()
    bench.run_until_empty()

    assert seen == ["one", "later"]


def test_an_error_that_is_caught_goes_on_all_the_same(jobs: Holdfast, bench: Workbench) -> None:
    @jobs.middleware
    def careless(_: RunningJob) -> Iterator[None]:
        with suppress(ZeroDivisionError):
            yield

    @jobs.task(name="divide", retries=0)
    def divide(by: int) -> float:
        return 1 / by

    divide.enqueue(0)
    failed = bench.run_one()

    assert failed
    assert failed.failure
    assert failed.group == "ZeroDivisionError"
    assert "raised by" not in failed.failure.traceback
    assert failed.failure.traceback.count("File ") == 1


def _never(job: RunningJob) -> Iterator[None]:
    if job.id == "nobody's":
        yield


def _twice(_: RunningJob) -> Iterator[None]:
    yield
    yield


def _twice_by_error(_: RunningJob) -> Iterator[None]:
    try:
        yield
    except ValueError:
        yield


async def _atwice(_: RunningJob) -> AsyncIterator[None]:
    yield
    yield


@pytest.mark.parametrize(
    ("middleware", "what", "reason"),
    [
        (_never, "fine", "it returned without a yield, so the task was not called"),
        (_twice, "fine", "it yielded twice; a task is called once"),
        (_twice_by_error, "ValueError", "it yielded twice; a task is called once"),
        (_atwice, "fine", "it yielded twice; a task is called once"),
    ],
)
def test_what_does_not_yield_once_is_an_error_of_the_job(
    jobs: Holdfast, bench: Workbench, middleware: Callable[..., Any], what: str, reason: str
) -> None:
    jobs.middleware(middleware)

    @jobs.task(name="do", retries=0)
    async def do(what: str) -> None:
        if what == "ValueError":
            raise ValueError

    do.enqueue(what)
    failed = bench.run_one()

    assert failed
    assert failed.failure
    assert (failed.state, failed.failure.message) == ("failed", reason)
    assert failed.failure.notes == (f"raised by the middleware tests.task.test_middleware.{middleware.__name__}",)


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt])
def test_any_exception_passes_through(jobs: Holdfast, bench: Workbench, error: type[BaseException]) -> None:
    seen = []

    @jobs.middleware
    def look(job: RunningJob) -> Iterator[None]:
        try:
            yield
        finally:
            seen.append(job.task)

    @jobs.task(name="leave", retries=0)
    def leave() -> None:
        raise error("left")

    leave.enqueue()
    try:
        failed = bench.run_one()
    except BaseException as raised:
        assert type(raised) is error  # noqa: PT017, of the process, not of the job
    else:
        assert failed
        assert failed.failure
        assert error.__name__ in failed.failure.traceback
    assert seen == ["leave"]


@pytest.mark.parametrize(
    ("error", "state", "group"),
    [(Retry(0), "waiting", ""), (Fail("no", group="no"), "failed", "no"), (Snooze(0), "waiting", "")],
)
def test_a_success_can_still_become_something_else(
    jobs: Holdfast, bench: Workbench, error: Exception, state: str, group: str
) -> None:
    @jobs.middleware
    def strict(_: RunningJob) -> Iterator[None]:
        yield
        raise error

    @jobs.task(name="do")
    def do() -> None: ...

    do.enqueue()
    ended = bench.run_one()

    assert ended
    assert (ended.state, ended.group) == (state, group)


def test_a_function_that_does_not_yield_is_refused(jobs: Holdfast) -> None:
    with pytest.raises(TypeError, match="a function, def or async def, that yields once"):
        jobs.middleware(lambda _: None)  # type: ignore[type-var]
    with pytest.raises(Invalid, match="must be a list of tasks"):
        jobs.middleware(tasks="do")(_twice)


@pytest.mark.parametrize("function", [lambda: (yield), lambda _job, _more: (yield)])
def test_a_middleware_is_called_with_the_running_job_alone(function: Any) -> None:
    with pytest.raises(TypeError, match="called with one argument, the running job"):
        Holdfast("redis://nowhere").middleware(function)


def test_an_async_one_is_refused_around_a_plain_function_whichever_comes_first(jobs: Holdfast) -> None:
    def plain() -> None: ...

    jobs.task(name="plain")(plain)
    with pytest.raises(Invalid, match=r"_atwice is an async def, but task plain is a plain function"):
        jobs.middleware(_atwice)
    other = Holdfast(NOWHERE)
    other.middleware(_atwice)
    with pytest.raises(Invalid, match=r"restrict it with middleware\(tasks="):
        other.task(name="plain")(plain)
    assert "plain" not in other.tasks


# Inline


def test_it_is_around_what_runs_inline() -> None:
    jobs = Holdfast(NOWHERE, when_unreachable="inline")
    seen: list[Any] = []

    @jobs.middleware
    def look(_: RunningJob) -> Iterator[None]:
        seen.append((yield))

    @jobs.task(name="double")
    def double(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return 2 * number

    assert double.enqueue(4).result() == 8
    assert asyncio.run(double.aenqueue(5)).ran_inline
    with pytest.raises(JobFailed, match="ValueError"):
        double.enqueue(-1).result()
    assert seen == [8, 10]


def test_a_job_that_is_stopped_leaves_it_by_its_finally(crew: Crew) -> None:
    """A cancelled job leaves its middleware as it leaves its task."""
    crew.app.tasks.update(middleware_app.jobs.tasks)
    crew.start("--processes", "2", app="tests.apps.middleware_app")
    job = crew.put(middleware_app.wait, "waiting")
    until(lambda: crew.said(job.id, "task"), what="the task")

    crew.app.cancel(job.id)

    assert crew.ended(job).state == "cancelled"
    assert words(crew.said(job.id))[-2:] == ["inner leaves", "outer raised"]
