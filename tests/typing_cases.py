"""Tasks as a type checker must see them. It is not run: `test_typing` gives it to mypy.

Each `type: ignore` stands on a line that must be an error; one that is not needed is an error itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from holdfast import (
    Advance,
    HoldfastError,
    JobUsage,
    Log,
    LogPart,
    Progress,
    Retries,
    RunningJob,
    cron,
    current_job,
    every,
)
from holdfast.app import Holdfast
from holdfast.client.queues import Load
from holdfast.client.schedules import Schedule
from holdfast.job.job import Job
from holdfast.job.options import CheckedOptions
from holdfast.store.commands import LimitStatus
from holdfast.task.task import AsyncTask, BoundCall, Task, make_task

jobs = Holdfast()


@jobs.task
def plain(source: str, height: int = 720) -> str:
    return source * height


@jobs.task(queue="video", retries=3, timeout="6h")
def chosen(source: str, height: int = 720) -> str:
    return source * height


@jobs.task(queue="web")
async def fetch(url: str) -> bytes:
    return url.encode()


@jobs.task
async def bare(url: str) -> int:
    return len(url)


def thumbnail(path: str) -> int:
    return len(path)


async def crawl(path: str) -> int:
    return len(path)


def a_task_is_called_like_its_function() -> None:
    assert_type(plain("a", height=2), str)
    assert_type(chosen("a"), str)
    plain(1)  # type: ignore[arg-type]
    chosen()  # type: ignore[call-arg]


async def an_async_task_is_awaited() -> None:
    assert_type(await fetch("a"), bytes)
    await fetch(1)  # type: ignore[arg-type]


def retries_are_a_number_or_a_policy() -> None:
    plain.options(retries=5)
    plain.options(retries=Retries(5, waits=["1s", 10, timedelta(minutes=1)], cap="5m", jitter=0, on=KeyError))
    plain.options(retries=Retries(waits="1s", on=(KeyError, "requests.exceptions.Timeout"), not_on=[ValueError]))
    assert_type(plain.enqueue("a").retry_policy, Retries | None)
    plain.options(retries="5")  # type: ignore[arg-type]
    Retries(on=[1])  # type: ignore[list-item]
    Retries(5, ["1s"])  # type: ignore[call-arg]


def enqueue_takes_the_arguments_of_the_function() -> None:
    assert_type(plain.enqueue("a", height=2), Job[str])
    assert_type(chosen.enqueue("a"), Job[str])
    assert_type(chosen.options(priority=-5, delay="30s").enqueue("a"), Job[str])
    assert_type(fetch.enqueue("a"), Job[bytes])
    assert_type(bare.enqueue("a"), Job[int])
    assert_type(fetch.options(queue="slow").enqueue("a").result(), bytes)
    plain.enqueue(1)  # type: ignore[arg-type]
    plain.enqueue("a", height="2")  # type: ignore[arg-type]
    plain.enqueue("a", width=2)  # type: ignore[call-arg]
    chosen.enqueue()  # type: ignore[call-arg]
    chosen.options(priority=1).enqueue(1)  # type: ignore[arg-type]
    fetch.enqueue(1)  # type: ignore[arg-type]


async def aenqueue_is_its_equal() -> None:
    assert_type(await plain.aenqueue("a"), Job[str])
    assert_type(await fetch.aenqueue("a"), Job[bytes])
    assert_type(await (await fetch.aenqueue("a")).aresult(), bytes)
    await plain.aenqueue(1)  # type: ignore[arg-type]
    await fetch.aenqueue()  # type: ignore[call-arg]


def bind_keeps_the_type_of_the_result() -> None:
    assert_type(plain.bind("a"), BoundCall[str])
    assert_type(fetch.bind("a").options(id="mine"), BoundCall[bytes])
    assert_type(jobs.enqueue(fetch.bind("a")), Job[bytes])
    plain.bind(1)  # type: ignore[arg-type]


def options_are_typed() -> None:
    chosen.options(priority="high")  # type: ignore[arg-type]
    chosen.options(urgent=True)  # type: ignore[call-arg]
    chosen.bind("a").options(on_exists="ignore")  # type: ignore[arg-type]
    CheckedOptions().replace(delay=b"1h")  # type: ignore[arg-type]
    jobs.task(retries="3")  # type: ignore[call-overload]


def jobs_come_after_jobs_calls_and_ids() -> None:
    job, call = plain.enqueue("a"), fetch.bind("b")
    assert_type(plain.options(after=job).enqueue("c"), Job[str])
    assert_type(plain.bind("c").options(after=[job, call, "id"], on_failed="run"), BoundCall[str])
    chosen.options(limits="api", share="acme", deadline="1h").enqueue("a")
    chosen.options(limits=["api:acme", "gpu"], deadline=datetime.now()).enqueue("a")
    chosen.options(after=7)  # type: ignore[arg-type]
    chosen.options(after=[7])  # type: ignore[list-item]
    chosen.options(after=plain)  # type: ignore[arg-type]
    chosen.options(on_failed="ignore")  # type: ignore[arg-type]
    chosen.options(limits=5)  # type: ignore[arg-type]
    chosen.options(deadline=b"1h")  # type: ignore[arg-type]


def a_running_job_knows_those_it_waited_for() -> None:
    job = current_job()
    assert_type(job.results(int), list[int])
    assert_type(job.dependencies(), list[Job[Any]])
    assert_type(job.wait_for(plain.bind("a"), "id"), list[Job[Any]])
    assert_type(job.wait_for([plain.bind("a"), "id"]), list[Job[Any]])
    assert_type(job.gather(plain.bind("a"), plain.bind("b")), list[Job[str]])
    job.wait_for(plain)  # type: ignore[arg-type]
    job.gather(plain)  # type: ignore[arg-type]
    Advance(plain.bind("a"))
    Advance(plain)  # type: ignore[arg-type]


def steering_is_typed() -> None:
    assert_type(jobs.depend("a", add=["b"], remove=plain.enqueue("c")), str)
    assert_type(jobs.move("a", queue="other"), str)
    assert_type(jobs.cancel_with_dependents("a", "b"), dict[str, str | HoldfastError])
    assert_type(jobs.set_limit("api", 5, per="1s"), bool)
    assert_type(jobs.limits(), list[LimitStatus])
    assert_type(jobs.load("video", target="5m"), list[Load])
    assert_type(jobs.cancel_all(queue="mail", task=plain).counts, dict[str, int])
    jobs.move("a", priority="high")  # type: ignore[arg-type]
    jobs.set_limit("api", "5")  # type: ignore[arg-type]
    jobs.cancel_all(tsak="plain")  # type: ignore[call-arg]
    jobs.depend("a", on_failed="ignore")  # type: ignore[arg-type]


async def so_are_the_async_equals() -> None:
    assert_type(await jobs.adepend("a", add="b"), str)
    assert_type(await jobs.aschedules(), list[Schedule])
    assert_type((await jobs.aretry_all(group="Timeout")).counts, dict[str, int])
    assert_type(await current_job().aresults(str), list[str])
    assert_type(await current_job().await_for("a"), list[Job[Any]])
    await jobs.aset_limit("api", "5")  # type: ignore[arg-type]


@jobs.task(schedule=cron("0 2 * * *", tz="Europe/Berlin", missed="all", backlog=3))
def nightly() -> None: ...


@jobs.task(schedule=every("30s", overlap="skip"), queue="beats")
async def poll() -> int:
    return 1


def schedules_are_typed() -> None:
    assert_type(nightly.enqueue(), Job[None])
    assert_type(poll.enqueue(), Job[int])
    assert_type(jobs.schedule("a", plain.bind("a"), every="1h"), bool)
    assert_type(jobs.get_schedule("a").next(3), list[datetime])
    assert_type(cron("0 2 * * *").next(), list[datetime])
    cron("0 2 * * *", missed="none")  # type: ignore[arg-type]
    every("30s", jiter="5s")  # type: ignore[call-arg]
    jobs.schedule("a", plain, every="1h")  # type: ignore[arg-type]
    jobs.schedule("a", plain.bind("a"), every="1h", overlap="wait")  # type: ignore[arg-type]
    jobs.task(schedule="0 2 * * *")  # type: ignore[call-overload]


def make_task_tells_sync_from_async() -> None:
    sync: Task[[str], int] = make_task(thumbnail, jobs)
    paused: AsyncTask[[str], int] = make_task(crawl, jobs)
    assert_type(sync.enqueue("a"), Job[int])
    assert_type(paused.enqueue("a"), Job[int])
    anything: list[Task[..., Any]] = [sync, paused]
    assert anything


def charge(order: str, cents: int = 0) -> tuple[str, int]:
    return order, cents


async def acharge(order: str) -> bytes:
    return order.encode()


def what_a_running_job_gives_back_has_its_type(rows: Iterator[tuple[int, str]]) -> None:
    job = current_job()
    assert_type(job.checkpoint(int, default=0), int)
    assert_type(job.once("charge", charge, "order", cents=5), tuple[str, int])
    job.once("charge", charge, 7)  # type: ignore[arg-type]
    job.once("charge", charge, "order", dollars=7)  # type: ignore[call-arg]
    for number in job.each(range(3)):
        assert_type(number, int)
    for row in job.each(lambda _: rows, key=lambda row: row[0]):
        assert_type(row, tuple[int, str])
    with open("lines") as file:
        for line in job.each(file):
            assert_type(line, str)
    job.count(rows=1, seconds=0.5)
    job.count(rows="1")  # type: ignore[arg-type]


async def so_it_is_asynchronously(pages: AsyncIterator[bytes]) -> None:
    job = current_job()
    assert_type(await job.aonce("charge", acharge, "order"), bytes)
    await job.aonce("charge", acharge, 7)  # type: ignore[arg-type]
    async for page in job.aeach(pages):
        assert_type(page, bytes)
    async for part in jobs.afollow_logs("id"):
        assert_type(part, LogPart)
    assert_type(await jobs.astack("id"), str)


def what_is_known_of_a_job_has_its_type(job: Job[str]) -> None:
    assert_type(job.logs(), Log)
    assert_type(jobs.logs("id", attempt=2).lines, list[str])
    assert_type(job.usage(), JobUsage | None)
    assert_type(job.progress, Progress | None)
    assert_type(job.estimated_end, datetime | None)
    assert_type(jobs.enqueue(jobs.program(["ls", Path("/")])).result().exit_code, int)
    jobs.program(["ls"], user="root")  # type: ignore[call-arg]


@jobs.middleware
def timed(job: RunningJob) -> Iterator[None]:
    print(job.task)
    yield


@jobs.middleware(tasks=[fetch, "other"])
async def traced(job: RunningJob) -> AsyncIterator[None]:
    print(job.task)
    yield


def a_middleware_stays_what_it_is(job: RunningJob) -> None:
    assert_type(timed(job), Iterator[None])
    jobs.middleware(charge)  # type: ignore[type-var]
