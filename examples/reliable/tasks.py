"""A task, and two workers for it: `holdfast work tasks`, and `WORKER=bad holdfast work tasks`, which keeps failing."""

import os
import signal

from holdfast import Holdfast, current_job

jobs = Holdfast()
WORKER = os.environ.get("WORKER", "good")


@jobs.task(backoff="100ms")
def label(text: str) -> str:
    mood = current_job().attempt % 3 if WORKER == "bad" else 0
    if mood == 1:
        os.kill(os.getpid(), signal.SIGKILL)  # abruptly, as when a machine dies
    if mood == 2:
        raise RuntimeError("the bad worker fails again")
    return f"{WORKER} worker: {text}"
