"""Tasks of a graph that write to a ledger: each returns one more than all that it waited for together."""

from __future__ import annotations

import os
import time

from holdfast import Holdfast, current_job
from holdfast.demo.ledger import Ledger

app = Holdfast()
LEDGER = Ledger(os.environ.get("LEDGER", "/nonexistent/ledger"))
LENGTH = 0.02  # seconds


@app.task(crashes=20, lost=20)
def node() -> int:
    LEDGER.start(current_job())
    time.sleep(LENGTH)  # the job's work
    value = 1 + sum(current_job().results(int))
    LEDGER.end(current_job())
    return value


@app.task(crashes=20, lost=20)
async def anode() -> int:
    LEDGER.start(current_job())
    value = 1 + sum(await current_job().aresults(int))
    LEDGER.end(current_job())
    return value
