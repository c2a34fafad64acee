"""The app of the tests of log lines: tasks that succeed, that raise what they are given, and that wait."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from holdfast import Holdfast, current_job

jobs = Holdfast()


@jobs.task
async def quick(number: int) -> int:
    return number


@jobs.task
def shout(words: str) -> None:
    raise ValueError(words)


@jobs.task
async def shout_async(words: str) -> None:
    raise ValueError(words)


def _begin(name: str) -> None:
    (Path(os.environ["GATES"]) / f"{name}.begun").touch()


@jobs.task
def wait_for(gate: str) -> None:
    _begin("wait_for")
    while not (Path(os.environ["GATES"]) / gate).exists():
        time.sleep(0.01)


@jobs.task
async def wait_for_async(gate: str) -> None:
    _begin("wait_for_async")
    while not (Path(os.environ["GATES"]) / gate).exists():
        await asyncio.sleep(0.01)


@jobs.task
def crash_first(gate: str) -> None:
    if current_job().attempt == 1:
        os._exit(3)
    while not (Path(os.environ["GATES"]) / gate).exists():
        time.sleep(0.01)
    raise ValueError(gate)
