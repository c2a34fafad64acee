"""A task to which everything happens that can happen to a job, an attempt at a time."""

from __future__ import annotations

import os
import signal
import time

from holdfast import Fail, Holdfast, Snooze, current_job
from tests.apps.worker_app import wait_for, write

jobs = Holdfast()


@jobs.task
def hold(name: str) -> None:
    write(name, "runs", os.getpid())
    wait_for(name)


@jobs.task
def find(what: str) -> str:
    write("find", what)
    wait_for(what)
    return what


@jobs.task
def deliver(letter: int) -> str:
    job = current_job()
    write("deliver", "runs", os.getpid())
    match job.attempt:
        case 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case 2:
            wait_for("never")  # its node dies
        case 3:
            while not job.stopping:
                time.sleep(0.01)
            job.save("half way")
            job.yield_now()
        case 4:
            raise Snooze("100ms")
        case 5:
            raise Fail("no such street")
    job.note(f"letter {letter} is in the box")
    return "delivered"
