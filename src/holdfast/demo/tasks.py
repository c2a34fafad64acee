"""The tasks of the demonstration. Each attempt writes to a ledger outside of the store when it starts and ends.

The namespace, the home of the server and the path of the ledger come from the environment. The tasks allow many crashes
and lost leases, because the demonstration kills many of their processes.
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
    """Run in its own process."""
    job = current_job()
    _ledger.start(job)
    for _ in job.each(range(frames)):
        time.sleep(pause)
    _ledger.end(job)
    return frames


@app.task(name="demo.crawl", crashes=100, lost=100)
async def crawl(pages: int, pause: float) -> int:
    """Run in the executor, beside other coroutines."""
    job = current_job()
    _ledger.start(job)
    for _ in job.each(range(pages)):
        await asyncio.sleep(pause)
    _ledger.end(job)
    return pages
