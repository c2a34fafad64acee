"""The errors of Holdfast, as one tree.

    HoldfastError
    ├── NotFound           NOTFOUND  something does not exist; also a LookupError
    │   ├── JobNotFound              no job has this id
    │   ├── WorkerNotFound           no worker has this name
    │   ├── ScheduleNotFound         no schedule has this name
    │   ├── SubscriptionNotFound     no subscription has this name
    │   ├── BatchNotFound            no batch has this name
    │   ├── OperationNotFound        no operation has this id
    │   └── FunctionNotFound         the app's own Lua has no function with this name
    ├── JobExists          EXISTS    a job with this id or unique key exists, and the call has on_exists="error"
    ├── WrongState         STATE     the call does not apply to a job in this state
    ├── WorkDone           DONE      the job has done its work; only a forced retry repeats it
    ├── LeaseLost          LOST      this attempt no longer holds the lease of its job
    ├── JobBlocked         BLOCKED   other jobs depend on this one
    ├── DependencyCycle    CYCLE     a job would depend on itself
    ├── TooBig             TOOBIG    a payload, result or checkpoint exceeds its limit; also a ValueError
    ├── Refused            REFUSED   a function of the app's own Lua refused a call, for a `reason`
    ├── LuaFailed          LUA       the app's own Lua failed, or cannot be loaded
    ├── StoreFull          FULL      the server is out of memory; nothing was stored
    ├── Invalid            INVALID   an argument is invalid; also a ValueError
    │   └── WrongArguments           the stored arguments of a job do not fit its task
    ├── WrongSchema        SCHEMA    another release wrote the data
    ├── JobUnreadable      DAMAGED   the record of the job is damaged
    │   └── JobIsNewer     NEWER     a newer release wrote it
    ├── StoreUnavailable             the server cannot be reached, or does not answer
    │   └── ServerStartFailed        the embedded server cannot be started
    ├── JobFailed                    raised by `result()`: the job failed; the cause is the traceback of its attempt
    ├── JobCancelled                 raised by `result()`: the job was cancelled
    └── ResultTimeout                raised by `result()`: the job did not end within the timeout

`ResultTypeWarning` is a warning: a result does not fit the type that it is read as.

JobFailed and JobCancelled have a job, so `holdfast.job.errors` defines them. A Lua function refuses a call with the
reply `CODE text`, which `from_reply` turns into one of these errors.
"""

from __future__ import annotations

from typing import Any


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


class SubscriptionNotFound(NotFound):
    pass


class BatchNotFound(NotFound):
    pass


class OperationNotFound(NotFound):
    pass


class FunctionNotFound(NotFound):
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


class Refused(HoldfastError):
    """A function of the app's own Lua refused a call: `holdfast.refuse(reason, message)`. See `Holdfast.call`."""

    code = "REFUSED"

    @property
    def reason(self) -> str:
        return str(self.args[0]).partition(" ")[0]

    def __str__(self) -> str:
        reason, _, message = str(self.args[0]).partition(" ")
        return message or reason


class LuaFailed(HoldfastError):
    """The app's own Lua failed. The message begins with file and line; what it wrote before stays."""

    code = "LUA"


class StoreFull(HoldfastError):
    code = "FULL"


class Invalid(HoldfastError, ValueError):
    code = "INVALID"


class WrongArguments(Invalid):
    """The stored arguments of a job do not fit its task, which a release may have changed. The task did not start."""


class WrongSchema(HoldfastError):
    code = "SCHEMA"


class JobUnreadable(HoldfastError):
    """The record of this job cannot be read. Nothing was changed, and no other job is affected."""

    code = "DAMAGED"


class JobIsNewer(JobUnreadable):
    """A newer release of Holdfast wrote the record of this job: upgrade this one."""

    code = "NEWER"


class StoreUnavailable(HoldfastError, ConnectionError):
    """`maybe_done` is false if the command certainly had no effect: it was refused, or never sent."""

    code = "UNAVAILABLE"
    maybe_done = True


class NotReplicated(HoldfastError):
    """The jobs are stored on the primary, but no replica has said in time that it has them, too; see `acknowledge`."""

    code = "UNREPLICATED"
    maybe_done = True


class ServerStartFailed(StoreUnavailable):
    pass


class ResultTimeout(HoldfastError, TimeoutError):
    """`explanation` says why the job that was waited for has not ended, if that could be asked."""

    code = "TIMEOUT"
    explanation: Any = None  # an Explanation


class ResultTypeWarning(UserWarning):
    """A result does not fit the type that it is read as; its JSON value is returned instead."""


# The error for each code with which a Lua function refuses a call.
BY_CODE: dict[str, type[HoldfastError]] = {
    "NOTFOUND": JobNotFound,
    "NOWORKER": WorkerNotFound,
    "NOSCHEDULE": ScheduleNotFound,
    "NOSUBSCRIPTION": SubscriptionNotFound,
    "NOBATCH": BatchNotFound,
    "NOOPERATION": OperationNotFound,
    "NOFUNCTION": FunctionNotFound,
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
            Refused,
            LuaFailed,
            StoreFull,
            Invalid,
            WrongSchema,
            JobUnreadable,
            JobIsNewer,
        )
    },
}


def from_reply(message: str) -> HoldfastError | None:
    """Return the error with which a Lua function refused a call; None if the message has none of our codes."""
    code, _, text = message.partition(" ")
    kind = BY_CODE.get(code)
    return kind(text) if kind else None
