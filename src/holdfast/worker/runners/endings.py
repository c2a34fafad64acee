"""The end of an attempt: by itself, or forced; the same for every runner.

An attempt that is interrupted is first asked, then forced. Of what it says afterwards only that its work is done is
heard: it may have been faster.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from holdfast.job.outcome import (
    NOT_STORED,
    TOO_BIG,
    Advanced,
    Cancelled,
    Error,
    Outcome,
    Release,
    Succeed,
    Waits,
    failed,
)
from holdfast.worker.attempt import Attempt
from holdfast.worker.runners.run_limits import Stack, Watch

log = logging.getLogger("holdfast.worker")

REFUSALS = {
    "TOOBIG": "it is too long",
    "NOTFOUND": "a job that it would wait for does not exist",
    "CYCLE": "it would wait for itself",
    "INVALID": "it is not acceptable",
}


async def ends_by_itself(attempt: Attempt, end: asyncio.Future[Any], stack: Stack) -> bool:
    """Wait for an attempt to end, to be interrupted, or to reach a limit. Returns whether it ended."""
    watch = Watch(attempt, stack) if attempt.has_limits else None
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(*_: object) -> None:
        if not over.done():
            over.set_result(None)

    attempt.on_interrupt = wake
    end.add_done_callback(wake)
    try:
        if not attempt.why:
            await over
    finally:
        end.remove_done_callback(wake)
        if watch:
            watch.end()
    return end.done()


def unable(attempt: Attempt, error: BaseException) -> Outcome:
    """What it means that an attempt could not be run: an error of ours, or of a machine that has nothing left."""
    log.error("%s: attempt %d could not be run", *attempt.key, exc_info=error)
    return Release(f"the worker failed: {error!r}"[:60], 1000)


def forced_outcome(attempt: Attempt, heard: Outcome | None) -> Outcome:
    """What the end of an attempt means that did not end by itself; of a lost one nobody will hear."""
    if isinstance(heard, Succeed) or (isinstance(heard, Error) and heard.is_of_work_done):
        return heard
    if attempt.verdict:
        return attempt.verdict
    return Cancelled() if attempt.why == "cancelled" else Release(attempt.why)


def refused_outcome(outcome: Outcome, answer: str) -> Outcome:
    """What an attempt means whose outcome the store refused: an error of the task, which it would make again."""
    group = "refused"
    match outcome:
        case Advanced(task):
            what = f"to go on as {task}"
        case Waits(after):
            what = f"to wait for {', '.join(after)}"[:200]
        case Succeed():
            what, group = "to keep its result; its work is done", TOO_BIG if answer == "TOOBIG" else NOT_STORED
        case _:
            what = f"its end, {type(outcome).__name__}"
    words = f"the store refused {what}: {REFUSALS.get(answer, answer)}"
    return failed("Refused", words, group=group, final="refused")
