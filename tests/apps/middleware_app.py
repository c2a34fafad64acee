"""The app of the tests of middleware and of carried context: one task per runner, with the same middleware.

LEDGER is that of `worker_app`. Each line begins with the id of the job.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any, get_args

from holdfast import Advance, Fail, Holdfast, Retry, RunningJob, Snooze, Task, current_job
from holdfast.job.option_table import Runner
from tests.apps.worker_app import write

RUNNERS: tuple[Runner, ...] = get_args(Runner)

jobs = Holdfast(defaults={"retries": 1, "backoff": 0, "crashes": 0})
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
language: ContextVar[list[str]] = ContextVar("language")
jobs.carry("tenant", tenant)
jobs.carry("language", language)

_tasks: dict[str, Task[..., Any]] = {}


@jobs.middleware
def outer(job: RunningJob) -> Iterator[None]:
    write(job.id, "outer", "enters", os.getpid(), tenant.get())
    try:
        result = yield
        write(job.id, "outer", "returned", result)
    except BaseException as error:
        write(job.id, "outer", "raised", type(error).__name__)
        raise


@jobs.middleware
def inner(job: RunningJob) -> Iterator[None]:
    write(job.id, "inner", "enters", os.getpid(), tenant.get())
    how = job.arguments["how"]
    if how == "snoozed" and job.attempt == 1:
        raise Snooze(0)
    if how == "broken":
        raise LookupError("the middleware is broken")
    try:
        yield
    except KeyError as error:
        if how == "retried" and job.attempt == 1:
            raise Retry(0) from error
        raise Fail("no such key", group="no-key") from error
    finally:
        write(job.id, "inner", "leaves")


def _do(how: str) -> str:
    job = current_job()
    write(job.id, "task", "runs", os.getpid(), tenant.get())
    if how == "failed" or (how == "retried" and job.attempt == 1):
        raise KeyError(how)
    if how == "exited":
        raise SystemExit(3)
    if how == "filtered":
        return _logged()
    return f"{how}:{tenant.get()}:{','.join(language.get([]))}"


def _logged() -> str:
    """What a filter of a logger sees, as one does that adds the id of a request to each line."""
    seen = []
    logger = logging.getLogger("around")

    def look(_: logging.LogRecord) -> bool:
        seen.append(tenant.get())
        return True

    logger.addFilter(look)
    logger.warning("something")
    return seen[0]


def _declare(runner: Runner) -> Task[..., Any]:
    async def ado(how: str) -> str:
        await asyncio.sleep(0)
        return _do(how)

    def do(how: str) -> str:
        return _do(how)

    function: Callable[..., Any] = ado if runner == "async" else do
    made: Task[..., Any] = jobs.task(name=f"do.{runner}", runner=runner)(function)
    return made


for _runner in RUNNERS:
    _tasks[_runner] = _declare(_runner)


@jobs.task(name="do.async-in-fork", runner="fork")
async def async_in_fork(how: str) -> str:
    await asyncio.sleep(0)
    return _do(how)


_tasks["async-in-fork"] = async_in_fork
KINDS = tuple(_tasks)


def find(kind: str) -> Task[..., Any]:
    return _tasks[kind]


@jobs.middleware(tasks=["do.async"])
async def awaited(job: RunningJob) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    write(job.id, "awaited", "enters")
    yield
    await asyncio.sleep(0)
    write(job.id, "awaited", "leaves")


@jobs.task
def spread(how: str, kind: str) -> str:
    """Enqueues another job."""
    return str(find(kind).enqueue(how).id)


@jobs.task
async def aspread(how: str, kind: str) -> str:
    return str((await find(kind).aenqueue(how)).id)


@jobs.task
def go_on(how: str, kind: str) -> None:
    """Goes on as another call, for somebody else."""
    tenant.set("bob")
    raise Advance(find(kind).bind(how))


@jobs.task
def wait(how: str) -> None:
    write(current_job().id, "task", how)
    while True:
        time.sleep(0.01)
