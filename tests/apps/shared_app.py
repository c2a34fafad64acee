"""Serves a queue of redis-work-queue."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast import Holdfast, current_job

app = Holdfast()
thumbs = app.items("thumbs", protocol="redis-work-queue", prefix=os.environ.get("PREFIX", "p"))


@thumbs.task(retries=1, backoff="100ms")
def make(data: bytes) -> int:
    with open(os.environ["LEDGER"], "ab", buffering=0) as ledger:
        ledger.write(b"completing " + data + b" job\n")
    if data == b"wait":
        while not Path(os.environ["GATES"], "go").exists():
            time.sleep(0.01)
            current_job().report(0.5)
    if data == b"bad":
        raise ValueError("bad")
    return len(data)
