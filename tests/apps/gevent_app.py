"""An app that gevent has patched before all else, in a worker: as its documentation asks for."""

from __future__ import annotations

import os

if "GEVENT" in os.environ:
    from gevent import monkey

    monkey.patch_all()

import time
from typing import get_args

from holdfast import Holdfast, Task, current_job
from holdfast.job.option_table import Runner
from tests.apps.worker_app import write

jobs = Holdfast()
doubles: dict[Runner, Task[[int], int]] = {}


def double(number: int) -> int:
    job = current_job()
    job.save(number)
    time.sleep(0.01)  # gevent's
    return 0 if job.stopping else 2 * number


async def double_async(number: int) -> int:
    return double(number)


for each in get_args(Runner):
    named = jobs.task(name=f"double.{each}", runner=each)
    doubles[each] = named(double_async) if each == "async" else named(double)


@jobs.task(crashes=0)
def leave(code: int) -> None:
    os._exit(code)


@jobs.task
def hold(name: str) -> None:
    write(name, "runs", os.getpid())
    try:
        time.sleep(1000)
    finally:
        write(name, "cleaned")
