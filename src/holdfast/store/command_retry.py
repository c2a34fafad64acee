"""The retry policy: what to do after a command failed, until it succeeds, its deadline passes, or a retry is futile.

`server_errors` decides which errors may recover. A command may be sent twice if its reply was lost: every function of
the library is safe to repeat. The policy is a generator, so that it is written once for the sync and the async store.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.store import library, server_errors
from holdfast.store.deadline import Deadline
from holdfast.store.driver import Action, sleep

if TYPE_CHECKING:
    from holdfast.store.address import Address

FIRST_PAUSE, MAX_PAUSE = 0.02, 0.25  # seconds between two attempts; each pause is twice the one before

Parts = tuple[Any, ...]
Retries = Generator[Parts | Action[None], Any, Any]


def retry_command(parts: Parts, error: Exception, address: Address, deadline: Deadline) -> Retries:
    """Yield commands to send and pauses after a command failed with `error`. Return the reply of the command.

    Raises:
        StoreUnavailable: the server cannot be reached; `maybe_done` is false if the command was certainly not executed.
        HoldfastError: the server refused the command.
    """
    try:
        return (yield from _retry(parts, error, address, deadline))
    except errors.StoreUnavailable as unavailable:
        unavailable.maybe_done = deadline.unanswered > 0
        raise


def _retry(parts: Parts, error: Exception, address: Address, deadline: Deadline) -> Retries:
    pause, cause, previous = FIRST_PAUSE, None, None
    while True:
        if server_errors.is_function_missing(error):
            try:
                return (yield from _load_library_and_send(parts, deadline))
            except Exception as next_error:
                error = next_error
        if isinstance(error, errors.HoldfastError) or not isinstance(error, server_errors.STORE_ERRORS):
            raise error
        deadline.unanswered += server_errors.is_non_local_key(error)
        # Prefer any other error over a timeout, which explains least.
        cause = cause if cause and isinstance(error, server_errors.TIMED_OUT) else error
        is_futile = not server_errors.may_recover(error, previous, address.topology)
        if deadline.remaining <= pause or not deadline.may_resend or is_futile:
            raise server_errors.translate(cause, address, deadline.seconds) from error
        yield sleep(pause)
        pause, previous = min(MAX_PAUSE, 2 * pause), error
        if deadline.blocks is not None:
            parts = _blocking_for(parts, deadline.block_seconds)
        try:
            return (yield parts)
        except Exception as next_error:
            error = next_error


def _blocking_for(parts: Parts, seconds: float) -> Parts:
    """Return a blocking command with another timeout: after BLOCK in XREAD, in milliseconds; else the last argument."""
    if parts[0] == "XREAD":
        place = parts.index("BLOCK") + 1
        return (*parts[:place], max(1, int(seconds * 1000)), *parts[place + 1 :])
    return (*parts[:-1], seconds)


def _load_library_and_send(parts: Parts, deadline: Deadline) -> Retries:
    unanswered = deadline.unanswered
    try:
        yield ("FUNCTION", "LOAD", library.text_with(parts[1]))
    except Exception as error:
        if not server_errors.is_library_loaded(error):
            raise
    finally:
        deadline.unanswered = unanswered  # an unanswered FUNCTION LOAD is not an unanswered command
    return (yield parts)
