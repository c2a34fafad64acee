"""Describes what follows a failed attempt: a retry and when, or that the job failed for good."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.job.job import Job
from holdfast.text import printable
from holdfast.units import humanize


def what_follows(job: Job[Any], now: datetime | None = None, *, crashed: bool) -> str:
    """Describe what follows the last attempt of a job, which failed or crashed; waits count from its end, or `now`.

    Return "" if that is unknown: the next attempt is running, or the job continued in another way.
    """
    if job.state == "failed":
        return f"failed for good ({job.final_reason}), in group {printable(job.group)}; attempts: {job.attempt}"
    if job.state == "cancelled":
        return "cancelled, so it is not retried"
    if job.state == "scheduled" and job.due_at:
        wait = (job.due_at - (now or job.since)).total_seconds()
        return f"retry {job.retries_used + 1} of {job.retries} in {_span(wait)}"
    if job.state == "waiting" and crashed:
        return f"requeued, after crash {job.crashes_used} of {job.crashes}"
    return f"retry {job.retries_used + 1} of {job.retries} now" if job.state == "waiting" else ""


def _span(seconds: float) -> str:
    return f"{max(seconds, 0):.3g} s" if seconds < 100 else humanize(round(seconds) * 1000)
