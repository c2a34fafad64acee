"""Measure what idle executors cost the server: `python -m bench.idle 1 1000`.

Each number has a server of its own. An executor is its real calls and no process: it claims, finds nothing, and blocks
on its key, as `worker/claiming.py` does; when it is woken it claims, finishes, and waits again. First the server's time
is taken while nothing happens. Then jobs come one by one, each when the last is done, and the server's time for a job
is taken: enqueue, wake, claim and finish.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from typing import Any

from bench.server import Server, between, serving
from holdfast import Holdfast
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish
from holdfast.store.store import AsyncStore

SECONDS = float(os.environ.get("BENCH_SECONDS", "6"))  # of idling that are looked at
JOBS = 200
BLOCK = 5.0  # seconds, as executors block


class Executor:
    """Claims and waits, as a real one does when it is idle."""

    def __init__(self, store: AsyncStore, name: str, done: asyncio.Queue[str]) -> None:
        self._store, self._name, self._done = store, name, done
        self._counter = 0

    async def run(self) -> None:
        items: list[Finish] = []
        is_idle = False
        while True:
            self._counter += 1
            request = commands.claim_args(["default"], counter=self._counter, limit=100, pid=1, idle=is_idle)
            finished = await self._store.run(commands.finish(self._name, items, request=request))
            for item in items:
                self._done.put_nowait(item.id)
            jobs = finished.claim.jobs
            items = [Finish(job.id, job.attempt, Succeed(b"1"), pid=1, started=0, created=job.created) for job in jobs]
            is_idle = not jobs
            if is_idle:
                wait = min(BLOCK, finished.claim.wait / 1000) * random.uniform(1, 1.1)
                await self._store.execute("BLPOP", finished.claim.wake_key, wait, blocks=wait)


async def measure(server: Server, number: int) -> tuple[float, float]:
    """Milliseconds of server time in each idle second, and microseconds for each job."""
    app = Holdfast(server.url)
    task = app.task(name="nothing")(_nothing)
    task.enqueue(0)
    done: asyncio.Queue[str] = asyncio.Queue()
    executors = [Executor(app.async_store, f"node/w{n:04d}.1", done) for n in range(number)]
    running = [asyncio.create_task(executor.run()) for executor in executors]
    try:
        await asyncio.wait_for(done.get(), 60)
        await asyncio.sleep(BLOCK * 1.1 + 1)  # until all are idle, and have come back at different times
        before, began = server.look(), time.monotonic()
        await asyncio.sleep(SECONDS)
        idle = between(before, server.look()).cpu * 1000 / (time.monotonic() - began)
        before, began = server.look(), time.monotonic()
        for job in range(JOBS):
            await task.aenqueue(job)
            await asyncio.wait_for(done.get(), 60)
        spent = between(before, server.look())
        seconds = time.monotonic() - began
        return idle, (spent.cpu - idle / 1000 * seconds) * 1e6 / JOBS
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await app.async_store.close()
        app.close()


def _nothing(number: int) -> int:
    return number


def main(numbers: list[int]) -> dict[str, Any]:
    figures = {}
    for number in numbers:
        with serving() as server:
            idle, job = asyncio.run(measure(server, number))
            figures[f"idle, {number:,}"], figures[f"a job, {number:,} idle"] = idle, job
    return {"figures": figures, "details": {"seconds": SECONDS, "jobs": JOBS}}


if __name__ == "__main__":
    print(json.dumps(main([int(number) for number in sys.argv[1:]])))
