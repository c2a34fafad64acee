"""Tasks of the measures that stand alone; the server's URL comes from the environment."""

from __future__ import annotations

import asyncio
import os

from holdfast import Holdfast

app = Holdfast(os.environ.get("BENCH_URL", "redis://127.0.0.1:6379"))


@app.task
async def nothing(number: int) -> int:
    return number


@app.task
async def wait_long() -> None:
    await asyncio.sleep(3600)
