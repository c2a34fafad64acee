"""Exit codes, the same for all commands."""

from __future__ import annotations

from holdfast import errors

REFUSED, USAGE, NOT_FOUND, UNAVAILABLE, TIMED_OUT, DANGER, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 4, 5, 6, 130, 141

MEANINGS = (
    (0, "success; also when Ctrl-C ends a command that runs until it is interrupted"),
    (REFUSED, "the job failed, or a request was refused; for doctor: there are warnings; for fsck: findings remain"),
    (USAGE, "the command line is wrong, or the app cannot be imported (for `work`: 1)"),
    (NOT_FOUND, "no such job, queue, worker, limit, schedule or batch; no item to claim; the server is not running"),
    (UNAVAILABLE, "the server cannot be reached or started"),
    (TIMED_OUT, "--timeout elapsed first"),
    (DANGER, "for doctor: the server can lose jobs, or refuses to work"),
    (INTERRUPTED, "interrupted by Ctrl-C"),
    (BROKEN_PIPE, "broken pipe: the reader of the output closed it"),
)

_CODES = (
    (errors.NotFound, NOT_FOUND),
    (errors.StoreUnavailable, UNAVAILABLE),
    (errors.ResultTimeout, TIMED_OUT),
    (errors.Invalid, USAGE),
    (errors.HoldfastError, REFUSED),
)


def exit_code(error: errors.HoldfastError) -> int:
    """Return the exit code of an error."""
    return next(code for kind, code in _CODES if isinstance(error, kind))
