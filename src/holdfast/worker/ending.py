"""The end of an attempt: by itself, or forced; the same for every runner.

An attempt that is interrupted is first asked, then forced. Of what it says afterwards only a success is heard: it may
have been faster.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from holdfast.calling import failed
from holdfast.outcome import Advanced, Cancelled, Outcome, Release, Succeed, Waits
from holdfast.run import PLAIN
from holdfast.worker.attempt import Attempt
from holdfast.worker.watch import Stack, asked, watched

REFUSALS = {
    "TOOBIG": "it is too long",
    "NOTFOUND": "a job that it would wait for does not exist",
    "CYCLE": "it would wait for itself",
    "INVALID": "it is not acceptable",
}


class Runner(Protocol):
    async def run(self, attempt: Attempt) -> Outcome: ...


async def ends_by_itself(attempt: Attempt, end: asyncio.Future[Any], stack: Stack) -> bool:
    """Wait for an attempt to end, to be interrupted, or to reach a limit. Returns whether it ended."""
    if attempt.run is PLAIN:
        await _end_or_stop(attempt, end)
    else:
        async with watched(attempt, stack):
            await _end_or_stop(attempt, end)
    if not end.done() and not attempt.interrupted.is_set():
        await _time_out(attempt, end, stack)
    return end.done()


async def _time_out(attempt: Attempt, end: asyncio.Future[Any], stack: Stack) -> None:
    """Its time is over: where it was is said with the failure. It may end while that is asked for."""
    doing = await asked(stack)
    if not end.done():
        words = f"the job ran for longer than its timeout of {attempt.job.timeout / 1000:g} s and was stopped"
        attempt.interrupt("timeout", failed("Timeout", words, group="timeout", traceback=doing))


async def _end_or_stop(attempt: Attempt, end: asyncio.Future[Any]) -> None:
    stop = asyncio.create_task(attempt.interrupted.wait())
    either: list[asyncio.Future[Any]] = [end, stop]
    try:
        await asyncio.wait(either, timeout=attempt.job.timeout / 1000 or None, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()


def forced_outcome(attempt: Attempt, heard: Outcome | None) -> Outcome:
    """What the end of an attempt means that did not end by itself; of a lost one nobody will hear."""
    if isinstance(heard, Succeed):
        return heard
    if attempt.verdict:
        return attempt.verdict
    return Cancelled() if attempt.why == "cancelled" else Release(attempt.why)


def refused_outcome(outcome: Outcome, answer: str) -> Outcome:
    """What an attempt means whose outcome the store refused: an error of the task, which it would make again."""
    match outcome:
        case Advanced(task):
            what = f"to go on as {task}"
        case Waits(after):
            what = f"to wait for {', '.join(after)}"[:200]
        case Succeed():
            what = "to keep its result"
        case _:
            what = f"its end, {type(outcome).__name__}"
    return failed("Refused", f"the store refused {what}: {REFUSALS.get(answer, answer)}", group="refused", final=True)
