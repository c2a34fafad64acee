"""Exit codes, the same for all commands."""

from __future__ import annotations

from holdfast import errors

REFUSED, USAGE, NOT_FOUND, UNAVAILABLE, NOT_IN_TIME, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 4, 5, 130, 141

WORDS = (
    (0, "all went well"),
    (REFUSED, "the job failed, or something was refused"),
    (USAGE, "the command line is wrong, or an app cannot be imported"),
    (NOT_FOUND, "there is no such job, or the server is not running"),
    (UNAVAILABLE, "the server cannot be reached"),
    (NOT_IN_TIME, "the job has not ended within --timeout"),
)

_CODES = (
    (errors.JobNotFound, NOT_FOUND),
    (errors.StoreUnavailable, UNAVAILABLE),
    (errors.ResultTimeout, NOT_IN_TIME),
    (errors.Invalid, USAGE),
    (errors.HoldfastError, REFUSED),
)


def exit_code(error: errors.HoldfastError) -> int:
    """Return the exit code of an error."""
    return next(code for kind, code in _CODES if isinstance(error, kind))
