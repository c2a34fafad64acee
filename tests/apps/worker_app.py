"""The app of the worker's tests: tasks that do to a worker what jobs do.

What happens is written to the file LEDGER, a line of words at a time. A task that waits for a gate goes on when the
test makes the file of that name in the directory GATES.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from holdfast import Fail, Holdfast, Retry, Snooze, current_job

jobs = Holdfast()
colour: ContextVar[str] = ContextVar("colour", default="none")


def write(*words: object) -> None:
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(" ".join(map(str, words)) + "\n")


def is_open(gate: str) -> bool:
    return (Path(os.environ["GATES"]) / gate).exists()


def wait_for(gate: str) -> None:
    while not is_open(gate):
        time.sleep(0.01)


async def wait_async(gate: str) -> None:
    while not is_open(gate):
        await asyncio.sleep(0.01)


# Plain ones


@jobs.task
def add(x: int, y: int) -> int:
    return x + y


@jobs.task
async def add_async(x: int, y: int) -> int:
    await asyncio.sleep(0)
    return x + y


@jobs.task
def say(word: str) -> None:
    write(word)


@jobs.task
def hold(name: str) -> str:
    write(name, "runs", os.getpid())
    wait_for(name)
    write(name, "ends")
    return name


@jobs.task
async def hold_async(name: str) -> str:
    write(name, "runs", os.getpid())
    await wait_async(name)
    write(name, "ends")
    return name


@jobs.task
def enqueue_more(left: int) -> None:
    """Enqueues itself, so many times."""
    write("more", left)
    if left:
        enqueue_more.enqueue(left - 1)


# Being told to stop


@jobs.task
def clean_up(name: str) -> None:
    try:
        hold(name)
    finally:
        write(name, "cleaned")


@jobs.task
async def clean_up_async(name: str) -> None:
    try:
        await hold_async(name)
    finally:
        write(name, "cleaned")


def start_child(name: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(["sleep", "1000"])
    write(name, "started", child.pid)
    return child


@jobs.task
def ignore(name: str) -> None:
    """Does not stop for SIGTERM, nor does its child."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start_child(name)
    hold(name)


@jobs.task
def return_when_told(name: str) -> str:
    """Says that it is done when it is told to stop."""
    try:
        hold(name)
    except SystemExit:
        return "done"
    return "not told"


@jobs.task
async def ignore_async(name: str) -> None:
    write(name, "runs", os.getpid())
    while not is_open(name):
        with suppress(asyncio.CancelledError):
            await wait_async(name)


@jobs.task
async def block(name: str) -> None:
    """Holds the event loop, as a coroutine should not."""
    hold(name)


@jobs.task
def step(name: str, items: int) -> list[int]:
    """Do so many items, each when its gate is open, resuming after those that are done."""
    done = []
    for item in current_job().each(range(items)):
        write(name, "item", item)
        wait_for(f"{name}-{item}")
        done.append(item)
    return done


@jobs.task
async def step_async(name: str) -> str:
    job = current_job()
    write(name, "attempt", job.attempt)
    if job.checkpoint(str, default="") == "half":
        return "resumed"
    while not job.stopping:
        await asyncio.sleep(0.01)
    job.save("half", progress=0.5, message="half of it")
    job.yield_now()
    return "not reached"


# Ways to end


@jobs.task
def end_by(way: str) -> None:
    ways: dict[str, Any] = {
        "raise": lambda: 1 / 0,
        "os._exit": lambda: os._exit(3),
        "sys.exit": lambda: sys.exit(4),
        "sys.exit-words": lambda: sys.exit("tired"),
        "signal": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    }
    ways[way]()


@jobs.task
async def exit_async() -> None:
    sys.exit(5)


@jobs.task
async def kill_executor(name: str) -> None:
    """Kills the process it runs in, when its neighbours run too."""
    write(name, "runs", os.getpid())
    await wait_async(name)
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.task
async def leave_executor(name: str) -> None:
    """Ends the process it runs in as if all were well."""
    write(name, "runs", os.getpid())
    os._exit(0)


@jobs.task
def pass_on(name: str, queue: str) -> None:
    """Enqueues something in another queue, when it may."""
    hold(name)
    say.options(queue=queue).enqueue("passed")


@jobs.task
def lead(name: str) -> None:
    """Has a child in its own process group, and one that has left it."""
    start_child(name)
    away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    write(name, "started", away.pid)
    hold(name)


@jobs.task
def leave_child(name: str, own_session: bool) -> str:
    """Forks a child that outlives it, with all descriptors of the job."""
    pid = os.fork()
    if pid == 0:
        if own_session:
            os.setsid()
        time.sleep(1000)
        os._exit(0)
    while own_session and os.getsid(pid) != pid:
        time.sleep(0.01)
    write(name, "started", pid)
    return "left"


@jobs.task
def close_all() -> str:
    os.closerange(3, 256)
    return "nobody hears this"


@jobs.task
def big(size: int) -> str:
    return "x" * size


@jobs.task
async def big_async(size: int) -> str:
    return "x" * size


@jobs.task
def try_until(attempt: int, how: str) -> int:
    """Raises until the attempt of this number."""
    here = current_job().attempt
    if here >= attempt:
        return here
    raise {"retry": Retry(0, "again"), "snooze": Snooze(0), "fail": Fail("for good", group="hopeless")}[how]


@jobs.task
def save_and_hold(name: str) -> str:
    job = current_job()
    before = job.checkpoint(str, default="nothing")
    job.save(f"saved by {job.attempt}", progress=0.25, message="a quarter")
    write(name, "found", before)
    hold(name)
    return before


@jobs.task
def save_often(times: int) -> int:
    job = current_job()
    for number in range(times):
        job.save(number, progress=number / times)
    return times


@jobs.task
def use_directory(name: str) -> str:
    directory = current_job().directory
    (directory / "file").write_text("here")
    hold(name)
    return str(directory)


@jobs.task
async def paint(name: str, value: str) -> str:
    """Returns the colour it found, after setting its own."""
    found = colour.get()
    colour.set(value)
    await wait_async(name)
    assert colour.get() == value
    assert current_job().task == paint.name
    return found
