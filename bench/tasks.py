"""The same task that does nothing, for each queue; the server's URL comes from the environment."""

from __future__ import annotations

import asyncio
import os
import time

from huey import RedisHuey

from holdfast import Holdfast

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379")

app = Holdfast(URL)
huey = RedisHuey("bench", url=URL)


@app.task
async def nothing(number: int) -> int:
    return number


@app.task(queue="forked")
def nothing_forked(number: int) -> int:
    return number


@app.task
async def wait_long() -> None:
    await asyncio.sleep(3600)


@app.task(queue="forked")
def begin_and_stay() -> None:
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write("begun\n")
    time.sleep(3600)


@huey.task()  # type: ignore[untyped-decorator]
def nothing_huey(number: int) -> int:
    return number
