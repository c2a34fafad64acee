"""How an attempt ends, by itself or by force; the same for every runner.

An interrupted attempt is first asked to end, then forced. Its own outcome counts only if it
finished its work before it was stopped.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from holdfast.job.outcome import (
    NOT_STORED,
    TOO_BIG,
    Advanced,
    Blocked,
    Cancelled,
    Error,
    Outcome,
    Release,
    Succeed,
    failed,
)
from holdfast.worker.attempt import Attempt
from holdfast.worker.runners.run_limits import LimitWatch, ReadStack

log = logging.getLogger("holdfast.worker")

REFUSALS = {
    "TOOBIG": "it is too long",
    "NOTFOUND": "a job that it would wait for does not exist",
    "CYCLE": "it would wait for itself",
    "INVALID": "it is invalid",
}


async def wait_for_end(attempt: Attempt, end: asyncio.Future[Any], read_stack: ReadStack) -> bool:
    """Wait until an attempt ends, is interrupted, or exceeds a limit. Return whether it ended."""
    limits = LimitWatch(attempt, read_stack) if attempt.has_limits else None
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(*_: object) -> None:
        if not over.done():
            over.set_result(None)

    attempt.on_interrupt = wake
    end.add_done_callback(wake)
    try:
        if not attempt.interrupt_reason:
            await over
    finally:
        end.remove_done_callback(wake)
        if limits:
            limits.end()
    return end.done()


def unable_to_run(attempt: Attempt, error: BaseException) -> Outcome:
    """Return the outcome of an attempt that failed because of the worker, or of a machine without resources."""
    log.error("%s: attempt %d could not be run", *attempt.key, exc_info=error)
    return Release(f"the worker failed: {error!r}"[:60], 1000)


def forced_outcome(attempt: Attempt, reported: Outcome | None) -> Outcome:
    """Return the outcome of an attempt that was interrupted; that of a lost one is never sent."""
    if isinstance(reported, Succeed) or (isinstance(reported, Error) and reported.work_is_done):
        return reported
    if attempt.interrupt_outcome:
        return attempt.interrupt_outcome
    return Cancelled() if attempt.interrupt_reason == "cancelled" else Release(attempt.interrupt_reason)


def refused_outcome(outcome: Outcome, answer: str) -> Outcome:
    """Return the outcome that replaces one refused by the store: an error of the task, which no retry would avoid."""
    group = "refused"
    match outcome:
        case Advanced(task):
            what = f"to continue as {task}"
        case Blocked(after):
            what = f"to wait for {', '.join(after)}"[:200]
        case Succeed():
            what, group = "the result, although the work is done", TOO_BIG if answer == "TOOBIG" else NOT_STORED
        case _:
            what = f"the outcome {type(outcome).__name__}"
    words = f"the store refused {what}: {REFUSALS.get(answer, answer)}"
    return failed("Refused", words, group=group, final="refused")
