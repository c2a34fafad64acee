"""A job seen from outside: its record, its options, and the outcomes of its attempts."""

from __future__ import annotations

from holdfast.job.errors import JobCancelled, JobFailed
from holdfast.job.failure import Failure
from holdfast.job.job import FINAL, PENDING, STATES, Job
from holdfast.job.limit import Limit
from holdfast.job.logs import Log, LogPart
from holdfast.job.options import DEFAULT_QUEUE, Awaited, CheckedOptions, JobOptions, RunOptions
from holdfast.job.outcome import Advance, Fail, Outcome, Retry, Snooze
from holdfast.job.progress import Progress
from holdfast.job.retries import Retries
from holdfast.job.usage import JobUsage

__all__ = [
    "DEFAULT_QUEUE",
    "FINAL",
    "PENDING",
    "STATES",
    "Advance",
    "Awaited",
    "CheckedOptions",
    "Fail",
    "Failure",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobOptions",
    "JobUsage",
    "Limit",
    "Log",
    "LogPart",
    "Outcome",
    "Progress",
    "Retries",
    "Retry",
    "RunOptions",
    "Snooze",
]
