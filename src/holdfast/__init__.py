"""Holdfast: jobs that must finish, from a millisecond to a month, on Valkey or Redis.

from holdfast import Holdfast

jobs = Holdfast()

@jobs.task
def add(x: int, y: int) -> int:
    return x + y

job = add.enqueue(1, 2)
job.result()
"""

from typing import TYPE_CHECKING

from holdfast.app import Holdfast
from holdfast.client.batches import Batch, BatchStatus
from holdfast.client.timing import cron, every
from holdfast.errors import (
    BatchNotFound,
    DependencyCycle,
    FunctionNotFound,
    HoldfastError,
    Invalid,
    JobBlocked,
    JobExists,
    JobIsNewer,
    JobNotFound,
    JobUnreadable,
    LeaseLost,
    LuaFailed,
    NotFound,
    NotReplicated,
    OperationNotFound,
    Refused,
    ResultTimeout,
    ResultTypeWarning,
    ScheduleNotFound,
    StoreFull,
    StoreUnavailable,
    SubscriptionNotFound,
    TooBig,
    WorkDone,
    WorkerNotFound,
    WrongArguments,
    WrongState,
)
from holdfast.events.event import Event
from holdfast.hints import missing_name
from holdfast.job import (
    Advance,
    Fail,
    Job,
    JobCancelled,
    JobFailed,
    JobUsage,
    Limit,
    Log,
    LogPart,
    Progress,
    Retries,
    Retry,
    Snooze,
)
from holdfast.running import RunningJob, current_job
from holdfast.task import BoundCall, Task
from holdfast.version import __version__ as __version__

__all__ = [
    "Advance",
    "Batch",
    "BatchNotFound",
    "BatchStatus",
    "BoundCall",
    "DependencyCycle",
    "Event",
    "Fail",
    "FunctionNotFound",
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
    "Limit",
    "Log",
    "LogPart",
    "LuaFailed",
    "NotFound",
    "NotReplicated",
    "OperationNotFound",
    "Progress",
    "Refused",
    "ResultTimeout",
    "ResultTypeWarning",
    "Retries",
    "Retry",
    "RunningJob",
    "ScheduleNotFound",
    "Snooze",
    "StoreFull",
    "StoreUnavailable",
    "SubscriptionNotFound",
    "Task",
    "TooBig",
    "WorkDone",
    "WorkerNotFound",
    "WrongArguments",
    "WrongState",
    "cron",
    "current_job",
    "every",
]

for _name in __all__:  # exceptions are shown by the name under which users import them
    if isinstance(_kind := globals()[_name], type) and issubclass(_kind, BaseException):
        _kind.__module__ = __name__
del _name, _kind

if not TYPE_CHECKING:  # type checkers take a module with this function for one that has every name

    def __getattr__(name: str) -> object:
        raise missing_name(name)
