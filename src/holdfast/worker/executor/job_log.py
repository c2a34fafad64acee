"""The executor's log of its jobs: a line for each that ended; if there are too many, only their numbers.

Up to `MAX_LINES` jobs a second in the whole worker get a line, and as many failed attempts one with a traceback. Of a
second with more, the supervisor logs the sums (see `banner.Tally`). Nothing is formatted for a job without a line, so a
worker that runs 20,000 jobs a second only counts them. The store decides what follows a failed attempt, a retry or the
end of the job, so that gets a line of its own.
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
from holdfast.job.next_step import describe_next_step
from holdfast.job.options import UNREADABLE_RUN_OPTIONS
from holdfast.job.outcome import Advanced, Blocked, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown
from holdfast.store import AsyncStore, commands
from holdfast.store.commands import Finish
from holdfast.text import indented, printable
from holdfast.worker.attempt import Attempt
from holdfast.worker.messages import AttemptCounts

log = logging.getLogger("holdfast.worker")

MAX_LINES = 10  # a second, of all executors of a worker
MAX_MESSAGE = 500  # characters of an exception's message
HEAD, TAIL = 10, 50  # lines of a traceback
MAX_LINE = 1000  # characters of a line of a traceback
TIMER_MARGIN = 0.02  # seconds; a timer may fire a little too early
ANSWER_TIMEOUT = 2.0  # seconds

_WORDS: dict[type[Outcome], str] = {
    Succeed: "succeeded",
    Error: "failed",
    Crash: "crashed",
    Release: "requeued",
    Unknown: "requeued",
    Snoozed: "snoozed",
    Blocked: "waiting for other jobs",
    Advanced: "advanced",
    Cancelled: "cancelled",
}
LOST = "lost their leases"


class JobLog:
    """Logs the ends of attempts: up to `share` lines a second. `send` sends the sums to the supervisor.

    A second begins and ends at the same time in all executors, so that their sums arrive together.
    """

    def __init__(self, send: Callable[[AttemptCounts], None], share: int) -> None:
        self._send = send
        self._share = share
        self._ends = 0.0  # when the current second ends
        self._timer: asyncio.TimerHandle | None = None
        self._counts: dict[str, int] = {}
        self._is_busy = False  # the last second had too many jobs
        self._is_verbose = False  # at DEBUG each job gets a line
        self._lines = self._failures = 0  # lines that are left in this second
        self._awaiting_answer: set[tuple[str, int]] = set()  # logged failures: what follows is not logged yet

    def start(self, attempt: Attempt) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: attempt %d of %s starts", *attempt.key, printable(attempt.job.task))

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        now = time.monotonic()
        if now >= self._ends:
            self._begin_second(now)
        kind = type(outcome)
        word = LOST if attempt.is_lost else _WORDS[kind]
        self._counts[word] = self._counts.get(word, 0) + 1
        if (kind is Error or kind is Crash) and word is not LOST:
            if self._failures or self._is_verbose:
                self._failures -= 1
                self._awaiting_answer.add(attempt.key)
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
        self._timer = asyncio.get_running_loop().call_later(self._ends - now + TIMER_MARGIN, self.report)
        self._is_verbose = log.isEnabledFor(logging.DEBUG)
        self._lines = self._share if log.isEnabledFor(logging.INFO) and not self._is_busy else 0
        self._failures = self._share if log.isEnabledFor(logging.WARNING) else 0

    def report(self) -> None:
        """Send the counts of the past second if some jobs got no line; also called at exit."""
        if self._timer:
            self._timer.cancel()
        counts, self._counts = self._counts, {}
        was_busy, self._is_busy = self._is_busy, sum(counts.values()) > self._share
        if counts and (was_busy or self._is_busy):
            self._send(AttemptCounts(counts))

    # What follows a failed attempt

    def take_failed(self, items: list[Finish], answers: list[str]) -> dict[str, Error | Crash]:
        """Take the failed jobs that the store has accepted. Return how each failed, for `log_what_follows`."""
        failed: dict[str, Error | Crash] = {}
        if not self._awaiting_answer:
            return failed
        for item, answer in zip(items, answers, strict=True):
            if (item.id, item.attempt) in self._awaiting_answer:
                self._awaiting_answer.discard((item.id, item.attempt))
                if answer == "OK" and isinstance(item.outcome, Error | Crash):
                    failed[item.id] = item.outcome
        return failed

    async def log_what_follows(self, store: AsyncStore, failed: dict[str, Error | Crash]) -> None:
        """Log what the store has decided. If it does not answer, nothing is logged: `holdfast show` has it."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                jobs = await store.run(commands.get(list(failed), brief=True))
        except (HoldfastError, TimeoutError):
            return
        for fields in filter(None, jobs):
            job: Job[Any] = read_job(fields, cast(App, None))  # only read
            outcome = failed[job.id]
            group = outcome.group if isinstance(outcome, Error) else ""
            if follows := describe_next_step(job, crashed=isinstance(outcome, Crash), group=group):
                log.log(logging.ERROR if job.state == "failed" else logging.INFO, "%s: %s", job.id, follows)


def _unknown(attempt: Attempt) -> str:
    if attempt.run is UNREADABLE_RUN_OPTIONS:
        return "its options cannot be read here; another release may have enqueued it"
    return f"task {printable(attempt.job.task)} is not known here; does the module import it?"


def _described(outcome: Error | Crash) -> str:
    """Describe the error of an attempt, with its traceback indented, so that no line of it looks like a log line."""
    described = failure.decode(outcome.error)
    message = printable(f"{described.type}: {described.message}")
    short = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}..."
    if isinstance(outcome, Error) and outcome.reason:
        short += f" ({printable(outcome.reason)})"
    if not described.traceback:
        return f": {short}"
    lines = described.traceback.rstrip("\n").split("\n")
    if len(lines) > HEAD + TAIL:
        left_out = len(lines) - HEAD - TAIL
        lines[HEAD:-TAIL] = [f"  ... {left_out} lines omitted; `holdfast show` has them ..."]
    return f": {short}\n{indented(chr(10).join(line[:MAX_LINE] for line in lines))}"
