"""Tasks that take long, and look after themselves."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from holdfast import Holdfast, current_job
from holdfast.task import Runner

jobs = Holdfast()

RUNNERS: list[Runner] = ["fork", "spawn", "process", "thread"]


def charge(path: str) -> tuple[int, str]:
    """What must not be done twice; the file tells how often it was."""
    with Path(path).open("a") as file:
        file.write("charged\n")
    return os.getpid(), "receipt"


async def acharge(path: str) -> tuple[int, str]:
    return charge(path)


def pay(path: str) -> tuple[int, str]:
    job = current_job()
    receipt = job.once("charge-card", charge, path)
    job.save("paid", flush=True)
    if job.attempt == 1:
        raise RuntimeError("after the card was charged")
    assert job.checkpoint(str, "") == "paid"
    return receipt


for runner in RUNNERS:
    jobs.task(name=f"pay-{runner}", runner=runner, backoff=0)(pay)


@jobs.task(name="pay-async", backoff=0)
async def apay(path: str) -> tuple[int, str]:
    job = current_job()
    receipt = await job.aonce("charge-card", acharge, path)
    await job.asave("paid")
    if job.attempt == 1:
        raise RuntimeError("after the card was charged")
    return receipt


@jobs.task(backoff=0)
def pay_and_die(path: str) -> str:
    job = current_job()
    job.once("charge-card", charge, path)
    job.save(job.attempt, flush=True)
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"saved by {job.checkpoint(int, 0)}"


def talk(lines: int) -> str:
    import subprocess
    import sys

    for number in range(lines):
        print(f"out {number}")
        print(f"err {number}", file=sys.stderr)
    subprocess.run(["/bin/echo", "from a subprocess"], check=True)
    sys.stdout.write("no end of line")
    return "talked"


for runner in RUNNERS:
    jobs.task(name=f"talk-{runner}", runner=runner)(talk)


@jobs.task(name="talk-async")
async def atalk(lines: int) -> str:
    import asyncio

    for number in range(lines):
        print(f"out {number}")
        await asyncio.sleep(0)
    return "talked"


@jobs.task(crashes=0)
def talk_and_die(lines: int) -> None:
    for number in range(lines):
        print(f"line {number}")
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.task
def wait_for_file(path: str) -> str:
    import time

    while not Path(path).exists():
        time.sleep(0.01)
    return "found"
