"""The outcomes of items: checked, encoded and sent to the store."""

from __future__ import annotations

import os

from holdfast import errors
from holdfast.constants import MAX_DURATION, MAX_RESULT
from holdfast.job.failure import Failure, message_of
from holdfast.job.failure import encode as encode_failure
from holdfast.job.outcome import Error, Outcome, Release, Succeed
from holdfast.store import Steps, commands
from holdfast.store.commands import Finish, Lease
from holdfast.units import Duration, milliseconds

Buffer = bytes | bytearray | memoryview
GROUP = "failed"


def as_bytes(value: Buffer, what: str) -> bytes:
    if not isinstance(value, Buffer):
        raise errors.Invalid(f"expected {what} as bytes, got {type(value).__name__}; encode it first")
    return bytes(value)


def success(result: Buffer) -> Succeed:
    data = as_bytes(result, "a result")
    if len(data) > MAX_RESULT:
        raise errors.TooBig(
            f"result is {len(data)} bytes (limit {MAX_RESULT}); store it elsewhere and return a reference"
        )
    return Succeed(data)


def failure(message: str, *, final: bool, delay: Duration | None) -> Error:
    described = Failure(type="Failed", message=message_of(message), group=GROUP)
    wait = None if delay is None else milliseconds(delay, what="delay", maximum=MAX_DURATION)
    return Error(encode_failure(described), GROUP, final=final, delay=wait)


def release(reason: str, *, delay: Duration) -> Release:
    return Release(message_of(reason), milliseconds(delay, what="delay", maximum=MAX_DURATION))


def end(held: Lease, created: int, outcome: Outcome, *, token: str, unstarted: bool = False) -> Steps[bool]:
    """End an item. Return False if its lease was lost.

    A repetition with the same `token` gets the same reply.
    """
    finish = Finish(held.id, held.attempt, outcome, os.getpid(), created=created, unstarted=unstarted)
    finished = yield commands.finish(held.executor, [finish], token=token)
    answer = finished.answers[0]
    if refusal := errors.BY_CODE.get("" if answer == "LOST" else answer):
        raise refusal(f"the store refused this outcome of item {held.id}: {outcome!r}"[:500])
    return bool(answer == "OK")
