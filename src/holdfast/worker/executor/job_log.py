"""What an executor logs of its jobs: a line for each that ended, or once they are many, how many did.

Up to `MAX_LINES` a second in the whole worker have a line, and as many failed attempts one with a traceback; of a
second with more, the supervisor logs the sums (see `tally`). Nothing is formatted for a job that has no line, so a
worker that runs 20,000 jobs a second counts them, and no more. What follows a failed attempt (a retry, or nothing) is
decided by the store, so it has a line of its own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any, cast

from holdfast.errors import HoldfastError
from holdfast.job import failure
from holdfast.job.job import App, Job, read_job
from holdfast.job.options import UNREADABLE
from holdfast.job.outcome import Advanced, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown, Waits
from holdfast.job.retry_text import what_follows
from holdfast.store import AsyncStore, commands
from holdfast.store.commands import Finish
from holdfast.text import indented, printable
from holdfast.worker.attempt import Attempt
from holdfast.worker.messages import Tally

log = logging.getLogger("holdfast.worker")

MAX_LINES = 10  # a second, of all executors of a worker
MAX_MESSAGE = 500  # characters of an exception's message
HEAD, TAIL = 10, 50  # lines of a traceback
MAX_LINE = 1000  # characters of a line of a traceback
LATE = 0.02  # seconds after the end of a second: a timer may fire a little too early
STORE_PATIENCE = 2.0  # seconds

_WORDS: dict[type[Outcome], str] = {
    Succeed: "succeeded",
    Error: "failed",
    Crash: "crashed",
    Release: "requeued",
    Unknown: "requeued",
    Snoozed: "snoozed",
    Waits: "waiting for other jobs",
    Advanced: "advanced",
    Cancelled: "cancelled",
}
LOST = "lost their leases"


class Journal:
    """Logs the ends of attempts. `send` sends the sums to the supervisor; `share` is the lines a second for this one.

    Seconds are those of the clock that all processes share, so that the sums of all executors arrive together.
    """

    def __init__(self, send: Callable[[Tally], None], share: int) -> None:
        self._send = send
        self._share = share
        self._ends = 0.0  # of the second that is counted
        self._timer: asyncio.TimerHandle | None = None
        self._counts: dict[str, int] = {}
        self._is_busy = False  # the second before had more than there are lines
        self._is_verbose = False  # at DEBUG each job has a line
        self._lines = self._failures = 0  # that are left in this second
        self._unsettled: set[tuple[str, int]] = set()  # failed attempts that were logged, but not yet what follows

    def start(self, attempt: Attempt) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: attempt %d of %s starts", *attempt.key, printable(attempt.job.task))

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        now = time.monotonic()
        if now >= self._ends:
            self._begin_second(now)
        kind = type(outcome)
        word = LOST if attempt.why == "lost" else _WORDS[kind]
        self._counts[word] = self._counts.get(word, 0) + 1
        if (kind is Error or kind is Crash) and word is not LOST:
            if self._failures or self._is_verbose:
                self._failures -= 1
                self._unsettled.add(attempt.key)
                self._log(logging.WARNING, attempt, now, word, _described(cast(Error | Crash, outcome)))
        elif kind is Unknown and word is not LOST:
            if self._failures or self._is_verbose:
                self._failures -= 1
                self._log(logging.WARNING, attempt, now, word, f": {_unknown(attempt)}")
        elif self._lines or self._is_verbose:
            self._lines -= 1
            reason = f": {printable(outcome.reason)}" if isinstance(outcome, Release) and outcome.reason else ""
            self._log(logging.INFO, attempt, now, "lost its lease" if word is LOST else word, reason)

    def _log(self, level: int, attempt: Attempt, now: float, word: str, more: str) -> None:
        task, seconds = printable(attempt.job.task), now - attempt.claimed_at
        log.log(level, "%s: attempt %d of %s %s after %.2f s%s", *attempt.key, task, word, seconds, more)

    def _begin_second(self, now: float) -> None:
        self.report()
        self._ends = math.floor(now) + 1.0
        self._timer = asyncio.get_running_loop().call_later(self._ends - now + LATE, self.report)
        self._is_verbose = log.isEnabledFor(logging.DEBUG)
        self._lines = self._share if log.isEnabledFor(logging.INFO) and not self._is_busy else 0
        self._failures = self._share if log.isEnabledFor(logging.WARNING) else 0

    def report(self) -> None:
        """The second is over, or the executor ends: have the sums logged, if not every job had a line."""
        if self._timer:
            self._timer.cancel()
        counts, self._counts = self._counts, {}
        was_busy, self._is_busy = self._is_busy, sum(counts.values()) > self._share
        if counts and (was_busy or self._is_busy):
            self._send(Tally(counts))

    # What follows a failed attempt

    def answered(self, items: list[Finish], answers: list[str]) -> dict[str, bool]:
        """The store has taken outcomes: return the jobs of which what follows is to be logged; whether each crashed."""
        settled: dict[str, bool] = {}
        if not self._unsettled:
            return settled
        for item, answer in zip(items, answers, strict=True):
            if (item.id, item.attempt) in self._unsettled:
                self._unsettled.discard((item.id, item.attempt))
                if answer == "OK" and isinstance(item.outcome, Error | Crash):
                    settled[item.id] = isinstance(item.outcome, Crash)
        return settled

    async def log_what_follows(self, store: AsyncStore, crashed: dict[str, bool]) -> None:
        """Ask the store what it has decided. If it does not answer, nothing is said: `holdfast show` has it."""
        try:
            async with asyncio.timeout(STORE_PATIENCE):
                jobs = await store.run(commands.get(list(crashed), brief=True))
        except (HoldfastError, TimeoutError):
            return
        for fields in filter(None, jobs):
            job: Job[Any] = read_job(fields, cast(App, None))  # only to look at
            if follows := what_follows(job, crashed=crashed[job.id]):
                log.log(logging.ERROR if job.state == "failed" else logging.INFO, "%s: %s", job.id, follows)


def _unknown(attempt: Attempt) -> str:
    if attempt.run is UNREADABLE:
        return "how it is to be run cannot be read here; another release may have enqueued it"
    return f"task {printable(attempt.job.task)} is not known here; does the module import it?"


def _described(outcome: Error | Crash) -> str:
    """Return what an attempt raised, and its traceback: on lines that cannot be taken for others of the log."""
    described = failure.decode(outcome.error)
    message = printable(f"{described.type}: {described.message}")
    short = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}..."
    if not described.traceback:
        return f": {short}"
    lines = described.traceback.rstrip("\n").split("\n")
    if len(lines) > HEAD + TAIL:
        left_out = len(lines) - HEAD - TAIL
        lines[HEAD:-TAIL] = [f"  ... {left_out} lines are left out; `holdfast show` has them ..."]
    return f": {short}\n{indented(chr(10).join(line[:MAX_LINE] for line in lines))}"
