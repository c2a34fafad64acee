"""The connections of a process, or of an event loop: idle ones, and those on which a command blocks.

After a failover behind one address they all lead to a server that is not the primary any more. The first reply that
says so ends their generation: idle connections are closed at once, blocked ones are woken, and those on which a command
is under way are closed when it is answered. The next command is sent on a new connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Connection(Protocol):
    """What a pool keeps: see `line`."""

    generation: int

    @property
    def is_fresh(self) -> bool: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class Pool(Generic[C]):
    """Connections that lead to one address. Threads may share it."""

    def __init__(self) -> None:
        self.generation = 0  # of the connections that are made from now on
        self._idle: list[C] = []
        self._blocked: set[C] = set()

    def take(self) -> C | None:
        """Take an idle connection that can be used, if there is one."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.generation == self.generation and connection.is_fresh:
                return connection
            connection.close()
        return None

    def give_back(self, connection: C) -> None:
        """Keep a connection whose command was answered, unless its generation has ended."""
        if connection.generation == self.generation:
            self._idle.append(connection)
        else:
            connection.close()

    def discard_all(self, connection: C) -> None:
        """End the generation of a connection whose server is not the primary."""
        connection.close()
        if connection.generation != self.generation:  # it has ended, and newer connections are in use
            return
        self.generation += 1
        self.close_idle()
        for blocked in list(self._blocked):
            blocked.wake()

    def close_idle(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:  # there are no more; other threads may take some, too
                return

    @contextmanager
    def blocking(self, connection: C) -> Iterator[None]:
        """Have a connection woken if its generation ends while a command blocks on it."""
        self._blocked.add(connection)
        try:
            yield
        finally:
            self._blocked.discard(connection)
