"""A call that is made where it was enqueued, because the store cannot be reached: the same checks as in a worker.

Arguments are decoded and the result is encoded, `current_job()` is a detached job, and what comes of it is a job that
has ended. There is one attempt: what a task says about a later one cannot be heeded.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

import msgspec

from holdfast.job import failure, job
from holdfast.job.job import Job
from holdfast.job.outcome import Crash, Error, Outcome, Succeed, failed
from holdfast.running.channel import Detached
from holdfast.task.call import Attempt, Call, End
from holdfast.task.task import BoundCall
from holdfast.units import utc

R = TypeVar("R")


def run_inline(call: BoundCall[R], stored: Job[R]) -> Job[R]:
    """Make a call in this thread, and return what its job would be then; `stored` is what it is like before."""
    with _attempt(call, stored) as attempt:
        end = copy_context().run(attempt.call)
    return _ended(stored, end)


async def arun_inline(call: BoundCall[R], stored: Job[R]) -> Job[R]:
    """Make a call in this event loop, a plain function in a thread, and return what its job would be then."""
    with _attempt(call, stored) as attempt:
        end = await attempt.acall()
    return _ended(stored, end)


def cannot_be_run(call: BoundCall[Any], now: int, *, awaited: bool) -> str:
    """Return why a call cannot be made here and now; nothing if it can."""
    chosen = call.chosen
    if chosen.delay or chosen.debounce or (chosen.at or 0) > now:
        return "it is due later"
    if chosen.after:
        return "it has to wait for other jobs"
    if chosen.limits:
        return f"only the store knows whether the limit {chosen.limits[0]} allows it"
    if call.variant.is_async and not awaited and _in_loop():
        return "an event loop is running here: use aenqueue"
    return ""


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def _attempt(call: BoundCall[Any], stored: Job[Any]) -> Iterator[Attempt]:
    directory = tempfile.mkdtemp(prefix="holdfast-job-")
    try:
        about = Call(call.id, 1, stored.queue, call.name, call.payload, b"", directory)
        yield Attempt(about, call.variant, Detached())
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _ended(stored: Job[R], end: End) -> Job[R]:
    end.raise_again(errors=False)  # what is meant for the process, as Ctrl-C is
    outcome = _final(end.outcome)
    now = utc(time.time_ns() // 1_000_000)
    described = failure.decode(outcome.error) if isinstance(outcome, Error | Crash) else None
    word = type(outcome).__name__.lower()
    attempt = job.Attempt(
        1, stored.since, stored.since, stored.since, now, _WORDS.get(word, word), os.getpid(), "", "", described
    )
    return msgspec.structs.replace(
        stored,
        state="failed" if described else "succeeded",
        since=now,
        attempt=1,
        pid=os.getpid(),
        group=described.group if described else "",
        final_reason=_final_reason(outcome) if described else "",
        result_bytes=outcome.result if isinstance(outcome, Succeed) else None,
        attempts=[attempt],
        notes=[job.Note(now, "said", outcome.note)] if isinstance(outcome, Succeed) and outcome.note else [],
        ran_inline=True,
    )


def _final_reason(outcome: Outcome) -> str:
    """Why the one attempt was the last."""
    final = isinstance(outcome, Error) and outcome.final
    return ("declared" if final is True else final) if final else "inline"


_WORDS = {"succeed": "succeeded"}


def _final(outcome: Outcome) -> Outcome:
    """What an outcome is where there is no later."""
    if isinstance(outcome, Succeed | Error | Crash):
        return outcome
    words = "the task asked to go on later, but it ran inline, while the store could not be reached"
    return failed("NoLater", words, group="no-later")
