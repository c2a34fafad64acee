"""The app of `bench.many`."""

from __future__ import annotations

import time

from holdfast import Holdfast

jobs = Holdfast()


@jobs.task
async def clock() -> float:
    return time.time()
