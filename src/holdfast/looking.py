"""Looking into jobs: what one does just now, and what it uses of its machine."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from holdfast import commands, errors
from holdfast.durations import Duration, humanize, milliseconds
from holdfast.names import check_id, new_id
from holdfast.usage import JobUsage, read_usage
from holdfast.verbs import Pop, Steps, pause

PATIENCE = "10s"  # a worker answers within some milliseconds, or three seconds if a job lets nobody else speak
NO_LOG = 2**40  # the number of a block that no log has


LOOK_EVERY = 0.05  # seconds, at a job that is about to start


class StackAnswer(msgspec.Struct, omit_defaults=True):
    """What a worker answers: the stack, or why there is none; and whether there may be one soon."""

    stack: str = ""
    why: str = ""
    soon: bool = False


def stack(_: Any, id: str, /, *, timeout: Duration = PATIENCE) -> Steps[str]:
    """Return what a running job does just now: the stack of each thread of its process. It is not stopped for that.

    Of a job that runs as a thread or coroutine among others, only its own.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it does not run.
        ResultTimeout: its worker does not answer.
    """
    patience = milliseconds(timeout, what="timeout", least=1)
    deadline = time.monotonic() + patience / 1000
    while True:
        worker, key = yield commands.ask("stack", id=check_id(id), inbox=new_id())
        if worker.startswith("detached/"):
            raise errors.WrongState(f"job {id} is an item that was detached: no process is known that works on it")
        popped = yield Pop(key, max(deadline - time.monotonic(), 0.001))
        if popped is None:
            raise errors.ResultTimeout(
                f"worker {worker}, which runs job {id}, has not answered within {humanize(patience)}: it is dead, "
                "stopped or cannot reach the store; `holdfast workers` says when it was last heard of"
            )
        answer = msgspec.json.decode(popped[1], type=StackAnswer)
        if not answer.why:
            return answer.stack
        if not answer.soon or time.monotonic() > deadline:
            raise errors.WrongState(f"job {id} {answer.why}")
        yield pause(LOOK_EVERY)


def usage(_: Any, id: str, /, *, attempt: int | None = None) -> Steps[JobUsage | None]:
    """Return memory and CPU of a job over time; of its last attempt, if none is named.

    None if nothing is known: it ran for less than some seconds, or has no process of its own.

    Raises:
        JobNotFound: there is none of this id.
    """
    found = yield commands.logs(check_id(id), attempt, block=NO_LOG)
    return read_usage(found.attempt, found.blocks[-1]) if -1 in found.blocks else None
