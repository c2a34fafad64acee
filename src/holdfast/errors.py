"""The errors of Holdfast, as one tree.

    HoldfastError
    ├── NotFound           NOTFOUND  what was asked for does not exist; it is a LookupError too
    │   ├── JobNotFound              no job has this id
    │   ├── WorkerNotFound           no worker has this name
    │   └── ScheduleNotFound         no schedule has this name
    ├── JobExists          EXISTS    a job of this id or unique key exists, and the call asked for an error
    ├── WrongState         STATE     the call does not apply to a job in this state
    ├── WorkDone           DONE      the job has done its work; only a forced retry repeats it
    ├── LeaseLost          LOST      this attempt no longer holds the lease of its job
    ├── JobBlocked         BLOCKED   other jobs depend on this one
    ├── DependencyCycle    CYCLE     a job would depend on itself
    ├── TooBig             TOOBIG    a payload, result or checkpoint exceeds its limit; it is a ValueError too
    ├── StoreFull          FULL      the server is out of memory; nothing was stored
    ├── Invalid            INVALID   an argument is invalid; it is a ValueError too
    ├── WrongSchema        SCHEMA    another release wrote the data
    ├── JobUnreadable      DAMAGED   the record of the job is damaged
    │   └── JobIsNewer     NEWER     a newer release wrote it
    ├── StoreUnavailable             the server cannot be reached, or does not answer
    │   └── ServerStartFailed        the embedded server cannot be started
    ├── JobFailed                    raised by `result()`: the job failed; the cause is the traceback of its attempt
    ├── JobCancelled                 raised by `result()`: the job was cancelled
    └── ResultTimeout                raised by `result()`: the job did not end within the timeout

`ResultTypeWarning` is a warning: a result does not fit the type that it is read as.

JobFailed and JobCancelled carry a job, so `holdfast.job.errors` defines them. The Lua functions refuse a call with
`CODE text`; `from_reply` makes that an error.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """The base class of all errors of Holdfast."""

    code = "ERROR"


class NotFound(HoldfastError, LookupError):
    code = "NOTFOUND"


class JobNotFound(NotFound):
    pass


class WorkerNotFound(NotFound):
    pass


class ScheduleNotFound(NotFound):
    pass


class JobExists(HoldfastError):
    code = "EXISTS"


class WrongState(HoldfastError):
    code = "STATE"


class WorkDone(HoldfastError):
    code = "DONE"


class LeaseLost(HoldfastError):
    code = "LOST"


class JobBlocked(HoldfastError):
    code = "BLOCKED"


class DependencyCycle(HoldfastError):
    code = "CYCLE"


class TooBig(HoldfastError, ValueError):
    code = "TOOBIG"


class StoreFull(HoldfastError):
    code = "FULL"


class Invalid(HoldfastError, ValueError):
    code = "INVALID"


class WrongSchema(HoldfastError):
    code = "SCHEMA"


class JobUnreadable(HoldfastError):
    """The record of this job cannot be read. Nothing was changed, and no other job is affected."""

    code = "DAMAGED"


class JobIsNewer(JobUnreadable):
    """A newer release wrote the record of this job: upgrade this one."""

    code = "NEWER"


class StoreUnavailable(HoldfastError, ConnectionError):
    """`maybe_done` is false if the command was certainly not carried out: it was refused, or never sent."""

    code = "UNAVAILABLE"
    maybe_done = True


class ServerStartFailed(StoreUnavailable):
    pass


class ResultTimeout(HoldfastError, TimeoutError):
    code = "TIMEOUT"


class ResultTypeWarning(UserWarning):
    """A result does not fit the type that it is read as, and is returned as the stored JSON value."""


# By the code that a Lua function refuses with.
BY_CODE: dict[str, type[HoldfastError]] = {
    "NOTFOUND": JobNotFound,
    "NOWORKER": WorkerNotFound,
    "NOSCHEDULE": ScheduleNotFound,
    **{
        kind.code: kind
        for kind in (
            JobExists,
            WrongState,
            WorkDone,
            LeaseLost,
            JobBlocked,
            DependencyCycle,
            TooBig,
            StoreFull,
            Invalid,
            WrongSchema,
            JobUnreadable,
            JobIsNewer,
        )
    },
}


def from_reply(message: str) -> HoldfastError | None:
    """Return the error that a Lua function refused with; None if the message has no code of ours."""
    code, _, text = message.partition(" ")
    kind = BY_CODE.get(code)
    return kind(text) if kind else None
