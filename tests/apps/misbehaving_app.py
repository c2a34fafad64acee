"""Misbehaving jobs, each under the runners that give it a process; and a healthy neighbour."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import Holdfast, Task, current_job
from holdfast.job.option_table import Runner
from tests.apps.worker_app import wait_for, write

APART: tuple[Runner, ...] = ("fork", "spawn", "process")
MIB = 1 << 20

jobs = Holdfast()
_tasks: dict[tuple[str, Runner], Task[..., Any]] = {}


def find(name: str, runner: Runner) -> Task[..., Any]:
    return _tasks[name, runner]


def animal(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for runner in APART:
            name = function.__name__
            _tasks[name, runner] = jobs.task(name=f"{name}.{runner}", runner=runner, **options)(function)
        return function

    return declare


@animal()
def neighbour(name: str) -> str:
    write(name, "runs", os.getpid())
    wait_for(name)
    return name


@animal(crashes=1)
def leave(_: str) -> None:
    os._exit(3)


@animal(crashes=1)
def segfault(_: str) -> None:
    ctypes.string_at(0)


@animal(memory="160MiB", retries=0)
def eat_memory(_: str) -> None:
    eaten = []
    while True:
        eaten.append(bytearray(os.urandom(1024) * (8 * 1024)))
        time.sleep(0.01)  # or the machine of the tests is eaten before the first look


@animal(timeout="1s", retries=0)
def loop(_: str) -> None:
    while True:
        pass


@animal()
def fork_ten(name: str) -> str:
    for _ in range(10):
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
    for child in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
        write(name, "started", child)
    return "left ten"


@animal(timeout="1s", retries=0)
def ignore_term(_: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


@animal()
def escape(name: str) -> str:
    """Leaves a process behind in a session of its own, whose parent is gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            write(name, "started", os.getpid())
            time.sleep(1000)
        os._exit(0)
    os.wait()
    while f"{name} started" not in Path(os.environ["LEDGER"]).read_text():
        time.sleep(0.01)
    return "escaped"


@animal(crashes=1)
def close_all(_: str) -> None:
    os.closerange(0, 1000)


@animal()
def flood(_: str) -> str:
    for part in range(8 * int(os.environ.get("FLOOD_MIB", "64"))):
        sys.stdout.write(f"{part:127}\n" * 1024)
    return "flooded"


@animal(crashes=0)
def fill_directory(name: str) -> None:
    directory = current_job().directory
    write(name, "fills", directory)
    for number in range(8):
        (directory / str(number)).write_bytes(bytes(8 * MIB))
    os.kill(os.getpid(), signal.SIGKILL)
