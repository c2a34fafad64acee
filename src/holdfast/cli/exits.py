"""Exit codes, the same for all commands."""

from __future__ import annotations

import click

from holdfast import errors

REFUSED, USAGE, NOT_FOUND, UNAVAILABLE, NOT_IN_TIME, IN_DANGER, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 4, 5, 6, 130, 141

WORDS = (
    (0, "all went well; also at the end of a command that goes on until it is interrupted"),
    (REFUSED, "the job failed, or something was refused; for doctor, there are warnings"),
    (USAGE, "the command line is wrong, or an app cannot be imported (by `work`: 1)"),
    (
        NOT_FOUND,
        "no such job, queue, worker, limit or schedule, no item to claim, or the server is not running",
    ),
    (UNAVAILABLE, "the server cannot be reached, or not be started"),
    (NOT_IN_TIME, "the job has not ended within --timeout"),
    (IN_DANGER, "for doctor: the server loses jobs, or works for nobody"),
    (INTERRUPTED, "interrupted by Ctrl-C before the end"),
    (PIPE_CLOSED, "whoever read the output went away"),
)

_CODES = (
    (errors.NotFound, NOT_FOUND),
    (errors.StoreUnavailable, UNAVAILABLE),
    (errors.ResultTimeout, NOT_IN_TIME),
    (errors.Invalid, USAGE),
    (errors.HoldfastError, REFUSED),
)


def exit_code(error: errors.HoldfastError) -> int:
    """Return the exit code of an error."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


class NotFound(click.ClickException):
    """There is nothing of this name."""

    exit_code = NOT_FOUND
    code = errors.NotFound.code
