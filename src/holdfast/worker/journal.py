"""What a worker logs of its jobs: a line when one starts, and a line when it ends, with its id first.

Ends that people look for are logged at INFO or above: of jobs that took more than a second, and of those that failed.
All others are at DEBUG, or a busy worker would log more than it works.
"""

from __future__ import annotations

import logging
import time

from holdfast import failure
from holdfast.outcome import Advanced, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown, Waits
from holdfast.worker.attempt import Attempt

log = logging.getLogger("holdfast.worker")

LONG = 1.0  # seconds

_WORDS: dict[type[Outcome], str] = {
    Succeed: "succeeded",
    Error: "failed",
    Crash: "crashed",
    Release: "was handed back",
    Unknown: "was handed back",
    Snoozed: "is to run later",
    Waits: "waits for other jobs",
    Advanced: "advanced",
    Cancelled: "was cancelled",
}


def log_start(attempt: Attempt) -> None:
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s: attempt %d of %s starts", *attempt.key, attempt.job.task)


def log_end(attempt: Attempt, outcome: Outcome) -> None:
    seconds = time.monotonic() - attempt.claimed_at
    level = _level(outcome, seconds)
    if not log.isEnabledFor(level):
        return
    ended = "lost its lease" if attempt.why == "lost" else _WORDS[type(outcome)]
    words = f"{ended} after {seconds:.2f} s{_reason(outcome)}"
    log.log(level, "%s: attempt %d of %s %s", *attempt.key, attempt.job.task, words)


def _level(outcome: Outcome, seconds: float) -> int:
    if isinstance(outcome, Error | Crash):
        return logging.WARNING
    return logging.INFO if seconds > LONG else logging.DEBUG


def _reason(outcome: Outcome) -> str:
    match outcome:
        case Error() | Crash():
            described = failure.decode(outcome.error)
            return f": {described.type}: {described.message}"
        case Release(reason) if reason:
            return f": {reason}"
    return ""
