"""Describes the next step of a job whose attempt failed: when it is retried, or that it failed for good."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.job.job import Job, exhausted_budget
from holdfast.job.retries import BUDGETS
from holdfast.text import printable
from holdfast.units import humanize

_STOPPED = {"timeouts": "timeout", "stalls": "stall", "out_of_memory": "memory limit"}


def describe_next_step(job: Job[Any], now: datetime | None = None, *, crashed: bool, group: str) -> str:
    """Describe the next step of a job whose last attempt failed, in this group, or crashed.

    Delays count from `now`, or from its end.

    Return "" if it is unknown: the next attempt is running already, or the job continued in another way.
    """
    if job.state == "failed":
        because = ": ".join(filter(None, (job.final_reason, exhausted_budget(job))))
        return f"failed for good ({because}), in group {printable(job.group)}; attempts: {job.attempt}"
    if job.state == "cancelled":
        return "cancelled, so it is not retried"
    if job.state == "scheduled" and job.due_at:
        delay = (job.due_at - (now or job.since)).total_seconds()
        return f"{_retry_of(job, group)} in {_duration(delay)}"
    if job.state == "waiting" and crashed:
        return f"requeued, after crash {job.crashes_used} of {job.crashes}"
    return f"{_retry_of(job, group)} now" if job.state == "waiting" else ""


def _retry_of(job: Job[Any], group: str) -> str:
    """Describe a retry with the budget that it uses up."""
    budget = BUDGETS.get(group, "")
    if budget and (allowed := getattr(job, budget)) is not None:
        return f"retry after {_STOPPED[budget]} {getattr(job, f'{budget}_used')} of {allowed}"
    return f"retry {job.retries_used + 1} of {job.retries}"


def _duration(seconds: float) -> str:
    return f"{max(seconds, 0):.3g} s" if seconds < 100 else humanize(round(seconds) * 1000)
