"""Wait until replicas have what a connection has written; see the option `acknowledge`.

WAIT counts replicas that have all writes of its own connection. So it follows the command on the same connection, and
the command must write something, also if it is repeated: without a write WAIT counts all replicas, even frozen ones.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import NotReplicated
from holdfast.store.deadline import Deadline

MARGIN = 0.1  # seconds of the deadline that are left for the reply


def wait_command(deadline: Deadline) -> tuple[Any, ...]:
    """Return the command that waits for replicas until shortly before the deadline."""
    return ("WAIT", deadline.replicas, max(1, int((deadline.remaining - MARGIN) * 1000)))


def check_replicas(reply: Any, deadline: Deadline) -> None:
    """Check the reply of WAIT.

    Raises:
        NotReplicated: too few replicas have answered in time.
    """
    if isinstance(reply, Exception):
        raise NotReplicated(f"stored, but the replicas cannot be asked: {reply}")
    if reply < deadline.replicas:
        raise NotReplicated(
            f"stored, but {reply} of {deadline.replicas} replicas had it within {deadline.seconds:.3g} s"
        )
