"""Tasks whose limits are declared in code; another number in each release."""

from __future__ import annotations

import os

from holdfast import Holdfast, Limit
from tests.apps.worker_app import wait_for, write

tenant = Limit("tenant", 1)
gpu = Limit("gpu", int(os.environ.get("SLOTS", "1")))
app = Holdfast(limits=[tenant])


@app.task(limits=[gpu])
def render(name: str) -> str:
    write(name, "runs", os.getpid())
    wait_for(name)
    return name
