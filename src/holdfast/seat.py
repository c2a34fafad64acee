"""Seats: under which names a program claims, without a worker around it.

A claim that is made again, because its answer was lost, gets the same jobs: that is known by the executor's name and a
number that rises. So one that is under way has a name to itself, a seat; there are as many as claims at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from holdfast.holding import Holding
from holdfast.names import new_id, node_name


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


class Room:
    """The seats of one process, under the name of a worker, and what it holds."""

    def __init__(self) -> None:
        self.worker = f"{node_name()}/{new_id()[-8:]}"
        self.held = Holding()
        self._free: list[Seat] = []
        self._count = 0
        self.lock = threading.Lock()

    @contextmanager
    def seat(self) -> Iterator[Seat]:
        """Have a seat to oneself: one whose question is unanswered, else the one that was free last."""
        seat = self._take_unanswered() or self._take_last()
        try:
            yield seat
        finally:
            self._free.append(seat)

    @contextmanager
    def unanswered_seat(self) -> Iterator[Seat | None]:
        """Have a seat that nobody sits on and whose question was never answered, if there is one."""
        seat = self._take_unanswered()
        try:
            yield seat
        finally:
            if seat:
                self._free.append(seat)

    def _take_unanswered(self) -> Seat | None:
        with self.lock:
            seat = next((seat for seat in self._free if seat.unanswered), None)
            if seat:
                self._free.remove(seat)
            return seat

    def _take_last(self) -> Seat:
        with self.lock:
            if self._free:
                return self._free.pop()
            self._count += 1
            return Seat(f"{self.worker}.{self._count}")


class Seats:
    """The room of this process. One that is forked has another, from its first moment."""

    def __init__(self) -> None:
        self.room = Room()
        _all.add(self)

    def change_rooms(self) -> None:
        self.room = Room()


_all: WeakSet[Seats] = WeakSet()


def _after_fork() -> None:
    for seats in list(_all):
        seats.change_rooms()


os.register_at_fork(after_in_child=_after_fork)
