"""An app whose jobs kill processes of the worker that runs them, each time that they run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import get_args

from holdfast import Holdfast, Task
from holdfast.job.option_table import Runner
from tests.apps.worker_app import wait_async, wait_for, write

jobs = Holdfast()
killers: dict[Runner, Task[[str], None]] = {}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(whom: str) -> None:
    """Kill, once a neighbour runs: so that nobody can tell from the first time which of the two it was."""
    write("killer", "runs", os.getpid())
    wait_for("killer")
    strike(whom)


async def kill_from_loop(whom: str) -> None:
    write("killer", "runs", os.getpid())
    await wait_async("killer")
    strike(whom)


def strike(whom: str) -> None:
    parent = os.getppid()
    match whom:
        case "parent":
            os.kill(parent, signal.SIGKILL)
        case "grandparent":
            os.kill(parent_of(parent), signal.SIGKILL)
        case "parent's group":
            os.killpg(os.getpgid(parent), signal.SIGKILL)
        case "grandparent's group":
            os.killpg(os.getpgid(parent_of(parent)), signal.SIGKILL)
        case "own group":
            os.killpg(0, signal.SIGKILL)
    time.sleep(1000)  # its end comes with that of the other


for each in get_args(Runner):
    named = jobs.task(name=f"kill.{each}", runner=each)
    killers[each] = named(kill_from_loop) if each == "async" else named(kill)


@jobs.task
def innocent(name: str) -> str:
    write(name, "runs", os.getpid())
    wait_for(name)
    return name
