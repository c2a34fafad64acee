"""The demonstration's tasks. They write to a ledger outside of the store when they start and when they end.

Namespace and home of the server come from the environment, as for any app; the ledger's path too. So that the
killing of so many of their processes does not use up what a job may cost, the tasks allow for more than usual.
"""

from __future__ import annotations

import asyncio
import os
import time

from holdfast import Holdfast, current_job
from holdfast.demo.ledger import Ledger

LEDGER = "HOLDFAST_DEMO_LEDGER"

app = Holdfast()
_ledger = Ledger(os.environ.get(LEDGER, os.devnull))


@app.task(name="demo.transcode", crashes=100, lost=100)
def transcode(frames: int, pause: float) -> int:
    """Work in a process of its own."""
    job = current_job()
    _ledger.start(job)
    for _ in job.each(range(frames)):
        time.sleep(pause)
    _ledger.end(job)
    return frames


@app.task(name="demo.crawl", crashes=100, lost=100)
async def crawl(pages: int, pause: float) -> int:
    """Work in the executor, beside other coroutines."""
    job = current_job()
    _ledger.start(job)
    for _ in job.each(range(pages)):
        await asyncio.sleep(pause)
    _ledger.end(job)
    return pages
