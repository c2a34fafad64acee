"""Everything that can go wrong, as one tree.

    HoldfastError
    ├── JobNotFound        NOTFOUND  there is no job of this id
    ├── JobExists          EXISTS    there is one already, and the call asked for an error
    ├── WrongState         STATE     the job is in a state that the call does not apply to
    ├── WorkDone           DONE      the job has done its work, so only a forced retry does it again
    ├── LeaseLost          LOST      this attempt no longer has the right to run the job
    ├── JobBlocked         BLOCKED   other jobs depend on this one
    ├── DependencyCycle    CYCLE     a job would wait for itself
    ├── TooBig             TOOBIG    a payload, result or checkpoint is over its limit
    ├── StoreFull          FULL      the server is out of memory; nothing was stored
    ├── Invalid            INVALID   an argument is not acceptable; it is a ValueError too
    ├── WrongSchema        SCHEMA    the data was written by another release
    ├── JobUnreadable      DAMAGED   the job's record is damaged
    │   └── JobIsNewer     NEWER     a newer release wrote it
    ├── StoreUnavailable             the server cannot be reached, or does not answer
    │   └── ServerStartFailed        the embedded server cannot be started
    ├── JobFailed                    `result()` of a job that failed; its cause is the traceback of the attempt
    ├── JobCancelled                 `result()` of a job that was cancelled
    └── ResultTimeout                the job did not end in the time that `result()` was given

`ResultTypeWarning` is a warning: a result does not fit the type that it is read as.

The scripts refuse with `CODE words`; `from_reply` turns that into the class of the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.text import printable

if TYPE_CHECKING:
    from holdfast.job.job import Job


class HoldfastError(Exception):
    """What every error of Holdfast is."""

    code = "ERROR"


class JobNotFound(HoldfastError, LookupError):
    code = "NOTFOUND"


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
    """The record of this job cannot be read. Nothing was changed, and no other job is concerned."""

    code = "DAMAGED"


class JobIsNewer(JobUnreadable):
    """A newer release wrote the record of this job: upgrade this one."""

    code = "NEWER"


class StoreUnavailable(HoldfastError, ConnectionError):
    """`maybe_done` is false if it is known that the command was not carried out: it was refused, or never sent."""

    code = "UNAVAILABLE"
    maybe_done = True


class ServerStartFailed(StoreUnavailable):
    code = "UNAVAILABLE"


class RemoteTraceback(Exception):
    """The traceback of a job's last failed attempt, as text: the `__cause__` of JobFailed, so Python prints both."""

    def __init__(self, traceback: str) -> None:
        super().__init__(traceback)
        self.traceback = traceback

    def __str__(self) -> str:
        return f'\n"""\n{printable(self.traceback.rstrip(), lines=True)}\n"""'


class JobFailed(HoldfastError):
    """A job ended in the state `failed`. `job` is that job, with its `group`, `failure` and `attempts`.

    Its `__cause__` is a RemoteTraceback, if the last failed attempt left a traceback.
    """

    code = "FAILED"

    def __init__(self, words: str, job: Job[Any]) -> None:
        super().__init__(words)
        self.job = job
        if job.failure and job.failure.traceback:
            self.__cause__ = RemoteTraceback(job.failure.traceback)


class JobCancelled(HoldfastError):
    """A job ended in the state `cancelled`. `job` is that job."""

    code = "CANCELLED"

    def __init__(self, words: str, job: Job[Any]) -> None:
        super().__init__(words)
        self.job = job


class ResultTimeout(HoldfastError, TimeoutError):
    code = "TIMEOUT"


class ResultTypeWarning(UserWarning):
    """A result is returned as the JSON value that is stored: it does not fit the type that it is read as."""


BY_CODE: dict[str, type[HoldfastError]] = {
    kind.code: kind
    for kind in (
        JobNotFound,
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
}


def from_reply(message: str) -> HoldfastError | None:
    """Return the error that a script refused with, or None if the message is not a refusal of ours."""
    code, _, words = message.partition(" ")
    kind = BY_CODE.get(code)
    return kind(words) if kind else None
