"""Messages between the processes of a worker: a length, then a list in msgpack, whose first part is a word."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Iterator
from functools import partial
from threading import get_ident
from typing import Any, cast

import msgspec

from holdfast.job import outcome
from holdfast.job.outcome import Outcome
from holdfast.worker import linux

LONGEST = 64 * 1024 * 1024
AT_ONCE = 1 << 16  # bytes in one part; for more, malloc would ask the system each time

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode
_OUTCOMES = {
    kind.__name__: kind
    for kind in (
        outcome.Advanced,
        outcome.Waits,
        outcome.Succeed,
        outcome.Error,
        outcome.Crash,
        outcome.Release,
        outcome.Unknown,
        outcome.Snoozed,
        outcome.Cancelled,
    )
}


def pack(*parts: Any) -> bytes:
    body = _encode(parts)
    return len(body).to_bytes(4) + body


def pack_outcome(ended: Outcome) -> bytes:
    return pack("outcome", type(ended).__name__, *map(partial(getattr, ended), ended.__match_args__))


def unpack_outcome(parts: list[Any]) -> Outcome:
    kind, *values = parts
    made: Outcome = _OUTCOMES[kind](*values)
    return made


def _length(head: bytes | bytearray) -> int:
    length = int.from_bytes(head)
    if length > LONGEST:
        raise ConnectionError(f"a message of {length} bytes")
    return length


async def read(reader: asyncio.StreamReader) -> list[Any] | None:
    """Return the next message, or None at the end."""
    try:
        head = await reader.readexactly(4)
        return _decode(await reader.readexactly(_length(head)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def open_ends(connection: socket.socket) -> tuple[socket.socket, asyncio.StreamWriter]:
    """Open the ends of a connection on which to hear and to tell.

    They are two: when nothing can be told any more, as the other side is dead, its last words are still to be heard.
    """
    heard = connection.dup()
    heard.setblocking(False)
    _, told = await asyncio.open_connection(sock=connection)
    cast(asyncio.Transport, told.transport).pause_reading()
    return heard, told


class Arriving:
    """Puts messages together that arrive in parts."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, part: bytes) -> Iterator[list[Any]]:
        """Take what has arrived. Yields the messages that are whole now: also those before one that is none."""
        self._data += part
        while len(self._data) >= 4 and len(self._data) >= (end := 4 + _length(self._data[:4])):
            message = _decode(self._data[4:end])
            del self._data[:end]
            yield message


class Undivided:
    """A block that the main thread is not to leave half-way. Other threads, which hear no signals, go on anyway."""

    def __init__(self) -> None:
        self._inside: set[int] = set()  # threads
        self._leaving: tuple[int, int] | None = None  # a thread, and its exit code

    def leave(self, code: int) -> None:
        """Leave the main thread's work, which calls this, by SystemExit: at once, or else at the end of the block."""
        own = get_ident()
        if own not in self._inside:
            raise SystemExit(code)
        self._leaving = own, code

    def __enter__(self) -> None:
        self._inside.add(get_ident())

    def __exit__(self, *_: object) -> None:
        own = get_ident()
        self._inside.discard(own)
        if self._leaving and self._leaving[0] == own:
            code, self._leaving = self._leaving[1], None
            raise SystemExit(code)


class Channel:
    """The blocking end of a connection, in a job's process. It may be made before there is one."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._arriving = Arriving()
        self.undivided = Undivided()  # a signal may arrive while a message does
        self.is_closed = False  # nothing more will arrive
        if connection:
            self.connect(connection)

    def connect(self, connection: socket.socket) -> None:
        connection.settimeout(None)  # an app may have a default for all sockets
        self._socket = connection

    @property
    def is_closing(self) -> bool:
        """Whether the other end has said its last word, though it may not have arrived here yet."""
        end = linux.poll()
        end.register(self._socket, select.POLLRDHUP)
        return bool(end.poll(0))

    def send(self, message: bytes) -> None:
        """Send a message, to its end: after half of one, nothing would be understood any more."""
        with self.undivided:
            self._socket.sendall(message)

    def wait(self) -> None:
        """Wait until something arrives, or the end."""
        self._socket.recv(1, socket.MSG_PEEK)

    def arrived(self) -> list[list[Any]]:
        """Return the messages that are there, without waiting."""
        try:
            part = self._socket.recv(AT_ONCE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        self.is_closed = not part
        return [*self._arriving.add(part)]
