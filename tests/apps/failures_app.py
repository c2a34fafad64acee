"""The app of the tests of failures: one function that fails, called by a task of each runner, and programs."""

from __future__ import annotations

import os
import signal
from typing import Any, get_args

from holdfast import Holdfast, Task
from holdfast.job.option_table import Runner

RUNNERS: tuple[Runner, ...] = get_args(Runner)

jobs = Holdfast(revision=42)
tasks: dict[str, Task[..., Any]] = {}


class Unreachable(Exception):
    pass


def connect(address: str) -> None:
    raise Unreachable(address)


def attempt(address: str) -> None:
    try:
        connect(address)
    except Unreachable as error:
        raise ValueError("no mail today") from error


async def attempt_async(address: str) -> None:
    attempt(address)


for runner in RUNNERS:
    function: Any = attempt_async if runner == "async" else attempt
    tasks[runner] = jobs.task(name=f"attempt-{runner}", runner=runner, retries=1, backoff="1ms")(function)


@jobs.task(crashes=0)
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
