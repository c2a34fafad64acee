"""Running jobs: their stacks and resource usage."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from holdfast import errors
from holdfast.constants import USAGE_BLOCK
from holdfast.job.usage import JobUsage, read_usage
from holdfast.names import check_id, new_id
from holdfast.store import Steps, Stores, commands, pop_message, sleep
from holdfast.units import Duration, humanize, milliseconds

STACK_TIMEOUT = "10s"  # a worker answers within milliseconds, or three seconds if a job holds the interpreter
POLL_INTERVAL = 0.05  # seconds, while a job is about to start
NO_BLOCK = 2**40  # a block number that no log reaches: the response contains only the usage


class StackResponse(msgspec.Struct, omit_defaults=True):
    """A worker's response: the stack, or why there is none, and whether to ask again."""

    stack: str = ""
    why: str = ""
    soon: bool = False


def stack(self: Stores, id: str, /, *, timeout: Duration = STACK_TIMEOUT) -> Steps[str]:
    """Return the stack of each thread of a running job's process, without stopping it.

    A job that runs as a thread or coroutine among others shows only its own.

    Raises:
        JobNotFound: no job has this id.
        WrongState: it is not running.
        ResultTimeout: its worker does not answer.
    """
    limit = milliseconds(timeout, what="timeout", minimum=1)
    deadline = time.monotonic() + limit / 1000
    while True:
        worker, key = yield commands.request("stack", id=check_id(id), inbox=new_id())
        if worker.startswith("detached/"):
            raise errors.WrongState(f"job {id} is a detached item: no process is known to work on it")
        popped = yield pop_message(self, key, max(deadline - time.monotonic(), 0.001))
        if popped is None:
            raise errors.ResultTimeout(
                f"worker {worker}, which runs job {id}, has not answered within {humanize(limit)}: it is dead, stopped"
                " or cannot reach the server; `holdfast workers` shows its last heartbeat"
            )
        response = msgspec.json.decode(popped[1], type=StackResponse)
        if not response.why:
            return response.stack
        if not response.soon or time.monotonic() > deadline:
            raise errors.WrongState(f"job {id} {response.why}")
        yield sleep(POLL_INTERVAL)


def usage(_: Any, id: str, /, *, attempt: int | None = None) -> Steps[JobUsage | None]:
    """Return memory and CPU of a job over time, of its last attempt unless one is given.

    None if nothing was recorded: it ran only for seconds, or has no process of its own.

    Raises:
        JobNotFound: no job has this id.
    """
    found = yield commands.logs(check_id(id), attempt, block=NO_BLOCK)
    return read_usage(found.attempt, found.blocks[USAGE_BLOCK]) if USAGE_BLOCK in found.blocks else None
