"""Describes the next step of a job whose attempt failed: when it is retried, or that it failed for good."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.job.job import Job
from holdfast.text import printable
from holdfast.units import humanize


def describe_next_step(job: Job[Any], now: datetime | None = None, *, crashed: bool) -> str:
    """Describe the next step of a job whose last attempt failed or crashed. Delays count from `now`, or from its end.

    Return "" if it is unknown: the next attempt is running already, or the job continued in another way.
    """
    if job.state == "failed":
        return f"failed for good ({job.final_reason}), in group {printable(job.group)}; attempts: {job.attempt}"
    if job.state == "cancelled":
        return "cancelled, so it is not retried"
    if job.state == "scheduled" and job.due_at:
        delay = (job.due_at - (now or job.since)).total_seconds()
        return f"retry {job.retries_used + 1} of {job.retries} in {_duration(delay)}"
    if job.state == "waiting" and crashed:
        return f"requeued, after crash {job.crashes_used} of {job.crashes}"
    return f"retry {job.retries_used + 1} of {job.retries} now" if job.state == "waiting" else ""


def _duration(seconds: float) -> str:
    return f"{max(seconds, 0):.3g} s" if seconds < 100 else humanize(round(seconds) * 1000)
