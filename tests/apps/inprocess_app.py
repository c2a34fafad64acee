"""The app of `test_inprocess_job`: the programs of `limits_app`, and jobs that harm the process that they share."""

from __future__ import annotations

import asyncio
import os
import threading

from holdfast import current_job
from tests.apps.limits_app import find, jobs
from tests.apps.worker_app import wait_for, write

__all__ = ["find", "jobs"]


@jobs.task(retries=0)
async def ask_without_await(how: str) -> None:
    job = current_job()
    if how == "once":
        job.once("step", lambda: 1)
    else:
        job.save("here", flush=True)


@jobs.task(runner="thread")
def yield_unasked(name: str) -> None:
    """Yields when its gate is open, without a look at whether it is to end."""
    write(name, "runs", os.getpid())
    wait_for(name)
    current_job().yield_now()


@jobs.task
async def fill_threads(name: str) -> None:
    """Takes all threads of `asyncio.to_thread`, and the next turns too, until its gate is open."""
    calls = [asyncio.create_task(asyncio.to_thread(wait_for, name)) for _ in range(100)]
    await asyncio.sleep(0)  # they have begun
    write(name, "runs", os.getpid())
    await asyncio.wait(calls)


@jobs.task
async def use_directory() -> str:
    (current_job().directory / "file").write_text("here")
    return str(current_job().directory)


@jobs.task
async def process() -> int:
    return os.getpid()


_meeting = threading.Barrier(40)


@jobs.task(runner="thread", retries=0)
def meet() -> int:
    """Returns when as many run as the barrier is for; without that, not at all."""
    return _meeting.wait(timeout=60)


@jobs.task(runner="thread")
def say_last_words(number: int) -> int:
    current_job().save(number, progress=1, message="done")
    current_job().note(f"note {number}")
    return number


@jobs.task
async def say_last_words_async(number: int) -> int:
    current_job().save(number, progress=1, message="done")
    current_job().note(f"note {number}")
    return number
