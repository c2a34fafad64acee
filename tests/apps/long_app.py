"""Tasks that take long, and look after themselves."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from holdfast import Holdfast, current_job
from holdfast.job.option_table import Runner

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


def _wait_for(path: str) -> str:
    import time

    while not Path(path).exists():
        time.sleep(0.01)
    return "found"


@jobs.task
def wait_for_file(path: str) -> str:
    return _wait_for(path)


def wait_inside(path: str) -> str:
    """What a stack is to show."""
    return _wait_for(path)


for runner in RUNNERS:
    jobs.task(name=f"wait-{runner}", runner=runner)(wait_inside)


async def look_for(path: str) -> str:
    import asyncio

    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "found"


@jobs.task(name="wait-async")
async def await_file(path: str) -> str:
    return await look_for(path)


@jobs.task
async def block_the_loop(path: str) -> str:
    return _wait_for(path)


@jobs.task
def hold_the_interpreter() -> None:
    """Nothing else of Python runs in this process: one step takes for ever."""
    import re

    current_job().save("begins", flush=True)
    re.match(r"(a+)+$", "a" * 60 + "b")


@jobs.task
def wait_for_program(path: str) -> int:
    import subprocess

    return subprocess.run(["/bin/sh", "-c", f"while [ ! -e {path} ]; do sleep 0.05; done"], check=False).returncode


class Copy:
    """Copies lines of ten bytes; an early attempt is killed some time after something of it was saved.

    It says in a file where each attempt began, and what was in the store when it was killed, in lines.
    """

    def __init__(self, target: str) -> None:
        self._out = Path(target).open("a", buffering=1)  # noqa: SIM115 - its process dies with it
        self._kept = Path(f"{target}.kept")
        self._first: int | None = None

    def take(self, line: str) -> None:
        if self._first is None:
            self._first = int(line)
        self._out.write(line)

    def die_if_saved(self, attempt: int, saved: int, line: str) -> None:
        if self._first is None or saved <= self._first or int(line) < saved + 10:
            return
        with self._kept.open("a") as file:
            file.write(f"{self._first} {saved}\n")
        if attempt < 4:
            os.kill(os.getpid(), signal.SIGKILL)


@jobs.task(crashes=5)
def copy_lines(source: str, target: str) -> None:
    job, copy = current_job(), Copy(target)
    with Path(source).open() as file:
        for line in job.each(file):
            copy.take(line)
            if job.attempt < 4:
                saved = msgspec.json.decode(jobs.get(job.id).checkpoint_bytes or b'{"done":0}')["done"]
                copy.die_if_saved(job.attempt, saved, line)


@jobs.task(crashes=5)
async def acopy_rows(source: str, target: str) -> None:
    job, copy = current_job(), Copy(target)
    rows = Path(source).read_text().splitlines(keepends=True)

    async def after(key: int | None) -> AsyncIterator[str]:
        for row in rows[0 if key is None else key + 1 :]:
            yield row

    async for row in job.aeach(after, key=int, total=len(rows)):
        copy.take(row)
        if job.attempt < 4:
            saved = msgspec.json.decode((await jobs.aget(job.id)).checkpoint_bytes or b'{"done":0}')["done"]
            copy.die_if_saved(job.attempt, saved, row)


@jobs.task
def use(mib: int, seconds: float) -> float:
    """Hold memory and keep a processor busy, for some seconds of its own; then wait for a moment that is looked at."""
    import time

    held = bytearray(os.urandom(1 << 20)) * mib
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        sum(range(10_000))
    assert held
    return time.process_time()


jobs.task(name="use-process", runner="process")(use.function)
