"""The app of the tests of retry policies: one task that raises, under every runner."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, get_args

from holdfast import Advance, Fail, Holdfast, Retries, Retry, RunningJob, Task, current_job
from holdfast.job.option_table import Runner

RUNNERS: tuple[Runner, ...] = get_args(Runner)


class Own(ValueError):
    """An exception of the app, which is a ValueError."""


class Misnamed(Exception):
    __module__ = "caf\udce9"  # that UTF-8 cannot encode


WAYS: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("bad"),
    "own": lambda: Own("bad"),
    "misnamed": Misnamed,
    "key": lambda: KeyError("name"),
    "reset": lambda: ConnectionResetError("hung up"),
    "group": lambda: ExceptionGroup("both", [ConnectionError("a"), ExceptionGroup("one", [Own("b")])]),
    "resets": lambda: ExceptionGroup("both", [ConnectionError("a"), ConnectionResetError("b")]),
    "cancelled": asyncio.CancelledError,
    "retry": lambda: Retry("1h"),
    "fail": lambda: Fail("no"),
}

jobs = Holdfast(defaults={"retries": 2, "backoff": "1h"})


@jobs.middleware
def refuse(job: RunningJob) -> Iterator[None]:
    if job.arguments.get("way") == "middleware":
        raise Own("refused by the middleware")
    yield


def give_up(way: str) -> int:
    if way in WAYS:
        raise WAYS[way]()
    if way == "exit":
        os._exit(3)
    if way == "hang":
        time.sleep(1000)
    return current_job().attempt


async def agive_up(way: str) -> int:
    return give_up(way)


_tasks: dict[Runner, Task[..., Any]] = {
    runner: jobs.task(name=f"give-up-{runner}", runner=runner)(agive_up if runner == "async" else give_up)
    for runner in RUNNERS
}


def find(runner: Runner) -> Task[..., Any]:
    return _tasks[runner]


@jobs.task(retries=Retries(3, waits=["10ms", "1h"], cap="30m"))
def fail_twice() -> None:
    raise ConnectionError("no answer")


@jobs.task
def begin(way: str) -> None:
    raise Advance(find("fork").options(retries=Retries(not_on=ValueError)).bind(way))
