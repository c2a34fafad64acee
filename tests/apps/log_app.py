"""Tasks that print, in every way that there is."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast import Holdfast, current_job
from holdfast.job.option_table import Runner

jobs = Holdfast()
handler = logging.StreamHandler()  # of an app that configures logging when it is imported
handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
log = logging.getLogger("log-app")
log.addHandler(handler)
log.propagate = False
shared_pool = ThreadPoolExecutor(1)

RUNNERS: list[Runner] = ["fork", "spawn", "process", "thread"]


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.005)


def talk(lines: int) -> None:
    for number in range(lines):
        print(f"out {number}")
        print(f"err {number}", file=sys.stderr)
    sys.stdout.write("no end of line")


def raw() -> None:
    sys.stdout.buffer.write(b"\xff\xfe raw \xe2\x82\xac\n")
    sys.stdout.buffer.flush()


def logged() -> None:
    log.warning("logged")
    current_job().log("by hand")


def logged_by_the_root() -> None:
    logging.getLogger("some.module").info("logged")


def in_threads() -> None:
    def say(name: str) -> None:
        print(f"from {name}, {current_job().id}\n", end="")  # at once: in a process, threads mix what is not

    threads = [threading.Thread(target=say, args=(f"thread {number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_a_pool(word: str) -> None:
    shared_pool.submit(print, f"pooled {word}").result()


def children() -> None:
    subprocess.run(["/bin/sh", "-c", "echo from a subprocess; echo and its errors >&2"], check=True)


def silent() -> None:
    """Prints nothing."""


for runner in RUNNERS:
    for function in (talk, raw, logged, logged_by_the_root, in_threads, in_a_pool, children, silent):
        jobs.task(name=f"{function.__name__}-{runner}", runner=runner)(function)


@jobs.task(name="talk-async")
async def atalk(lines: int) -> None:
    talk(lines)


@jobs.task(name="logged-async")
async def alogged() -> None:
    logged()


@jobs.task(name="silent-async")
async def asilent() -> None:
    """Prints nothing."""


@jobs.task
async def in_turns(name: str, turns: int) -> None:
    for number in range(turns):
        print(f"{name} {number}")
        await asyncio.sleep(0)
        await asyncio.to_thread(print, f"{name} {number} from a thread")


def chatter(told: str) -> None:
    """Print without end; say in a file how many lines have been printed."""
    with Path(told).open("w") as file:
        number = 0
        while True:
            print(f"line {number}")
            os.pwrite(file.fileno(), f"{number:09}".encode(), 0)
            number += 1
            if number % 500 == 0:
                time.sleep(0.001)


for runner in RUNNERS:
    jobs.task(name=f"chatter-{runner}", runner=runner, crashes=0, lost=0)(chatter)


@jobs.task
def flood(lines: int, start: str, done: str, gate: str) -> None:
    wait_for(start)
    for number in range(0, lines, 1000):
        sys.stdout.write("".join(f"{each:062}\n" for each in range(number, number + 1000)))
    Path(done).touch()
    wait_for(gate)


@jobs.task
def close_descriptors() -> str:
    print("before")
    os.close(1)
    os.close(2)
    return "closed"


@jobs.task
def fill_the_disk(size: int) -> str:
    """No file of this process may be larger, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    for number in range(1000):
        print(f"line {number}")
        log.warning("line %d", number)
    return "done"


@jobs.task(runner="process")
def leave_a_thread(gate: str, done: str) -> int:
    kept = sys.stdout

    def speak() -> None:
        wait_for(gate)
        print("late")
        print("late", file=kept)
        log.warning("late")
        Path(done).touch()

    threading.Thread(target=speak, daemon=True).start()
    return os.getpid()


@jobs.task(runner="process")
def hear_a_thread(gate: str, done: str) -> int:
    print("first")
    Path(gate).touch()
    wait_for(done)
    print("last")
    return os.getpid()


@jobs.task(backoff=0, retries=2)
def twice() -> None:
    print(f"this is attempt {current_job().attempt}")
    if current_job().attempt < 3:
        raise RuntimeError("again")
