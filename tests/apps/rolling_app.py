"""Long jobs that go on from their checkpoint, in each runner, and short ones beside them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from holdfast import Holdfast, current_job
from holdfast.job.option_table import Runner

jobs = Holdfast()

RUNNERS: list[Runner] = ["fork", "process", "thread"]
ITEM = 0.02  # seconds of work


def write(*words: object) -> None:
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(" ".join(map(str, words)) + "\n")


def crawl(name: str, items: int) -> int:
    """Do items, one after the other, and write each down."""
    for item in current_job().each(range(items)):
        time.sleep(ITEM)
        write("item", name, item)
    return items


for runner in RUNNERS:
    jobs.task(name=f"crawl-{runner}", runner=runner)(crawl)


@jobs.task(name="crawl-async")
async def crawl_async(name: str, items: int) -> int:
    for item in current_job().each(range(items)):
        await asyncio.sleep(ITEM)
        write("item", name, item)
    return items


@jobs.task(runner="thread")
def blink(name: str) -> None:
    write("short", name)


@jobs.task
def resume(name: str) -> str:
    """Wait to be told to stop; then go on elsewhere."""
    job = current_job()
    write("resume", name, job.attempt)
    if job.checkpoint(str, "") == "half":
        return "resumed"
    while not job.stopping:
        time.sleep(0.005)
    job.save("half")
    job.yield_now()
    return "not reached"
