"""Messages over streams: each is its length, then its body. They arrive in parts, or several at once."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Generic, TypeVar, cast

import msgspec

from holdfast.worker import linux
from holdfast.worker.messages import KINDS, ToJob, decoder

log = logging.getLogger("holdfast.worker")

MAX_MESSAGE = 64 * 1024 * 1024  # bytes
READ_SIZE = 1 << 16  # bytes in one read; for more, malloc would call the kernel each time

T = TypeVar("T")
Decode = Callable[[bytes | bytearray], T]


class MessageBuffer(Generic[T]):
    """Assembles messages from the parts in which they arrive."""

    def __init__(self, decode: Decode[T]) -> None:
        self._decode = decode
        self._data = bytearray()

    def add(self, part: bytes) -> Iterator[T]:
        """Add received bytes, and yield the messages that are complete.

        Raises:
            ConnectionError, msgspec.MsgspecError: the next bytes are not a valid message; the messages before them were
                yielded.
        """
        self._data += part
        while len(self._data) >= 4 and len(self._data) >= (end := 4 + _length(self._data[:4])):
            body = self._data[4:end]
            del self._data[:end]
            yield self._decode(body)


def _length(head: bytes | bytearray) -> int:
    length = int.from_bytes(head)
    if length > MAX_MESSAGE:
        raise ConnectionError(f"received a message of {length} bytes (limit {MAX_MESSAGE})")
    return length


def ignoring_unknown(decode: Decode[T], sender: str) -> Decode[T | None]:
    """Make a function that decodes messages, and returns None for kinds of messages that this release does not know.

    Supervisor and executors may be of two releases, while the package is upgraded under a running worker. A message of
    a known kind that cannot be decoded is an error: leases would not be renewed without it.
    """

    def decode_known(body: bytes | bytearray) -> T | None:
        try:
            return decode(body)
        except msgspec.MsgspecError:
            kind = _kind_of(body)
            if kind is None or kind in KINDS:
                raise
            log.warning("ignored a message of the %s of a kind that this release does not know: %s", sender, kind)
            return None

    return decode_known


def _kind_of(body: bytes | bytearray) -> str | None:
    """Return the first element of a message, which names its kind."""
    try:
        return str(msgspec.msgpack.decode(body, type=list[object])[0])
    except (msgspec.MsgspecError, IndexError):
        return None


async def read(reader: asyncio.StreamReader) -> bytes | None:
    """Return the body of the next message, or None when the connection is closed."""
    try:
        head = await reader.readexactly(4)
        return await reader.readexactly(_length(head))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def open_reader_and_writer(connection: socket.socket) -> tuple[socket.socket, asyncio.StreamWriter]:
    """Open a connection for reading and, separately, for writing.

    A process that has died leaves messages to read when writing to it fails already.
    """
    reading = connection.dup()
    reading.setblocking(False)
    _, writer = await asyncio.open_connection(sock=connection)
    cast(asyncio.Transport, writer.transport).pause_reading()
    return reading, writer


class DeferredExit:
    """Defers the SystemExit of a signal handler until the end of a block.

    Handlers run in the main thread. Other threads may enter the block too, which has no effect on them.
    """

    def __init__(self) -> None:
        self._inside: set[int] = set()  # threads
        self._exiting: tuple[int, int] | None = None  # a thread, and its exit code

    def exit(self, code: int) -> None:
        """Raise SystemExit in the main thread, which calls this: at once, or else at the end of the block."""
        own = get_ident()
        if own not in self._inside:
            raise SystemExit(code)
        self._exiting = own, code

    def __enter__(self) -> None:
        self._inside.add(get_ident())

    def __exit__(self, *_: object) -> None:
        own = get_ident()
        self._inside.discard(own)
        if self._exiting and self._exiting[0] == own:
            code, self._exiting = self._exiting[1], None
            raise SystemExit(code)


class Channel:
    """The blocking connection of a job's process to its executor. It can be created before it is connected."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._buffer: MessageBuffer[ToJob] = MessageBuffer(_decode)
        self.deferred_exit = DeferredExit()  # a signal may arrive while a message does
        self.is_closed = False  # nothing more will arrive
        if connection:
            self.connect(connection)

    def connect(self, connection: socket.socket) -> None:
        connection.settimeout(None)  # an app may have set a default for all sockets
        self._socket = connection

    @property
    def is_closing(self) -> bool:
        """Whether the executor has closed its end; its last messages may still be unread."""
        end = linux.poll()
        end.register(self._socket, select.POLLRDHUP)
        return bool(end.poll(0))

    def send(self, message: bytes) -> None:
        """Send a packed message as a whole: after half of one, the executor could read no other."""
        with self.deferred_exit:
            self._socket.sendall(message)

    def wait(self) -> None:
        """Wait until something arrives, or the connection is closed."""
        self._socket.recv(1, socket.MSG_PEEK)

    def arrived(self) -> list[ToJob]:
        """Return the messages that have arrived, without waiting."""
        try:
            part = self._socket.recv(READ_SIZE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        self.is_closed = not part
        return [*self._buffer.add(part)]


_decode: Decode[ToJob] = decoder(ToJob)
