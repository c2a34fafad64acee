"""The store: runs commands on a Valkey or Redis server, sync or async; the two differ in their `await`s.

    run ──▶ execute ──▶ Pool.exchange ──▶ Connection.exchange
              └── after an error: the policy in `command_retry`

`pool` and `command_retry` need the Redis client library, so they are imported when a store is first used: that takes
longer than importing everything else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast import errors
from holdfast.store import library
from holdfast.store.address import Address
from holdfast.store.caller import NAMES_CALLER, caller_name
from holdfast.store.commands import Command
from holdfast.store.deadline import Deadline
from holdfast.store.driver import adrive, drive

if TYPE_CHECKING:
    import asyncio

    from holdfast.store.connection import BlockingPipeline
    from holdfast.store.pool import AsyncPool, Pool

__all__ = ["Address", "AsyncStore", "Store"]

T = TypeVar("T")
Clock = Callable[[], int]

_encode = msgspec.json.Encoder().encode


def _pack(command: Command[Any], address: Address, clock: Clock | None) -> tuple[Any, ...]:
    args = command.args if clock is None else {**command.args, "now": clock()}
    if command.function in NAMES_CALLER:
        args = {**args, "who": caller_name()}
    try:
        text = _encode(args)
    except (TypeError, UnicodeEncodeError) as error:
        raise errors.Invalid(f"an argument of {command.function} cannot be encoded: {error}") from None
    function = (command.library or library).function(command.function)
    return ("FCALL", function, 1, address.key, text, *command.blobs)


def _deadline(given: Deadline | None, address: Address, blocks: float | None = None) -> Deadline:
    """Return the deadline given, or one that is derived from the address's timeout."""
    if given is None:
        return Deadline(address.timeout + (blocks or 0.0), blocks=blocks)
    if address.home:  # an embedded server is not behind a network, but its disk may be slow
        given.extend_to(address.timeout)
    return given


class Store:
    """Runs commands, from any thread. After a fork it opens new connections and leaves the inherited ones alone."""

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        self.address = address
        self._clock = clock
        self._lock, self._lock_pid = threading.Lock(), os.getpid()
        self._pool: Pool | None = None
        self._pid = 0

    def run(self, command: Command[T]) -> T:
        """Send a command and read its reply.

        Raises:
            StoreUnavailable: the server cannot be reached; `maybe_done` is false if the command was not executed.
        """
        return command.read(self.execute(*_pack(command, self.address, self._clock), deadline=command.deadline))

    def pack(self, command: Command[Any]) -> tuple[Any, ...]:
        """Return a command as the server gets it, for a connection of somebody else."""
        return _pack(command, self.address, self._clock)

    def execute(self, *parts: Any, blocks: float | None = None, deadline: Deadline | None = None) -> Any:
        """Send a plain Redis command: one that only reads, or a pop that blocks for at most `blocks` seconds."""
        deadline = _deadline(deadline, self.address, blocks)
        try:
            return self._send(parts, deadline)
        except Exception as error:
            return self._retry(parts, error, deadline)

    def _retry(self, parts: tuple[Any, ...], error: Exception, deadline: Deadline) -> Any:
        from holdfast.store.command_retry import retry_command

        steps = retry_command(parts, error, self.address, deadline)
        return drive(steps, lambda parts: self._resend(parts, deadline))

    def _resend(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send again. If an embedded server was lost, connect again, which starts it."""
        if self.address.url is None and (pool := self._pool) is not None and pool.is_broken:
            self.close()
        return self._send(parts, deadline)

    def _send(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        if self._pid != os.getpid() or (pool := self._pool) is None:
            with deadline.paused():  # starting the embedded server has its own timeout
                pool = self._new_pool()
        return pool.exchange(parts, deadline)

    def _new_pool(self) -> Pool:
        if self._lock_pid != os.getpid():  # forked: a thread of the parent may have held the lock
            self._lock, self._lock_pid = threading.Lock(), os.getpid()
        with self._lock:
            if self._pid != os.getpid() or (pool := self._pool) is None:
                from holdfast.store.pool import Pool

                pool = Pool(self.address.connect_to(), self.address)
                self._pool, self._pid = pool, os.getpid()  # other threads read them in the opposite order
            return pool

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.close()


class _LoopState:
    """The concurrency limit and the connections of one event loop; `pid` is the process that opened them."""

    def __init__(self) -> None:
        from holdfast.store.concurrency import ConcurrencyLimit

        self.pid = os.getpid()
        self.limit = ConcurrencyLimit()
        self.pool: AsyncPool | None = None
        self.closing: AsyncGenerator[None, None] | None = None  # closes the pool


class AsyncStore:
    """Runs commands in an event loop. Connections belong to the loop that opened them; each loop has its own."""

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        self.address = address
        self._clock = clock
        self._loops: dict[asyncio.AbstractEventLoop, _LoopState] = {}

    async def run(self, command: Command[T]) -> T:
        """Send a command and read its reply, like `Store.run`."""
        return command.read(await self.execute(*_pack(command, self.address, self._clock), deadline=command.deadline))

    async def execute(self, *parts: Any, blocks: float | None = None, deadline: Deadline | None = None) -> Any:
        """Send a plain Redis command, like `Store.execute`."""
        if blocks is not None:
            return await self._execute(parts, _deadline(deadline, self.address, blocks))
        return await self._state().limit.run(self._execute, parts, deadline)

    async def block(self, *parts: Any, seconds: float, pipeline: BlockingPipeline, on_sent: Callable[[], None]) -> Any:
        """Send a plain Redis command that blocks for at most `seconds`, and call `on_sent` once it is sent.

        Return its reply, or that of the command pipelined behind it. Never retried: after an error it is unknown
        whether the pipelined command was executed.
        """
        deadline = _deadline(None, self.address, seconds)
        pool = await self._find_pool(deadline)
        deadline.on_sent = on_sent
        return await pool.block(parts, deadline, pipeline)

    def send_pipelined(self, pipeline: BlockingPipeline, command: Command[Any]) -> bool:
        """Pipeline a command behind a blocking one. Return whether it was sent; `command.read` reads its reply."""
        return pipeline.send(_pack(command, self.address, self._clock))

    async def _execute(self, parts: tuple[Any, ...], deadline: Deadline | None) -> Any:
        deadline = _deadline(deadline, self.address)
        try:
            return await self._send(parts, deadline)
        except Exception as error:
            return await self._retry(parts, error, deadline)

    async def _retry(self, parts: tuple[Any, ...], error: Exception, deadline: Deadline) -> Any:
        from holdfast.store.command_retry import retry_command

        steps = retry_command(parts, error, self.address, deadline)
        return await adrive(steps, lambda parts: self._resend(parts, deadline))

    async def _resend(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        if self.address.url is None and (pool := self._state().pool) is not None and pool.is_broken:
            await self.close()
        return await self._send(parts, deadline)

    async def _send(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        pool = self._state().pool or await self._find_pool(deadline)
        return await pool.exchange(parts, deadline)

    async def _find_pool(self, deadline: Deadline) -> AsyncPool:
        if (pool := self._state().pool) is not None:
            return pool
        with deadline.paused():  # starting the embedded server has its own timeout
            return await self._new_pool()

    def _state(self) -> _LoopState:
        import asyncio

        loop = asyncio.get_running_loop()
        state = self._loops.get(loop)
        if state is None or state.pid != os.getpid():
            for other in [other for other in list(self._loops) if other.is_closed()]:
                self._loops.pop(other, None)
            state = self._loops[loop] = _LoopState()
        return state

    async def _new_pool(self) -> AsyncPool:
        import asyncio

        find = self.address.connect_to
        target = await asyncio.to_thread(find) if self.address.home else find()
        from holdfast.store.pool import AsyncPool

        state = self._state()
        if state.pool is None:  # else another task of this loop was faster
            state.pool = AsyncPool(target, self.address)
            state.closing = self._close_with_loop(asyncio.get_running_loop(), state.pool)
            await anext(state.closing)
        return state.pool

    async def _close_with_loop(self, loop: asyncio.AbstractEventLoop, pool: AsyncPool) -> AsyncGenerator[None, None]:
        """Close connections on request, or when `asyncio.run` shuts down the async generators of its loop."""
        pid = os.getpid()
        try:
            yield
        finally:
            if (state := self._loops.get(loop)) and state.pool is pool:
                del self._loops[loop]
            if pid == os.getpid():
                await pool.close()

    async def close(self) -> None:
        """Close the connections of this event loop."""
        import asyncio

        state = self._loops.pop(asyncio.get_running_loop(), None)
        if state is not None and state.closing is not None:
            await state.closing.aclose()
