"""A line to a server: a command goes out, its reply comes in, within the time that a call has.

The client library connects, and knows passwords, certificates and the words of errors. What it does for each command
takes longer than the command itself, so that is done here: two system calls, and the parser that it uses too.

A line takes one command at a time; but behind one that blocks another may be sent. After an error it must be closed:
the reply may still come, and must not answer another command. An error that the server answers is a reply like any
other.
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

LATE, GRACE = 0.05, 0.1  # seconds: an event loop that wakes up so late has stood still, and gets some more
_PIECE = 0.1  # seconds that a reply is waited for until the time that is left is looked at
_RECEIVED = 65536  # bytes at once
_SENT = 262144  # bytes at once: the system would go on as long as the other end takes a little
_NOT_YET = (BlockingIOError, TimeoutError)
_STALE = "the server is not the primary any more"


class Line:
    """A line on which a thread waits."""

    def __init__(self, connection: Any, generation: int = 0) -> None:
        self.generation = generation  # see `pool`
        self._is_woken = False
        self._connection = connection
        self._socket: socket.socket = connection._sock
        self._reader = _reader(connection)
        self._poll = _poll(self._socket)
        _wait_in_pieces(self._socket)
        # Whoever is collected with it, in whatever order: the socket is closed, and not by being forgotten.
        weakref.finalize(self, connection.disconnect).atexit = False

    @property
    def is_fresh(self) -> bool:
        """Whether it can be used: the server has not closed it, and nothing waits to be read."""
        return not self._poll.poll(0) and not self._reader.has_data()

    def exchange(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send a command and return its reply.

        Raises:
            TimeoutError: the time was over before the reply was there.
            OSError: the connection is broken.
        """
        data = hiredis.pack_command(parts)
        deadline.unanswered += 1
        self._send(data, deadline)
        if deadline.meanwhile:
            deadline.do_meanwhile()
        self._receive(deadline)
        while (reply := self._reader.gets()) is False:
            if deadline.remaining_at_most <= 0 and not self._poll.poll(0):
                raise TimeoutError("the reply comes too slowly")
            self._receive(deadline)
        deadline.unanswered -= 1
        return reply

    def _send(self, data: bytes, deadline: Deadline) -> None:
        sent = 0
        while sent < len(data):
            try:
                is_short = sent == 0 and len(data) <= _SENT
                sent += self._socket.send(data if is_short else memoryview(data)[sent : sent + _SENT])
            except _NOT_YET:
                if deadline.has_passed:
                    raise TimeoutError("the server takes no more") from None
            if sent < len(data) and deadline.remaining_at_most <= 0:
                raise TimeoutError("the server takes too little")

    def _receive(self, deadline: Deadline) -> None:
        """Add what has come to the reply. When time is over, look once more: perhaps it was us who stood still."""
        was_over = False
        while True:
            try:
                data = self._socket.recv(_RECEIVED)
                break
            except _NOT_YET:
                if was_over:
                    raise TimeoutError("no answer") from None
                if self._is_woken:
                    raise ConnectionError(_STALE) from None
                was_over = deadline.has_passed
        if not data:
            raise ConnectionError("the server closed the connection")
        self._reader.feed(data)

    def wake(self) -> None:
        """End the wait for a reply, soon. The thread that waits closes the line: no other may."""
        self._is_woken = True

    def close(self) -> None:
        self._connection.disconnect()


class AsyncLine(asyncio.Protocol):
    """A line of an event loop."""

    def __init__(self, connection: Any, generation: int = 0) -> None:
        self.generation = generation
        self._loop = asyncio.get_running_loop()
        # It would close the connection if it were forgotten.
        self._writer, connection._writer, connection._reader = connection._writer, None, None
        self._transport: asyncio.Transport = self._writer.transport
        self._reader = _reader(connection)
        self._poll = _poll(self._transport.get_extra_info("socket"))
        self._replies: deque[asyncio.Future[Any]] = deque()  # that are waited for
        self._due = 0.0  # when the first has taken too long
        self._last = 0.0  # up to when that may be put off
        self._unsent = 0  # bytes, when that was last looked at
        self._timer: asyncio.TimerHandle | None = None  # of this command, or of one before
        self.closed = self._loop.create_future()
        self._transport.set_protocol(self)

    @property
    def is_fresh(self) -> bool:
        """Whether it can be used, as that of a `Line`."""
        return not self._transport.is_closing() and not self._poll.poll(0) and not self._reader.has_data()

    async def exchange(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send a command and return its reply, as `Line.exchange` does."""
        deadline.unanswered += 1
        reply = self.send(parts)
        if deadline.meanwhile:
            deadline.do_meanwhile()
        now = self._loop.time()
        self._due, self._last = now + deadline.remaining, now + deadline.remaining_at_most
        if self._timer is None or self._timer.when() > self._due:
            self._look_when_due()
        heard = await reply
        deadline.unanswered -= 1
        return heard

    def send(self, parts: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Send a command, also behind another that is not answered yet. Returns what will be its reply."""
        data = hiredis.pack_command(parts)
        reply = self._loop.create_future()
        self._replies.append(reply)
        self._transport.write(data)
        self._unsent = len(data)
        return reply

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (heard := self._reader.gets()) is not False:
                self._hear(heard)
        except ConnectionError as error:  # this is no reply
            self._fail(error)
            return
        if self._replies:  # a reply that is coming is waited for
            self._put_off()

    def _hear(self, heard: Any) -> None:
        reply = self._replies.popleft() if self._replies else None
        if reply is None or reply.done():  # nobody has asked
            self.close()
        else:
            reply.set_result(heard)

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

    def _put_off(self) -> None:
        self._due = max(self._due, min(self._loop.time() + GRACE, self._last))

    def _look_when_due(self) -> None:
        """Have one timer for many commands: most are answered long before."""
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self, again: asyncio.Future[Any] | None = None) -> None:
        """See whether the time is over; and if it is, once more: perhaps it was us who stood still."""
        self._timer = None
        if not self._replies:
            return
        unsent, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        if 0 < self._unsent < unsent:  # a command that is going out is waited for
            self._put_off()
        if self._loop.time() < self._due:
            self._look_when_due()
        elif self._replies[0] is again:
            self._fail(TimeoutError("no answer"))
        else:
            self._timer = self._loop.call_later(_grace(self._due), self._look, self._replies[0])

    def wake(self) -> None:
        """End the wait for a reply."""
        self._fail(ConnectionError(_STALE))
        self.close()

    def close(self) -> None:
        self._transport.abort()


class Behind:
    """A place behind a command that blocks: what is sent there is carried out as soon as that one is answered."""

    def __init__(self) -> None:
        self._line: AsyncLine | None = None
        self._reply: asyncio.Future[Any] | None = None

    @property
    def is_taken(self) -> bool:
        return self._reply is not None

    def send(self, parts: tuple[Any, ...]) -> bool:
        """Send a command, if the other one blocks and the place is free. Returns whether it was sent."""
        if self._line is None or self.is_taken:
            return False
        self._reply = self._line.send(parts)
        self._reply.add_done_callback(_excuse)
        return True

    async def exchange(self, line: AsyncLine, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send the command that blocks. Returns the reply of the last command, or raises the error of the first."""
        self._line = line
        try:
            reply = await line.exchange(parts, deadline)
        finally:
            self._line = None
        if isinstance(reply, Exception):
            raise reply
        return reply if self._reply is None else await self._reply


def _excuse(reply: asyncio.Future[Any]) -> None:
    """Whoever waits for the first reply has heard of the error."""
    if not reply.cancelled():
        reply.exception()


def _reader(connection: Any) -> hiredis.Reader:
    return hiredis.Reader(protocolError=ConnectionError, replyError=connection._parser.parse_error)


def _poll(sock: socket.socket) -> select.poll:
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return poll


def _wait_in_pieces(sock: socket.socket) -> None:
    """Have each system call return soon. A time-out of Python's would cost a second one for each.

    Sockets that are not plain ones of Python's need that: those of TLS, and gevent's, which wait in their own loop.
    """
    if type(sock).__module__ != "socket":
        sock.settimeout(_PIECE)
        return
    sock.setblocking(True)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, _timeval(_PIECE))


def _timeval(seconds: float) -> bytes:
    import struct

    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


@asynccontextmanager
async def limited(seconds: float) -> AsyncIterator[None]:
    """End what takes longer.

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
    with suppress(RuntimeError):  # it has ended meanwhile
        limit.reschedule(asyncio.get_running_loop().time())


def _grace(due: float) -> float:
    """How long to wait when time is over, for what has come meanwhile to be heard."""
    return GRACE if asyncio.get_running_loop().time() - due > LATE else 0.0
