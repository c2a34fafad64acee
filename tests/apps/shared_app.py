"""Serves a queue of redis-work-queue."""

from __future__ import annotations

import os
import time

from holdfast import Holdfast

app = Holdfast()
thumbs = app.items("thumbs", protocol="redis-work-queue", prefix="p")


@thumbs.task(retries=5, backoff="100ms")
def make(data: bytes) -> int:
    with open(os.environ["LEDGER"], "ab", buffering=0) as ledger:
        ledger.write(b"completing " + data + b" job\n")
    if data.endswith(b"7"):
        time.sleep(0.05)
    if data == b"bad":
        raise ValueError("bad")
    return len(data)
