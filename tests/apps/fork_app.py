"""The app of the tests of forks: ten steps, of which the seventh ends the attempt as long as its gate is closed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from holdfast import Holdfast, current_job

jobs = Holdfast(defaults={"retries": 0, "crashes": 0})


def _write(*words: object) -> None:
    with Path(os.environ["LEDGER"]).open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def charge(name: str, step: int) -> int:
    _write(name, "charged", step)
    return step


@jobs.task(queue="forks")
def steps(name: str, way: str, gate: str = "fixed") -> str:
    job = current_job()
    first = job.checkpoint(int, default=1)
    for step in range(first, 11):
        _write(name, "begins", step)
        if step == 7 and not (Path(os.environ["GATES"]) / gate).exists():
            if way == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("the disk is full")
        job.once(f"charge-{step % 2}", charge, name, step)
        job.save(step + 1, flush=True)
    return f"from {first}"
