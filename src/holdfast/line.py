"""A line to a server: a command goes out, its reply comes in, within the time that a call has.

The client library connects, and knows passwords, certificates and the words of errors. What it does for each command
takes longer than the command itself, so that is done here: two system calls, and the parser that it uses too.
"""

from __future__ import annotations

import select
import socket
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from holdfast.budget import Budget

_PIECE = 0.1  # seconds that a reply is waited for until the time that is left is looked at
_RECEIVED = 65536  # bytes at once
_NOT_YET = (BlockingIOError, TimeoutError)


class Line:
    """One connection. After any error but an answer of the server it must be closed: a reply may still come."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: socket.socket = connection._sock
        self._reader = hiredis.Reader(replyError=connection._parser.parse_error)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        _wait_in_pieces(self._socket)

    @property
    def is_fresh(self) -> bool:
        """Whether it can be used: the server has not closed it, and nothing waits to be read."""
        return not self._poll.poll(0)

    def exchange(self, parts: tuple[Any, ...], budget: Budget) -> Any:
        """Send a command and return its reply; raise the error that the server answers.

        Raises:
            RedisTimeoutError: the time was over before the reply was there.
            RedisConnectionError: the connection is broken.
        """
        self._send(hiredis.pack_command(parts), budget)
        while (reply := self._reader.gets()) is False:
            self._receive(budget)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _send(self, data: bytes, budget: Budget) -> None:
        sent = 0
        while sent < len(data):
            try:
                sent += self._socket.send(data if sent == 0 else memoryview(data)[sent:])
            except _NOT_YET:
                if budget.is_over:
                    raise RedisTimeoutError("the server takes no more") from None

    def _receive(self, budget: Budget) -> None:
        """Add what has come to the reply. When time is over, look once more: perhaps it was us who stood still."""
        was_over = budget.is_over
        try:
            data = self._socket.recv(_RECEIVED)
        except _NOT_YET:
            if was_over:
                raise RedisTimeoutError("no answer") from None
            return
        if not data:
            raise RedisConnectionError("the server closed the connection")
        self._reader.feed(data)

    def close(self) -> None:
        self._connection.disconnect()


def _wait_in_pieces(sock: socket.socket) -> None:
    """Have each system call return soon. A time-out of Python's would cost a second one for each."""
    import ssl  # loaded already, by the client library

    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(_PIECE)
        return
    sock.setblocking(True)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, _timeval(_PIECE))


def _timeval(seconds: float) -> bytes:
    import struct

    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
