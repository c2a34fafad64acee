"""The executor's connection to its supervisor."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

from holdfast.worker import messages
from holdfast.worker.transport import Decode, ignoring_unknown, read

_decode: Decode[messages.FromSupervisor | None] = ignoring_unknown(
    messages.decoder(messages.FromSupervisor), "supervisor"
)


class SupervisorLink:
    """Sends messages to the supervisor, those of one turn of the event loop together, and receives its messages."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unsent: list[bytes] = []

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._connection)

    def send(self, message: messages.FromExecutor) -> None:
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unsent.append(messages.pack(message))

    def flush(self) -> None:
        """Send everything now: a job that is about to start may hold the GIL."""
        if self._unsent:
            self._writer.write(b"".join(self._unsent))
            self._unsent.clear()

    async def receive(self) -> AsyncIterator[messages.FromSupervisor]:
        """Yield messages until the supervisor closes the connection."""
        while (body := await read(self._reader)) is not None:
            if (message := _decode(body)) is not None:
                yield message

    async def drain(self) -> None:
        """Wait until everything is sent."""
        self.flush()
        self._writer.transport.set_write_buffer_limits(0)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()
