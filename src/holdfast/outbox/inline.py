"""Runs a call in the process that enqueued it, because the server is unreachable, with the same checks as in a worker.

Arguments are decoded, the result is encoded, `current_job()` is a detached job, and the outcome is a finished job.
There is one attempt: a task that asks for another one fails.
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

from holdfast.job import failure
from holdfast.job.job import Job
from holdfast.job.outcome import Crash, Error, Outcome, Succeed, failed
from holdfast.job.parts import Attempt, Note
from holdfast.running.link import DetachedLink
from holdfast.task.call import Call, CallEnd, LocalCall
from holdfast.task.task import BoundCall
from holdfast.units import utc

R = TypeVar("R")


def run_inline(call: BoundCall[R], stored: Job[R]) -> Job[R]:
    """Run a call in this thread and return its finished job; `stored` is the job before it ran."""
    with _attempt(call, stored) as attempt:
        end = copy_context().run(attempt.call)
    return _ended(stored, end)


async def arun_inline(call: BoundCall[R], stored: Job[R]) -> Job[R]:
    """Run a call in this event loop, a plain function in a thread, and return its finished job."""
    with _attempt(call, stored) as attempt:
        end = await attempt.acall()
    return _ended(stored, end)


def why_not_inline(call: BoundCall[Any], now: int, *, is_async: bool) -> str:
    """Return the reason why a call cannot run inline; empty if it can."""
    chosen = call.effective_options
    if chosen.delay or chosen.debounce or (chosen.at or 0) > now:
        return "it is due later"
    if chosen.after:
        return "it depends on other jobs"
    if chosen.limits:
        return f"only the store can tell whether the limit {chosen.limits[0]} allows it"
    if call.variant.is_async and not is_async and _in_loop():
        return "this thread runs an event loop; use aenqueue"
    return ""


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def _attempt(call: BoundCall[Any], stored: Job[Any]) -> Iterator[LocalCall]:
    directory = tempfile.mkdtemp(prefix="holdfast-job-")
    try:
        run = (call.effective_options.run.encode() or "").encode()
        description = Call(call.id, 1, stored.queue, call.name, call.payload, b"", directory, run=run)
        yield LocalCall(description, call.variant, DetachedLink(fields=stored.fields))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _ended(stored: Job[R], end: CallEnd) -> Job[R]:
    end.reraise(errors=False)  # such as KeyboardInterrupt, which is meant for the process
    outcome = _final(end.outcome)
    now = utc(time.time_ns() // 1_000_000)
    described = failure.decode(outcome.error) if isinstance(outcome, Error | Crash) else None
    name, reason = type(outcome).__name__.lower(), outcome.reason if isinstance(outcome, Error) else ""
    attempt = Attempt(
        1, stored.since, stored.since, stored.since, now, _OUTCOMES.get(name, name), os.getpid(), "", reason, described
    )
    return msgspec.structs.replace(
        stored,
        state="failed" if described else "succeeded",
        since=now,
        updated_at=now,
        attempt=1,
        pid=os.getpid(),
        group=described.group if described else "",
        final_reason=_final_reason(outcome) if described else "",
        result_bytes=outcome.result if isinstance(outcome, Succeed) else None,
        attempts=[attempt],
        notes=[Note(now, "reported", outcome.note)] if isinstance(outcome, Succeed) and outcome.note else [],
        ran_inline=True,
    )


def _final_reason(outcome: Outcome) -> str:
    """Return why there is no second attempt."""
    final = isinstance(outcome, Error) and outcome.final
    return ("declared" if final is True else final) if final else "inline"


_OUTCOMES = {"succeed": "succeeded"}


def _final(outcome: Outcome) -> Outcome:
    """Turn an outcome that asks for a later attempt into a failure."""
    if isinstance(outcome, Succeed | Error | Crash):
        return outcome
    message = "the task asked to continue later, but it ran inline because the server was unreachable"
    return failed("CannotContinue", message, group="cannot-continue")
