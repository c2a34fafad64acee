"""The app of the failovers under load: its jobs write down when they ran."""

from __future__ import annotations

import os
import time

from holdfast import Holdfast

jobs = Holdfast()
_ledger = os.open(os.environ.get("LEDGER", os.devnull), os.O_WRONLY | os.O_APPEND)


@jobs.task
async def mark(number: int) -> None:
    os.write(_ledger, f"{number} {time.monotonic()}\n".encode())
