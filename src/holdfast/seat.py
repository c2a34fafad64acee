"""Seats: under which names a program claims, without a worker around it.

A claim that is made again, because its answer was lost, gets the same jobs: that is known by the executor's name and a
number that rises. So one that is under way has a name to itself, a seat; there are as many as claims at once.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.names import new_id

LONGEST_NODE = 24


def node_name() -> str:
    """This host, as part of an executor's name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:LONGEST_NODE] or "node"


class Seat:
    """The name of one executor, and its claims."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_idle = False
        self.unanswered: dict[str, Any] | None = None
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number


class Seats:
    """The seats of this process. After a fork they are others."""

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, pid: int) -> None:
        self._pid = pid
        self._worker = f"{node_name()}/{new_id()[-8:]}"
        self._free: deque[Seat] = deque()
        self._count = 0
        self._lock = threading.Lock()

    @property
    def worker(self) -> str:
        if self._pid != os.getpid():
            self._begin(os.getpid())
        return self._worker

    @contextmanager
    def taken(self) -> Iterator[Seat]:
        """Have a seat, the one that was free last: its question may be unanswered."""
        worker, free = self.worker, self._free
        with self._lock:
            if free:
                seat = free.pop()
            else:
                self._count += 1
                seat = Seat(f"{worker}.{self._count}")
        try:
            yield seat
        finally:
            free.append(seat)
