"""The store: runs commands on a Valkey or Redis server, sync or async, which differ in one `await`.

What is said to the server, and what its errors mean, is in `conversation`, the only module that knows the Redis client.
It is imported when a store is first used: that takes longer than importing all the rest.

A command may be sent twice when its reply was lost: every function is safe to repeat.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast import errors
from holdfast.store import library
from holdfast.store.address import Address
from holdfast.store.commands import Command
from holdfast.store.deadline import Deadline

if TYPE_CHECKING:
    import asyncio

    from holdfast.store.connection import Behind
    from holdfast.store.retry import AsyncReady, Pause, Ready

__all__ = ["Address", "AsyncStore", "Store"]

T = TypeVar("T")
Clock = Callable[[], int]

_encode = msgspec.json.Encoder().encode


def _pack(command: Command[Any], address: Address, clock: Clock | None) -> tuple[Any, ...]:
    args = command.args if clock is None else {**command.args, "now": clock()}
    try:
        text = _encode(args)
    except (TypeError, UnicodeEncodeError) as error:
        raise errors.Invalid(f"{command.function} was given what cannot be sent: {error}") from None
    return ("FCALL", library.function(command.function), 1, address.key, text, *command.blobs)


def _deadline(given: Deadline | None, address: Address, blocks: float | None = None) -> Deadline:
    """How long a command may take: as long as was said, or as the store may be silent."""
    if given is None:
        return Deadline(address.timeout + (blocks or 0.0), blocks=blocks)
    if address.home:  # no network is between us, but perhaps a slow disk
        given.extend_to(address.timeout)
    return given


class Store:
    """Runs commands, from any thread. After a fork it makes new connections and leaves the old ones alone."""

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        self.address = address
        self._clock = clock
        self._lock, self._lock_pid = threading.Lock(), os.getpid()
        self._ready: Ready | None = None
        self._pid = 0

    def run(self, command: Command[T]) -> T:
        """Send a command and read its reply.

        Raises:
            StoreUnavailable: the server cannot be reached; whether the command was carried out is unknown.
        """
        return command.read(self.execute(*_pack(command, self.address, self._clock), deadline=command.deadline))

    def execute(self, *parts: Any, blocks: float | None = None, deadline: Deadline | None = None) -> Any:
        """Send a plain Redis command, for what only reads, and for pops that block so many seconds."""
        deadline = _deadline(deadline, self.address, blocks)
        try:
            return self._send(parts, deadline)
        except Exception as error:
            return self._converse(parts, deadline, error)

    def _converse(self, parts: tuple[Any, ...], deadline: Deadline, heard: Exception) -> Any:
        """Go on after an error: a conversation says what to do."""
        from holdfast.store.retry import Pause, conversation

        talk = conversation(parts, self.address, deadline)
        next(talk)  # it begins with what was sent
        say = talk.throw(heard)
        while True:
            try:
                reply = self._wait(say) if isinstance(say, Pause) else self._send(say, deadline)
            except Exception as error:
                say = talk.throw(error)
                continue
            try:
                say = talk.send(reply)
            except StopIteration as end:
                return end.value

    def _send(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        if self._pid != os.getpid() or (ready := self._ready) is None:
            with deadline.paused():  # starting the embedded server has a time-out of its own
                ready = self._connected()
        return ready.exchange(parts, deadline)

    def _connected(self) -> Ready:
        if self._lock_pid != os.getpid():  # forked: a thread that is not here may have held the lock
            self._lock, self._lock_pid = threading.Lock(), os.getpid()
        with self._lock:
            if self._pid != os.getpid() or (ready := self._ready) is None:
                from holdfast.store.retry import Ready

                ready = Ready(self.address.connect_to(), self.address)
                self._ready, self._pid = ready, os.getpid()  # in this order, as others look at them in the other
            return ready

    def _wait(self, pause: Pause) -> Any:
        """Wait before another attempt. The embedded server may have to be started again, which connecting does."""
        time.sleep(pause.seconds)
        if self.address.url is None and (ready := self._ready) is not None and ready.is_broken:
            self.close()

    def close(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None and self._pid == os.getpid():
            ready.close()


class _Here:
    """What an event loop has: turns, and connections of the process that made them."""

    def __init__(self) -> None:
        from holdfast.store.turns import Turns

        self.pid = os.getpid()
        self.turns = Turns()
        self.ready: AsyncReady | None = None
        self.closing: AsyncGenerator[None, None] | None = None  # which closes them


class AsyncStore:
    """Runs commands in an event loop. Connections belong to the loop that made them: another loop gets its own."""

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        self.address = address
        self._clock = clock
        self._clients: dict[asyncio.AbstractEventLoop, _Here] = {}

    async def run(self, command: Command[T]) -> T:
        """Send a command and read its reply, as `Store.run` does."""
        return command.read(await self.execute(*_pack(command, self.address, self._clock), deadline=command.deadline))

    async def execute(self, *parts: Any, blocks: float | None = None, deadline: Deadline | None = None) -> Any:
        """Send a plain Redis command, as `Store.execute` does."""
        if blocks is not None:
            return await self._execute(parts, _deadline(deadline, self.address, blocks))
        return await self._here().turns.take(self._execute, parts, deadline)

    async def block(self, *parts: Any, seconds: float, behind: Behind, meanwhile: Callable[[], None]) -> Any:
        """Send a plain Redis command that blocks so many seconds; and do something while it does.

        Returns its reply, or that of the command that was sent behind it. Nothing is repeated: after an error nobody
        knows whether that was carried out.
        """
        deadline = _deadline(None, self.address, seconds)
        ready = await self._find_ready(deadline)
        deadline.meanwhile = meanwhile
        return await ready.block(parts, deadline, behind)

    def send_behind(self, behind: Behind, command: Command[Any]) -> bool:
        """Send a command behind one that blocks. Returns whether it was sent; `command.read` reads its reply."""
        return behind.send(_pack(command, self.address, self._clock))

    async def _execute(self, parts: tuple[Any, ...], deadline: Deadline | None) -> Any:
        deadline = _deadline(deadline, self.address)
        try:
            return await self._send(parts, deadline)
        except Exception as error:
            return await self._converse(parts, deadline, error)

    async def _converse(self, parts: tuple[Any, ...], deadline: Deadline, heard: Exception) -> Any:
        from holdfast.store.retry import Pause, conversation

        talk = conversation(parts, self.address, deadline)
        next(talk)  # it begins with what was sent
        say = talk.throw(heard)
        while True:
            try:
                reply = await (self._wait(say) if isinstance(say, Pause) else self._send(say, deadline))
            except Exception as error:
                say = talk.throw(error)
                continue
            try:
                say = talk.send(reply)
            except StopIteration as end:
                return end.value

    async def _send(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        ready = self._here().ready or await self._find_ready(deadline)
        return await ready.exchange(parts, deadline)

    async def _find_ready(self, deadline: Deadline) -> AsyncReady:
        if (ready := self._here().ready) is not None:
            return ready
        with deadline.paused():  # starting the embedded server has a time-out of its own
            return await self._connected()

    def _here(self) -> _Here:
        import asyncio

        loop = asyncio.get_running_loop()
        here = self._clients.get(loop)
        if here is None or here.pid != os.getpid():
            for other in [other for other in list(self._clients) if other.is_closed()]:
                self._clients.pop(other, None)
            here = self._clients[loop] = _Here()
        return here

    async def _connected(self) -> AsyncReady:
        import asyncio

        find = self.address.connect_to
        target = await asyncio.to_thread(find) if self.address.home else find()
        from holdfast.store.retry import AsyncReady

        here = self._here()
        if here.ready is None:  # else another task of this loop was faster
            here.ready = AsyncReady(target, self.address)
            here.closing = self._close_with_loop(asyncio.get_running_loop(), here.ready)
            await anext(here.closing)
        return here.ready

    async def _close_with_loop(self, loop: asyncio.AbstractEventLoop, ready: AsyncReady) -> AsyncGenerator[None, None]:
        """Close connections when asked to, and at the end of `asyncio.run`, which ends the generators of its loop."""
        pid = os.getpid()
        try:
            yield
        finally:
            if (here := self._clients.get(loop)) and here.ready is ready:
                del self._clients[loop]
            if pid == os.getpid():
                await ready.close()

    async def _wait(self, pause: Pause) -> None:
        import asyncio

        await asyncio.sleep(pause.seconds)
        if self.address.url is None and (ready := self._here().ready) is not None and ready.is_broken:
            await self.close()

    async def close(self) -> None:
        """Close the connections of this event loop."""
        import asyncio

        here = self._clients.pop(asyncio.get_running_loop(), None)
        if here is not None and here.closing is not None:
            await here.closing.aclose()
