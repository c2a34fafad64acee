"""The app of the tests of limits of a run: programs under every runner, as in `runner_app`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast import Advance, current_job
from tests.apps.runner_app import find, jobs, pause, program
from tests.apps.worker_app import is_open, write

__all__ = ["find", "jobs"]

MIB = 1 << 20


@program
async def yield_when_told(name: str) -> tuple[int, str]:
    """Yields when it is told to stop, saving why. Returns its attempt, and what it found saved."""
    job = current_job()
    if before := job.checkpoint(str, ""):
        return job.attempt, before
    write(name, "runs", os.getpid())
    while not job.stopping:
        await pause()
    job.save(job.stop_reason)
    job.yield_now()
    raise AssertionError("yield_now returns")


async def say_nothing(name: str) -> None:
    while not is_open(name):
        await pause()


@program
async def be_silent(name: str) -> None:
    write(name, "runs", os.getpid())
    await say_nothing(name)


@program
async def hold_at_first(name: str, attempts: int) -> int:
    """Does not end in its first attempts. Returns its attempt."""
    job = current_job()
    while job.attempt <= attempts and not is_open(name):
        await pause()
    return job.attempt


@program
async def go_on_silently(name: str) -> None:
    """Goes on as a call that has limits of its own."""
    raise Advance(find("be_silent", "fork").options(stalled="300ms", retries=0).bind(name))


@program
async def add_up(name: str) -> int:
    """Runs no other thread of its interpreter, and hears no signal."""
    write(name, "runs", os.getpid())
    return sum(range(10**11))


@program
async def talk(how: str, seconds: float) -> None:
    """Says something again and again, in one way."""
    job = current_job()
    ways = {
        "save": lambda: job.save("x"),
        "report": lambda: job.report(0.5),
        "note": lambda: job.note("still here"),
        "print": lambda: print("still here"),
    }
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ways[how]()
        await pause()


@program
async def grow(name: str, where: str) -> None:
    """Takes more and more memory; here, or in a process that has left this one's group and session."""
    write(name, "runs", os.getpid())
    if where == "away":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                write(name, "started", os.getpid())
                _take_memory(0.02)
            os._exit(0)
        while not is_open(name):
            await pause()
    _take_memory(0.02)


def _take_memory(seconds: float) -> None:
    taken = []
    while True:
        taken.append(bytearray(os.urandom(1024) * (8 * 1024)))  # 8 MiB that are there
        time.sleep(seconds)


@program
async def leave_dead(count: int) -> int:
    """Leaves so many dead children behind, that it never asks for. Returns its process."""
    for _ in range(count):
        if os.fork() == 0:
            os._exit(0)
    return os.getpid()


@program
async def be_alone(name: str) -> None:
    """Says whether an earlier attempt of it is alive."""
    pids = [
        int(line.split()[2]) for line in Path(os.environ["LEDGER"]).read_text().splitlines() if f"{name} runs" in line
    ]
    for pid in pids:
        write(name, "found", "alive" if is_alive(pid) else "dead")
    write(name, "runs", os.getpid())
    while not is_open(name):
        await pause()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
