"""Holdfast: jobs that must finish, from a millisecond to a month, on Valkey or Redis.

from holdfast import Holdfast

jobs = Holdfast()

@jobs.task
def add(x: int, y: int) -> int:
    return x + y

job = add.enqueue(1, 2)
job.result()
"""

from holdfast.client import Holdfast
from holdfast.current import current_job
from holdfast.errors import (
    DependencyCycle,
    HoldfastError,
    Invalid,
    JobBlocked,
    JobCancelled,
    JobExists,
    JobFailed,
    JobIsNewer,
    JobNotFound,
    JobUnreadable,
    LeaseLost,
    ResultTimeout,
    ResultTypeWarning,
    StoreFull,
    StoreUnavailable,
    TooBig,
    WorkDone,
    WrongState,
)
from holdfast.job import Job
from holdfast.logs import Log, LogPart
from holdfast.outcome import Advance, Fail, Retry, Snooze
from holdfast.progress import Progress
from holdfast.running import RunningJob
from holdfast.scheduling import cron, every
from holdfast.task import BoundCall, Task
from holdfast.usage import JobUsage

__version__ = "0.1.0"

__all__ = [
    "Advance",
    "BoundCall",
    "DependencyCycle",
    "Fail",
    "Holdfast",
    "HoldfastError",
    "Invalid",
    "Job",
    "JobBlocked",
    "JobCancelled",
    "JobExists",
    "JobFailed",
    "JobIsNewer",
    "JobNotFound",
    "JobUnreadable",
    "JobUsage",
    "LeaseLost",
    "Log",
    "LogPart",
    "Progress",
    "ResultTimeout",
    "ResultTypeWarning",
    "Retry",
    "RunningJob",
    "Snooze",
    "StoreFull",
    "StoreUnavailable",
    "Task",
    "TooBig",
    "WorkDone",
    "WrongState",
    "cron",
    "current_job",
    "every",
]
