"""The store: runs commands on a Valkey or Redis server, sync or async, which differ in one `await`.

What is said to the server, and what its errors mean, is in `conversation`, the only module that knows the Redis client.
It is imported when a store is first used: that takes longer than importing all the rest.

A command may be sent twice when its reply was lost: every function is safe to repeat.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from holdfast import errors, functions
from holdfast.budget import Budget
from holdfast.commands import Command

if TYPE_CHECKING:
    import asyncio

    from redis import Redis
    from redis.asyncio import Redis as AsyncRedis

    from holdfast.conversation import Ready
    from holdfast.turns import Turns

T = TypeVar("T")
Clock = Callable[[], int]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Address:
    """Where the store is: a URL, or the home of an embedded server."""

    url: str | None
    home: Path | None
    namespace: str = "default"
    timeout: float = 5.0

    @classmethod
    def find(cls, url: str | None = None, *, namespace: str = "default", timeout: float = 5.0) -> Address:
        """Use the URL given, or HOLDFAST_URL, or the embedded server of this project."""
        url = url or os.environ.get("HOLDFAST_URL") or None
        if url is None:
            from holdfast import server

            return cls(None, server.find_home(), namespace, timeout)
        if url.partition("://")[0] not in ("redis", "rediss", "unix"):
            raise errors.Invalid(f"the store's URL must begin with redis://, rediss:// or unix://, not {url!r}")
        return cls(url, None, namespace, timeout)

    @property
    def key(self) -> str:
        """The one key that routes every call."""
        return f"hf:{{{self.namespace}}}:meta"

    @property
    def words(self) -> str:
        """The address as it may be shown: without a password."""
        if self.url is None:
            return f"the embedded server in {self.home}"
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def connect_to(self) -> str:
        """Return the URL to connect to, starting the embedded server if it is not there."""
        if self.home is None:
            return str(self.url)
        from holdfast import server

        return f"unix://{server.ensure(self.home)}"


def _pack(command: Command[Any], address: Address, clock: Clock | None) -> tuple[Any, ...]:
    args = command.args if clock is None else {**command.args, "now": clock()}
    try:
        text = _encode(args)
    except (TypeError, UnicodeEncodeError) as error:
        raise errors.Invalid(f"{command.verb} was given what cannot be sent: {error}") from None
    return ("FCALL", functions.function(command.verb), 1, address.key, text, *command.blobs)


class Store:
    """Runs commands, from any thread. After a fork it makes new connections and leaves the old ones alone."""

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        self.address = address
        self._clock = clock
        self._lock, self._lock_pid = threading.Lock(), os.getpid()
        self._client: Redis | None = None
        self._ready: Ready | None = None
        self._pid = 0

    def run(self, command: Command[T]) -> T:
        """Send a command and read its reply.

        Raises:
            StoreUnavailable: the server cannot be reached; whether the command was carried out is unknown.
        """
        budget = command.budget or Budget(self.address.timeout)
        return command.read(self.execute(*_pack(command, self.address, self._clock), budget=budget))

    def execute(self, *parts: Any, blocks: float | None = None, budget: Budget | None = None) -> Any:
        """Send a plain Redis command, for what only reads, and for pops that block so many seconds."""
        from holdfast.conversation import conversation

        talk = conversation(parts, self.address, budget)
        say = next(talk)
        while True:
            try:
                heard = self._send(say, blocks) if budget is None else self._send_within(budget, say)
            except Exception as error:
                say = talk.throw(error)
                continue
            try:
                say = talk.send(heard)
            except StopIteration as end:
                return end.value

    def _send(self, parts: tuple[Any, ...], blocks: float | None) -> Any:
        if not parts:
            return self._reconnect()
        client = self._connected()
        if blocks is None:
            return client.execute_command(*parts)
        connection = client.connection_pool.get_connection()
        try:
            connection.send_command(*parts)
            return connection.read_response(timeout=blocks + self.address.timeout)
        except BaseException:
            # Interrupted or broken: its reply may still come, and must not answer another command.
            connection.disconnect()
            raise
        finally:
            client.connection_pool.release(connection)

    def _send_within(self, budget: Budget, parts: tuple[Any, ...]) -> Any:
        if not parts:
            return self._reconnect()
        with budget.paused():  # starting the embedded server has a time-out of its own
            self._connected()
        ready = self._ready
        if ready is None:
            raise ConnectionError("the connections were closed by another thread")
        return ready.exchange(parts, budget)

    def _connected(self) -> Redis:
        if self._client is not None and self._pid == os.getpid():
            return self._client
        if self._lock_pid != os.getpid():  # forked: a thread that is not here may have held the lock
            self._lock, self._lock_pid = threading.Lock(), os.getpid()
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                from holdfast.conversation import Ready, connect

                client = connect(self.address.connect_to(), self.address)
                self._ready, self._client, self._pid = Ready(client), client, os.getpid()
            return self._client

    def _reconnect(self) -> None:
        """The embedded server may have to be started again, which connecting does."""
        if self.address.url is None:
            self.close()

    def close(self) -> None:
        client, self._client = self._client, None
        ready, self._ready = self._ready, None
        if client is not None and ready is not None and self._pid == os.getpid():
            ready.close()
            client.close()


def _cancellations() -> int:
    """How often this task was asked to end."""
    import asyncio

    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _heed(cancellations: int) -> None:
    """End this task if it was asked to since then, and that was swallowed: a `wait_for` of Python 3.11 may do so."""
    if _cancellations() > cancellations:
        import asyncio

        raise asyncio.CancelledError


class _Client(NamedTuple):
    """The connections of an event loop, the process that made them, and the generator that closes them."""

    pid: int
    client: AsyncRedis
    closing: AsyncGenerator[None, None]


class AsyncStore:
    """Runs commands in an event loop. Connections belong to the loop that made them: another loop gets its own."""

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        self.address = address
        self._clock = clock
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()

    async def run(self, command: Command[T]) -> T:
        """Send a command and read its reply, as `Store.run` does."""
        return command.read(await self.execute(*_pack(command, self.address, self._clock), budget=command.budget))

    async def execute(self, *parts: Any, blocks: float | None = None, budget: Budget | None = None) -> Any:
        """Send a plain Redis command, as `Store.execute` does."""
        if blocks is not None:
            return await self._converse(parts, blocks, None)
        async with self._turns_of_this_loop().turn(budget):
            return await self._converse(parts, None, budget)

    def _turns_of_this_loop(self) -> Turns:
        import asyncio

        loop = asyncio.get_running_loop()
        turns = self._turns.get(loop)
        if turns is None:
            from holdfast.turns import Turns

            turns = self._turns[loop] = Turns()
        return turns

    async def _converse(self, parts: tuple[Any, ...], blocks: float | None, budget: Budget | None) -> Any:
        from holdfast.conversation import conversation

        talk = conversation(parts, self.address, budget)
        say = next(talk)
        while True:
            try:
                heard = await (self._send(say, blocks) if budget is None else self._send_within(budget, say))
            except Exception as error:
                say = talk.throw(error)
                continue
            try:
                say = talk.send(heard)
            except StopIteration as end:
                return end.value

    async def _send(self, parts: tuple[Any, ...], blocks: float | None) -> Any:
        import asyncio

        if not parts:
            return await self._reconnect()
        before = _cancellations()
        client = await self._connected()
        if blocks is None:
            reply = await client.execute_command(*parts)
            _heed(before)
            return reply
        connection = await client.connection_pool.get_connection()
        try:
            # With a time-out of its own, the client library would return None and keep the connection, whose reply may
            # still come and answer another command.
            async with asyncio.timeout(blocks + self.address.timeout):
                await connection.send_command(*parts)
                _heed(before)
                return await connection.read_response(timeout=math.inf)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await client.connection_pool.release(connection)

    async def _send_within(self, budget: Budget, parts: tuple[Any, ...]) -> Any:
        from holdfast.turns import limited

        if not parts:
            return await self._reconnect()
        before = _cancellations()
        with budget.paused():  # starting the embedded server has a time-out of its own
            pool = (await self._connected()).connection_pool
        async with limited(budget.left()):
            connection = await pool.get_connection()
            try:
                return await self._exchange(connection, parts, budget, before)
            finally:
                await pool.release(connection)

    async def _exchange(self, connection: Any, parts: tuple[Any, ...], budget: Budget, before: int) -> Any:
        from holdfast.conversation import ANSWERS

        try:
            _heed(before)
            budget.unanswered += 1
            await connection.send_command(*parts)
            _heed(before)
            reply = await connection.read_response(timeout=math.inf)
        except ANSWERS:
            budget.unanswered -= 1
            raise
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        budget.unanswered -= 1
        return reply

    async def _connected(self) -> AsyncRedis:
        import asyncio

        loop = asyncio.get_running_loop()
        if (known := self._clients.get(loop)) and known.pid == os.getpid():
            return known.client
        url = self.address.url or str(await asyncio.to_thread(self.address.connect_to))
        from holdfast.conversation import connect_async

        if (known := self._clients.get(loop)) and known.pid == os.getpid():
            return known.client  # another task of this loop was faster
        for other in [other for other in self._clients if other.is_closed()]:
            self._forget(other)
        client = connect_async(url, self.address)
        self._clients[loop] = _Client(os.getpid(), client, closing := self._close_with_loop(loop, client))
        await anext(closing)
        return client

    async def _close_with_loop(self, loop: asyncio.AbstractEventLoop, client: AsyncRedis) -> AsyncGenerator[None, None]:
        """Close a client when asked to, and at the end of `asyncio.run`, which ends the generators of its loop."""
        try:
            yield
        finally:
            self._forget(loop)
            await client.aclose()

    def _forget(self, loop: asyncio.AbstractEventLoop) -> None:
        self._clients.pop(loop, None)
        self._turns.pop(loop, None)

    async def _reconnect(self) -> None:
        if self.address.url is None:
            await self.close()

    async def close(self) -> None:
        """Close the connections of this event loop."""
        import asyncio

        known = self._clients.pop(asyncio.get_running_loop(), None)
        if known is not None and known.pid == os.getpid():
            await known.closing.aclose()
