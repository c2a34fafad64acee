"""Tasks that write into their job's history."""

from __future__ import annotations

import os

from holdfast import Holdfast, Invalid, TooBig, current_job

jobs = Holdfast()


@jobs.task
def say(times: int) -> str:
    return _say(times)


@jobs.task
async def say_async(times: int) -> str:
    return _say(times)


def _say(times: int) -> str:
    job = current_job()
    for number in range(times):
        job.note(f"step {number}")
    return job.id


@jobs.task
def say_and_die() -> None:
    job = current_job()
    job.note(f"attempt {job.attempt}")
    job.save(job.attempt)
    if job.attempt == 1:
        os.abort()


@jobs.task
def say_nonsense() -> list[str]:
    refused = []
    for words in ("", 5, None, b"bytes", "\ud800", "x" * 1001, "é" * 501):
        try:
            current_job().note(words)  # type: ignore[arg-type]
        except (Invalid, TooBig) as error:
            refused.append(type(error).__name__)
    current_job().note("é" * 500)
    return refused
