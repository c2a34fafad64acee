"""Pools of connections to one address, for the threads of a process and for an event loop.

After a failover, all connections lead to a server that is no longer the primary. The first reply that shows this ends
their generation: idle connections are closed at once, blocked ones are woken, and busy ones are closed when their
command is answered. The next command opens a new connection, to where its `Route` leads then. With Sentinels or a
cluster, a generation also ends when the route leads elsewhere, as the old server may be frozen and show nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.store.connection import AsyncConnection, BlockingPipeline, Connection, time_limit
from holdfast.store.deadline import Deadline
from holdfast.store.redis_client import new_async_client, new_client, new_connection
from holdfast.store.replicas import check_replicas, wait_command
from holdfast.store.server_errors import STORE_ERRORS, TIMED_OUT, UNREACHABLE, is_not_primary, translate
from holdfast.store.topology import Place, Route

if TYPE_CHECKING:
    from holdfast.store.address import Address, Target

C = TypeVar("C", Connection, AsyncConnection)
Readers = dict[str, Callable[[Any], Any]]


class Connections(Generic[C]):
    """The idle and the blocked connections of a pool. Threads may share it."""

    def __init__(self) -> None:
        self.generation = 0
        self._place: Place | None = None
        self._idle: list[C] = []
        self._blocked: set[C] = set()

    def take(self) -> C | None:
        """Take an idle connection that is still usable; None if there are none."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.generation == self.generation and connection.is_usable:
                return connection
            connection.close()
        return None

    def put_back(self, connection: C) -> None:
        """Keep a connection whose command was answered, unless its generation has ended."""
        if connection.generation == self.generation:
            self._idle.append(connection)
        else:
            connection.close()

    def end_generation(self, connection: C) -> None:
        """End the generation of a connection whose server is not the primary."""
        connection.close()
        if connection.generation == self.generation:  # else it has ended, and newer connections are in use
            self._end()

    def begin(self, place: Place | None) -> int:
        """Return the generation of a connection to this place; the one of another place ends."""
        before, self._place = self._place, place
        if before not in (None, place):
            self._end()
        return self.generation

    def _end(self) -> None:
        self.generation += 1
        self.close_idle()
        for blocked in list(self._blocked):
            blocked.wake()

    def close_idle(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:  # checking first would race with other threads
                return

    @contextmanager
    def track_blocked(self, connection: C) -> Iterator[None]:
        """Wake a connection on which a command blocks if its generation ends."""
        self._blocked.add(connection)
        try:
            yield
        finally:
            self._blocked.discard(connection)


class Pool:
    """The connections of a process.

    The client library connects synchronously, and a name lookup cannot be interrupted. So a thread connects, and is
    abandoned when the deadline passes.
    """

    def __init__(self, target: Target, address: Address) -> None:
        self._client = new_client(target, address)
        self._route = Route(target, address)
        self._readers: Readers = dict(self._client.response_callbacks)
        self._connections: Connections[Connection] = Connections()
        self.is_broken = False  # a connection failed, or could not be opened

    def exchange(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send a command and return its reply before the deadline passes."""
        try:
            connection = self._connections.take() or self._connect(deadline)
            try:
                if deadline.blocks is None:
                    reply = self._exchange(connection, parts, deadline)
                else:
                    with self._connections.track_blocked(connection):
                        reply = connection.exchange(parts, deadline)
            except BaseException as error:  # interrupted or broken
                connection.close()
                if isinstance(error, TIMED_OUT):
                    self._connections.close_idle()  # they lead to the same server: each would cost a full timeout
                raise
        except UNREACHABLE as error:
            self.is_broken = True
            self._route.failed(error)
            raise
        self._put_back(connection, reply)
        return _read(parts, reply, self._readers)

    def _exchange(self, connection: Connection, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        reply = connection.exchange(parts, deadline)
        if deadline.replicas and not isinstance(reply, Exception):
            check_replicas(connection.exchange(wait_command(deadline), deadline), deadline)
        return reply

    def _put_back(self, connection: Connection, reply: Any) -> None:
        if isinstance(reply, Exception) and is_not_primary(reply):
            self._route.failed(reply)
            self._connections.end_generation(connection)
        else:
            self._connections.put_back(connection)

    def _connect(self, deadline: Deadline) -> Connection:
        opening: Future[tuple[Any, int]] = Future()
        try:
            threading.Thread(target=self._open, args=(opening,), name="holdfast-connect", daemon=True).start()
        except RuntimeError:  # no thread can be started: the interpreter is shutting down
            self._open(opening)
        try:
            return Connection(*opening.result(deadline.seconds_left()))
        except TimeoutError:
            opening.add_done_callback(_disconnect)
            raise

    def _open(self, opening: Future[tuple[Any, int]]) -> None:
        try:
            place = self._route.find()
            generation = self._connections.begin(place)  # before connecting: the generation may end meanwhile
            connection = new_connection(self._client, place)
            connection.connect()
        except BaseException as error:
            opening.set_exception(error)
        else:
            opening.set_result((connection, generation))

    def close(self) -> None:
        self._connections.close_idle()


def _disconnect(opening: Future[tuple[Any, int]]) -> None:
    """Close a connection that was opened too late."""
    if opening.exception() is None:
        opening.result()[0].disconnect()


class AsyncPool:
    """The connections of an event loop."""

    def __init__(self, target: Target, address: Address) -> None:
        self._address = address
        self._client = new_async_client(target, address)
        self._route = Route(target, address)
        self._readers: Readers = dict(self._client.response_callbacks)
        self._connections: Connections[AsyncConnection] = Connections()
        self._open: set[AsyncConnection] = set()
        self._is_closed = False
        self.is_broken = False  # a connection failed, or could not be opened

    async def exchange(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send a command and return its reply before the deadline passes."""
        try:
            connection = self._connections.take() or await self._connect(deadline)
            try:
                if deadline.blocks is None:
                    reply = await self._exchange(connection, parts, deadline)
                else:
                    with self._connections.track_blocked(connection):
                        reply = await connection.exchange(parts, deadline)
            except BaseException as error:  # cancelled or broken
                connection.close()
                if isinstance(error, TIMED_OUT):
                    self._connections.close_idle()  # they lead to the same server: each would cost a full timeout
                raise
        except UNREACHABLE as error:
            self.is_broken = True
            self._route.failed(error)
            raise
        self._put_back(connection, reply)
        return _read(parts, reply, self._readers)

    async def _exchange(self, connection: AsyncConnection, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        reply = await connection.exchange(parts, deadline)
        if deadline.replicas and not isinstance(reply, Exception):
            check_replicas(await connection.exchange(wait_command(deadline), deadline), deadline)
        return reply

    async def block(self, parts: tuple[Any, ...], deadline: Deadline, pipeline: BlockingPipeline) -> Any:
        """Send a blocking command once. Return its reply, or that of the command pipelined behind it."""
        try:
            connection = self._connections.take() or await self._connect(deadline)
            try:
                with self._connections.track_blocked(connection):
                    reply = await pipeline.exchange(connection, parts, deadline)
            except BaseException as error:
                (self._connections.end_generation if is_not_primary(error) else AsyncConnection.close)(connection)
                raise
            self._put_back(connection, reply)
            return _raise_error(reply)
        except STORE_ERRORS as error:
            if isinstance(error, UNREACHABLE) or is_not_primary(error):
                self._route.failed(error)
            raise translate(error, self._address, deadline.seconds) from None

    def _put_back(self, connection: AsyncConnection, reply: Any) -> None:
        if isinstance(reply, Exception) and is_not_primary(reply):
            self._route.failed(reply)
            self._connections.end_generation(connection)
        else:
            self._connections.put_back(connection)

    async def _find_place(self, deadline: Deadline) -> Place | None:
        if self._route.is_fixed:
            return None
        async with time_limit(deadline.seconds_left()):
            return await asyncio.to_thread(self._route.find)

    async def _connect(self, deadline: Deadline) -> AsyncConnection:
        place = await self._find_place(deadline)
        cancellations, generation = _cancellations(), self._connections.begin(place)
        opened = new_connection(self._client, place)
        try:
            async with time_limit(deadline.seconds_left()):
                await opened.connect()
            if _cancellations() > cancellations:  # `wait_for` of Python 3.11 may swallow one
                raise asyncio.CancelledError
            if self._is_closed:
                raise ConnectionError("the store was closed while this connection was opened")
        except BaseException:
            await opened.disconnect(nowait=True)
            raise
        connection = AsyncConnection(opened, generation)
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    async def close(self) -> None:
        self._is_closed = True
        connections = list(self._open)
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([connection.closed for connection in connections])  # `gather` would pass on a cancel


def _cancellations() -> int:
    """Return how many times this task was cancelled."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _read(parts: tuple[Any, ...], reply: Any, readers: Readers) -> Any:
    """Return a reply as the client library would, or raise the error that it is."""
    value, reader = _raise_error(reply), readers.get(parts[0])
    return reader(value) if reader else value


def _raise_error(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply
