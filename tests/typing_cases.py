"""What a type checker must say about tasks. It is not run: `test_typing` gives it to mypy.

Each `type: ignore` stands on a line that must be an error; one that is not needed is an error itself.
"""

from __future__ import annotations

from typing import Any, assert_type

from holdfast.client import Holdfast
from holdfast.job import Job
from holdfast.task import AsyncTask, BoundCall, Options, Task, make_task

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
    Options().but(delay=b"1h")  # type: ignore[arg-type]
    jobs.task(retries="3")  # type: ignore[call-overload]


def make_task_tells_sync_from_async() -> None:
    sync: Task[[str], int] = make_task(thumbnail, jobs)
    paused: AsyncTask[[str], int] = make_task(crawl, jobs)
    assert_type(sync.enqueue("a"), Job[int])
    assert_type(paused.enqueue("a"), Job[int])
    anything: list[Task[..., Any]] = [sync, paused]
    assert anything
