"""The end of an attempt: by itself, or forced; the same for every runner.

An attempt that is interrupted is first asked, then forced. Of what it says afterwards only a success is heard: it may
have been faster.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from holdfast.calling import failed
from holdfast.outcome import Cancelled, Outcome, Release, Succeed
from holdfast.worker.attempt import Attempt

ASKED_TO_FORCED = 1.0  # seconds


class Runner(Protocol):
    async def run(self, attempt: Attempt) -> Outcome: ...


async def ends_by_itself(attempt: Attempt, end: asyncio.Future[Any]) -> bool:
    """Wait for an attempt to end, to be interrupted, or to reach its time limit. Returns whether it ended."""
    stop = asyncio.create_task(attempt.interrupted.wait())
    either: list[asyncio.Future[Any]] = [end, stop]
    try:
        await asyncio.wait(either, timeout=attempt.job.timeout / 1000 or None, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    return end.done()


def forced_outcome(attempt: Attempt, heard: Outcome | None) -> Outcome:
    """What the end of an attempt means that did not end by itself; of a lost one nobody will hear."""
    if isinstance(heard, Succeed):
        return heard
    if not attempt.interrupted.is_set():
        words = f"the job ran for longer than its timeout of {attempt.job.timeout / 1000:g} s and was stopped"
        return failed("Timeout", words, group="timeout")
    return Cancelled() if attempt.why == "cancelled" else Release(attempt.why)
