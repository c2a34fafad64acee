"""A connection to a server: sends a command and receives its reply before the deadline passes.

The client library connects, authenticates and names errors. Its overhead per command exceeds the command itself, so
commands are exchanged here, with two system calls and the parser that the client library also uses.

A connection carries one command at a time; only behind a blocking command another one may be pipelined. After an error
it must be closed: a late reply must not answer another command. An error reply of the server is a reply like any other.
"""

from __future__ import annotations

import asyncio
import select
import socket
import weakref
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import hiredis

from holdfast.store.deadline import Deadline

LATE, GRACE = 0.05, 0.1  # seconds: an event loop that wakes up this late was blocked itself, and gets some more time
_POLL_INTERVAL = 0.1  # seconds that a system call waits before the deadline is checked
_RECEIVE_BYTES = 65536  # in one system call
_SEND_BYTES = 262144  # in one system call: it would not return while the other end accepts a little
_NOT_YET = (BlockingIOError, TimeoutError)
_STALE = "the server is no longer the primary"


class Connection:
    """A connection on which a thread waits."""

    def __init__(self, connection: Any, generation: int = 0) -> None:
        self.generation = generation  # see `pool`
        self._is_woken = False
        self._connection = connection
        self._socket: socket.socket = connection._sock
        self._reader = _reader(connection)
        self._poll = _poll(self._socket)
        _set_timeouts(self._socket)
        # Close the socket explicitly, even if the garbage collector takes both in any order.
        weakref.finalize(self, connection.disconnect).atexit = False

    @property
    def is_usable(self) -> bool:
        """Whether the server has not closed the connection, and no unexpected data has arrived."""
        return not self._poll.poll(0) and not self._reader.has_data()

    def exchange(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send a command and return its reply.

        Raises:
            TimeoutError: the deadline passed before the reply arrived.
            OSError: the connection is broken.
        """
        data = hiredis.pack_command(parts)
        deadline.unanswered += 1
        self._send(data, deadline)
        if deadline.on_sent:
            deadline.call_on_sent()
        self._receive(deadline)
        while (reply := self._reader.gets()) is False:
            if deadline.max_remaining <= 0 and not self._poll.poll(0):
                raise TimeoutError("the reply arrives too slowly")
            self._receive(deadline)
        deadline.unanswered -= 1
        return reply

    def _send(self, data: bytes, deadline: Deadline) -> None:
        sent = 0
        while sent < len(data):
            try:
                is_short = sent == 0 and len(data) <= _SEND_BYTES
                sent += self._socket.send(data if is_short else memoryview(data)[sent : sent + _SEND_BYTES])
            except _NOT_YET:
                if deadline.has_passed:
                    raise TimeoutError("the server accepts no data") from None
            if sent < len(data) and deadline.max_remaining <= 0:
                raise TimeoutError("the server accepts data too slowly")

    def _receive(self, deadline: Deadline) -> None:
        """Feed received data to the parser. After the deadline, try once more: perhaps this process was suspended."""
        deadline_passed = False
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
                break
            except _NOT_YET:
                if deadline_passed:
                    raise TimeoutError("no answer") from None
                if self._is_woken:
                    raise ConnectionError(_STALE) from None
                deadline_passed = deadline.has_passed
        if not data:
            raise ConnectionError("the server closed the connection")
        self._reader.feed(data)

    def wake(self) -> None:
        """End the wait for a reply soon. Only the waiting thread may close the connection."""
        self._is_woken = True

    def close(self) -> None:
        self._connection.disconnect()


class AsyncConnection(asyncio.Protocol):
    """A connection of an event loop."""

    def __init__(self, connection: Any, generation: int = 0) -> None:
        self.generation = generation
        self._loop = asyncio.get_running_loop()
        # The writer would close the connection when it is collected.
        self._writer, connection._writer, connection._reader = connection._writer, None, None
        self._transport: asyncio.Transport = self._writer.transport
        self._reader = _reader(connection)
        self._poll = _poll(self._transport.get_extra_info("socket"))
        self._replies: deque[asyncio.Future[Any]] = deque()  # in the order of the commands
        self._due = 0.0  # when the first reply times out
        self._last = 0.0  # the latest time to which that may be postponed
        self._unsent = 0  # bytes, at the last check
        self._timer: asyncio.TimerHandle | None = None  # set by this command, or by an earlier one
        self.closed = self._loop.create_future()
        self._transport.set_protocol(self)

    @property
    def is_usable(self) -> bool:
        """Whether it can be used, like that of a `Connection`."""
        return not self._transport.is_closing() and not self._poll.poll(0) and not self._reader.has_data()

    async def exchange(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send a command and return its reply, like `Connection.exchange`."""
        deadline.unanswered += 1
        pending = self.send(parts)
        if deadline.on_sent:
            deadline.call_on_sent()
        now = self._loop.time()
        self._due, self._last = now + deadline.remaining, now + deadline.max_remaining
        if self._timer is None or self._timer.when() > self._due:
            self._check_when_due()
        reply = await pending
        deadline.unanswered -= 1
        return reply

    def send(self, parts: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Send a command, even behind one that is not answered yet. Return its future reply."""
        data = hiredis.pack_command(parts)
        reply = self._loop.create_future()
        self._replies.append(reply)
        self._transport.write(data)
        self._unsent = len(data)
        return reply

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self._reply_received(reply)
        except ConnectionError as error:  # a violation of the protocol
            self._fail(error)
            return
        if self._replies:  # a part of a reply has arrived
            self._postpone()

    def _reply_received(self, reply: Any) -> None:
        pending = self._replies.popleft() if self._replies else None
        if pending is None or pending.done():  # a reply without a command
            self.close()
        else:
            pending.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ConnectionError(str(error or "the server closed the connection")))
        if self._timer:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail(self, error: Exception) -> None:
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(error)

    def _postpone(self) -> None:
        self._due = max(self._due, min(self._loop.time() + GRACE, self._last))

    def _check_when_due(self) -> None:
        """Set the timer. It is shared by many commands, as most are answered long before."""
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._check)

    def _check(self, overdue: asyncio.Future[Any] | None = None) -> None:
        """Fail a reply that is overdue at two checks in a row: perhaps this process was suspended before the first."""
        self._timer = None
        if not self._replies:
            return
        unsent, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        if 0 < self._unsent < unsent:  # the command is still being sent
            self._postpone()
        if self._loop.time() < self._due:
            self._check_when_due()
        elif self._replies[0] is overdue:
            self._fail(TimeoutError("no answer"))
        else:
            self._timer = self._loop.call_later(_grace(self._due), self._check, self._replies[0])

    def wake(self) -> None:
        """End the wait for a reply."""
        self._fail(ConnectionError(_STALE))
        self.close()

    def close(self) -> None:
        self._transport.abort()


class BlockingPipeline:
    """Pipelines one command behind a blocking one; the server executes it as soon as the first is answered."""

    def __init__(self) -> None:
        self._connection: AsyncConnection | None = None
        self._reply: asyncio.Future[Any] | None = None

    @property
    def is_used(self) -> bool:
        """Whether a command was pipelined."""
        return self._reply is not None

    def send(self, parts: tuple[Any, ...]) -> bool:
        """Pipeline a command, if the first one blocks and none was pipelined yet. Return whether it was sent."""
        if self._connection is None or self.is_used:
            return False
        self._reply = self._connection.send(parts)
        self._reply.add_done_callback(_ignore_error)
        return True

    async def exchange(self, connection: AsyncConnection, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send the blocking command. Return the reply of the last command, or raises the error of the first."""
        self._connection = connection
        try:
            reply = await connection.exchange(parts, deadline)
        finally:
            self._connection = None
        if isinstance(reply, Exception):
            raise reply
        return reply if self._reply is None else await self._reply


def _ignore_error(reply: asyncio.Future[Any]) -> None:
    """Mark an error as retrieved: the first reply has raised it already."""
    if not reply.cancelled():
        reply.exception()


def _reader(connection: Any) -> hiredis.Reader:
    return hiredis.Reader(protocolError=ConnectionError, replyError=connection._parser.parse_error)


def _poll(sock: socket.socket) -> select.poll:
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return poll


def _set_timeouts(sock: socket.socket) -> None:
    """Let system calls time out every `_POLL_INTERVAL` seconds by socket options.

    Python's own timeout costs a second system call. TLS and gevent sockets use Python's timeout.
    """
    if type(sock).__module__ != "socket":
        sock.settimeout(_POLL_INTERVAL)
        return
    sock.setblocking(True)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, _timeval(_POLL_INTERVAL))


def _timeval(seconds: float) -> bytes:
    import struct

    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Cancel a block that takes longer than `seconds`.

    Raises:
        TimeoutError: it took longer.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        due = loop.time() + seconds
        timer = loop.call_at(due, lambda: loop.call_later(_grace(due), _end, limit))
        try:
            yield
        finally:
            timer.cancel()


def _end(limit: asyncio.Timeout) -> None:
    with suppress(RuntimeError):  # the block has ended meanwhile
        limit.reschedule(asyncio.get_running_loop().time())


def _grace(due: float) -> float:
    """Return how long to wait after the deadline, for data that arrived while the event loop was blocked."""
    return GRACE if asyncio.get_running_loop().time() - due > LATE else 0.0
