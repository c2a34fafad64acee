"""Tasks that write to a ledger when they start and when they end, for tests that kill."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from pathlib import Path

from holdfast import Holdfast, current_job
from holdfast.demo.ledger import Ledger

app = Holdfast()
LEDGER = Ledger(os.environ.get("LEDGER", "/nonexistent/ledger"))
STEP = 0.01  # seconds


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _start() -> None:
    """Note the start; and whether the process of an earlier attempt of the same job lives still, which may not be."""
    job = current_job()
    LEDGER.start(job)
    if job.attempt > 1:
        earlier = [entry.pid for entry in LEDGER.read() if entry.job == job.id and entry.attempt < job.attempt]
        if any(_is_alive(pid) for pid in earlier):
            LEDGER.append("overlap", job)


@app.task(crashes=20)
def work(steps: int) -> int:
    _start()
    for _ in current_job().each(range(steps)):
        time.sleep(STEP)  # the job's work
    LEDGER.end(current_job())
    return current_job().attempt


@app.task(crashes=20)
async def awork(steps: int) -> int:
    LEDGER.start(current_job())
    for _ in current_job().each(range(steps)):
        await asyncio.sleep(STEP)
    LEDGER.end(current_job())
    return current_job().attempt


def _hold_the_interpreter(seconds: float) -> None:
    """Sleep without letting any other thread of this process run."""
    LEDGER.start(current_job())
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    LEDGER.end(current_job())


@app.task
def hold(seconds: float) -> None:
    _hold_the_interpreter(seconds)


@app.task
async def ahold(seconds: float) -> None:
    _hold_the_interpreter(seconds)


@app.task
def be_late(act: str, gate: str) -> str:
    """The first attempt waits for a gate, and then saves, returns or hands over: too late. The second returns."""
    job = current_job()
    LEDGER.start(job)
    if job.attempt > 1:
        return "second"
    while not os.path.exists(gate):
        time.sleep(STEP)  # between looks at a condition
    if act == "release":
        job.yield_now()
    while act == "save":
        job.save("stale")
        time.sleep(STEP)  # between saves
    return "first"
