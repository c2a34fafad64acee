"""The app of `bench.plan`: tasks that sleep as long as they are told, as jobs do that wait for a network."""

from __future__ import annotations

import asyncio
import time

from holdfast import Holdfast, Limit, current_job

LIMIT = 4  # slots

jobs = Holdfast(limits=[Limit("api", LIMIT)])


@jobs.task
def short(seconds: float) -> None:
    time.sleep(seconds)


@jobs.task
def long(seconds: float) -> None:
    time.sleep(seconds)


@jobs.task(limits=["api"])
def limited(seconds: float) -> None:
    time.sleep(seconds)


@jobs.task(retries=3, backoff="1s")
def flaky(seconds: float, failures: int) -> None:
    """Fail the first attempts."""
    time.sleep(seconds)
    if current_job().attempt <= failures:
        raise ConnectionError("try again")


@jobs.task
async def fetch(seconds: float) -> None:
    await asyncio.sleep(seconds)
