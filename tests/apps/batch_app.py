"""The app of the tests of batches: parts that succeed, fail or come back, and what runs at the end."""

from __future__ import annotations

import os
import time

from holdfast import Fail, Holdfast, current_job
from tests.apps.worker_app import wait_for, write

jobs = Holdfast()


@jobs.task(backoff=0, retries=2)
async def part(number: int) -> int:
    """Fail for good (13 of 100), or once (10 of 100)."""
    if number % 100 < 13:
        raise Fail(f"part {number} is bad")
    if number % 100 >= 90 and current_job().attempt == 1:
        raise ValueError(number)
    return number


@jobs.task
def slow_part(number: int) -> int:
    """Say so at the start and at the end; kills may repeat it."""
    write("part", "begins", number)
    time.sleep(0.01)
    write("part", "ends", number)
    return number


@jobs.task
def split(batch: str, depth: int) -> None:
    """Add two members that do the same, to a batch that may be closed."""
    assert current_job().batch == batch
    if depth:
        jobs.batch(batch).enqueue_many(split.bind(batch, depth - 1) for _ in "ab")


@jobs.task
def gate(name: str) -> None:
    wait_for(name)


@jobs.task
def report(batch: str, what: str = "report") -> str:
    """Write down how the batch ended, as it is seen from inside."""
    assert current_job().batch == batch
    status = jobs.batch(batch).status()
    write(what, batch, status.state, status.total, status.pending, status.succeeded, status.failed, status.cancelled)
    return status.state


def produce_and_die(name: str) -> None:
    """Be killed in the block."""
    with jobs.batch(name, then=report.bind(name)) as batch:
        batch.enqueue_many([part.bind(number) for number in range(50, 60)])
        os.kill(os.getpid(), 9)
