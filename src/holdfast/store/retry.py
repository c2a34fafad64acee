"""The conversation with a server, and the Redis client: the only module that knows it.

A conversation is a generator that says what to send, hears the reply or the error, and so on to the end. So loading the
function library when it is missing, connecting anew, and translating errors are written once, for sync and async.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from holdfast import errors
from holdfast.server import keeper
from holdfast.store import library
from holdfast.store.connection import AsyncLine, Behind, Line, limited
from holdfast.store.deadline import Deadline
from holdfast.store.pool import Pool

if TYPE_CHECKING:
    from holdfast.store.address import Address, Target

_UNREACHABLE = (RedisConnectionError, RedisTimeoutError, OSError)
_TIMED_OUT = (RedisTimeoutError, TimeoutError)
_NOT_LET_IN = (AuthenticationError, AuthorizationError)  # of the unreachable: time does not change it
# Replies of a server that is not the primary, or not yet: new connections may lead to another.
_NOT_PRIMARY = (ReadOnlyError, ClusterDownError, BusyLoadingError, MovedError)  # a MASTERDOWN is a CLUSTERDOWN, too
_UNBLOCKED = "UNBLOCKED force unblock"  # by a server that was demoted
_NON_LOCAL = "access a non local key in a cluster node"  # the only one that a function gets after it has begun
_MISSING = "Function not found"  # also on a server that has taken the place of another
_NOT_NOW = ("BUSY", "MISCONF", "NOREPLICAS")
_FIRST_PAUSE, _MAX_PAUSE = 0.02, 0.25  # seconds between two attempts


class Pause(NamedTuple):
    """What a conversation says before it has a command sent again, on another connection."""

    seconds: float


Talk = Generator[tuple[Any, ...] | Pause, Any, Any]
L = TypeVar("L", Line, AsyncLine)


def conversation(parts: tuple[Any, ...], address: Address, deadline: Deadline) -> Talk:
    """Say what to send, hear the reply or the error, and so on to the end: written once for sync and async."""
    try:
        return (yield from _attempts(parts, address, deadline))
    except errors.StoreUnavailable as error:
        error.maybe_done = deadline.unanswered > 0
        raise


def _attempts(parts: tuple[Any, ...], address: Address, deadline: Deadline) -> Talk:
    """Send a command until it is answered, the time is over, or it is refused in a way that time does not change."""
    pause, told, before = _FIRST_PAUSE, None, None
    while True:
        try:
            return (yield from _load_if_missing(parts, deadline))
        except errors.HoldfastError:
            raise
        except (RedisError, *_UNREACHABLE) as error:
            deadline.unanswered += _says(error, _NON_LOCAL)
            told = told if told and isinstance(error, _TIMED_OUT) else error  # "time is over" tells the least
            if deadline.remaining <= pause or not deadline.may_resend or not _may_pass(error, before):
                raise _translate(told, address, deadline.seconds) from error
            before = error
        yield Pause(pause)
        pause = min(_MAX_PAUSE, 2 * pause)
        if deadline.blocks is not None:
            parts = (*parts[:-1], deadline.block_seconds)


def _load_if_missing(parts: tuple[Any, ...], deadline: Deadline) -> Talk:
    try:
        return (yield parts)
    except ResponseError as error:
        if not _says(error, _MISSING):
            raise
    unanswered = deadline.unanswered
    try:
        yield ("FUNCTION", "LOAD", library.library())
    except ResponseError as error:
        if "already exists" not in str(error):
            raise
    finally:
        deadline.unanswered = unanswered  # whether it was loaded says nothing of the command
    return (yield parts)


def _says(error: BaseException, words: str) -> bool:
    """Whether the server says this, and not one of our functions, which may quote anybody."""
    return words in str(error) and errors.from_reply(str(error)) is None


def _may_pass(error: Exception, before: Exception | None) -> bool:
    """Whether another attempt may get another answer. MOVED twice is no failover, but the wrong node of a cluster."""
    if isinstance(error, MovedError):
        return not isinstance(before, MovedError)
    if isinstance(error, _UNREACHABLE):
        return not isinstance(error, _NOT_LET_IN) and not isinstance(error.__context__, SSLCertVerificationError)
    return _is_not_primary(error) or _says(error, _MISSING)


def _is_not_primary(error: BaseException) -> bool:
    return isinstance(error, _NOT_PRIMARY) or str(error).startswith(_UNBLOCKED) or _says(error, _NON_LOCAL)


def _translate(error: Exception, address: Address, seconds: float) -> errors.HoldfastError:
    """Turn an error of the client library into one of ours."""
    if what := _unavailable(error, address, seconds):
        return errors.StoreUnavailable(f"{address.words} {what}")
    if isinstance(error, OutOfMemoryError):
        return errors.StoreFull("the server is out of memory and nothing was stored: raise maxmemory, or finish jobs")
    return errors.from_reply(str(error)) or errors.HoldfastError(f"{address.words} refused a command: {error}")


def _unavailable(error: Exception, address: Address, seconds: float) -> str:
    """Say why a server is unavailable; nothing if it is not."""
    if isinstance(error, _TIMED_OUT):
        return f"did not answer within {seconds:.3g} s"
    if isinstance(error, _UNREACHABLE):
        return f"cannot be reached: {str(error).rstrip('.')}"
    if isinstance(error, ReadOnlyError):
        return f"is a replica and takes no writes: {error}"
    if isinstance(error, AskError):
        return _about_cluster(error, address.namespace)
    if _is_not_primary(error) or isinstance(error, TryAgainError) or str(error).startswith(_NOT_NOW):
        return (
            f"is temporarily unavailable: {error}{'; make room on its disk' if 'No space left' in str(error) else ''}"
        )
    return ""


def _about_cluster(error: AskError, namespace: str) -> str:
    """Say what MOVED and ASK mean, of which the client library keeps the slot and the node only."""
    node = str(error).rpartition(" ")[2]
    if not isinstance(error, MovedError):
        return f"is temporarily unavailable: its cluster moves namespace {namespace} to {node} (ASK)"
    return (
        f"is part of a cluster, in which {node} has the keys of namespace {namespace} (MOVED): use the address of that"
        " node, or one that leads to it after a failover, too"
    )


class _Checked(redis.UnixDomainSocketConnection):  # type: ignore[misc]
    """A connection to an embedded server. Nothing is sent before it is known whose process listens there."""

    def __init__(self, *, users: frozenset[int], **options: Any) -> None:
        super().__init__(**options)
        self._users = users

    def on_connect_check_health(self, check_health: bool = True) -> None:
        _check_peer(self._sock, self._users)
        super().on_connect_check_health(check_health=check_health)


class _AsyncChecked(redis.asyncio.UnixDomainSocketConnection):  # type: ignore[misc]
    """The same in an event loop."""

    def __init__(self, *, users: frozenset[int], **options: Any) -> None:
        super().__init__(**options)
        self._users = users

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        _check_peer(self._writer.get_extra_info("socket"), self._users)
        await super().on_connect_check_health(check_health=check_health)


def _check_peer(connection: Any, users: frozenset[int]) -> None:
    try:
        keeper.check_peer(connection, users)
    except keeper.Stranger as error:
        raise RedisConnectionError(str(error)) from None


_CLASSES: dict[str, Any] = {
    "tcp": redis.Connection,
    "tls": redis.SSLConnection,
    "unix": redis.UnixDomainSocketConnection,
    "embedded": _Checked,
}
_ASYNC_CLASSES: dict[str, Any] = {
    "tcp": redis.asyncio.Connection,
    "tls": redis.asyncio.SSLConnection,
    "unix": redis.asyncio.UnixDomainSocketConnection,
    "embedded": _AsyncChecked,
}


class Ready:
    """Connections of a process, kept between commands.

    The client library's pool connects when it is asked for a connection, for as long as that takes: looking up a name
    cannot be interrupted. Here it is done in a thread, which is left alone when the time is over.
    """

    def __init__(self, target: Target, address: Address) -> None:
        retry = Retry(NoBackoff(), 0)  # a conversation does that
        options = _options(address) | target.options
        pool = redis.ConnectionPool(_CLASSES[target.kind], retry=retry, **options)
        self._client = redis.Redis(connection_pool=pool)
        self._readings = dict(self._client.response_callbacks)
        self._pool: Pool[Line] = Pool()
        self.is_broken = False  # a connection could not be made, or did not last

    def exchange(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send a command and return its reply, before the time is over."""
        try:
            line = self._pool.take() or self._connect(deadline)
            try:
                if deadline.blocks is None:
                    reply = line.exchange(parts, deadline)
                else:
                    with self._pool.blocking(line):
                        reply = line.exchange(parts, deadline)
            except BaseException as error:  # interrupted or broken
                line.close()
                if isinstance(error, _TIMED_OUT):
                    self._pool.close_idle()  # they lead to the same silence: each would cost a call all its time
                raise
        except _UNREACHABLE:
            self.is_broken = True
            raise
        _settle(self._pool, line, reply)
        return _read(parts, reply, self._readings)

    def _connect(self, deadline: Deadline) -> Line:
        generation = self._pool.generation  # before it is connected: it may be left meanwhile
        return Line(self._connected(deadline), generation)

    def _connected(self, deadline: Deadline) -> Any:
        made: Future[Any] = Future()
        kinds = self._client.connection_pool
        connection = kinds.connection_class(**kinds.connection_kwargs)
        try:
            threading.Thread(target=_connect, args=(connection, made), name="holdfast-connect", daemon=True).start()
        except RuntimeError:  # no thread can be started: the process is about to end
            _connect(connection, made)
        try:
            return made.result(deadline.seconds_left())
        except TimeoutError:
            made.add_done_callback(lambda _: connection.disconnect())
            raise

    def close(self) -> None:
        self._pool.close_idle()


def _connect(connection: Any, made: Future[Any]) -> None:
    try:
        connection.connect()
    except BaseException as error:
        made.set_exception(error)
    else:
        made.set_result(connection)


class AsyncReady:
    """Connections of an event loop, kept between commands."""

    def __init__(self, target: Target, address: Address) -> None:
        retry = AsyncRetry(NoBackoff(), 0)
        options = _options(address) | target.options
        self._address = address
        pool = redis.asyncio.ConnectionPool(_ASYNC_CLASSES[target.kind], retry=retry, **options)
        self._client = redis.asyncio.Redis(connection_pool=pool)
        self._readings = dict(self._client.response_callbacks)
        self._pool: Pool[AsyncLine] = Pool()
        self._lines: set[AsyncLine] = set()  # all that are open
        self._is_closed = False
        self.is_broken = False  # as that of a `Ready`

    async def exchange(self, parts: tuple[Any, ...], deadline: Deadline) -> Any:
        """Send a command and return its reply, before the time is over."""
        try:
            line = self._pool.take() or await self._connect(deadline)
            try:
                if deadline.blocks is None:
                    reply = await line.exchange(parts, deadline)
                else:
                    with self._pool.blocking(line):
                        reply = await line.exchange(parts, deadline)
            except BaseException as error:  # cancelled or broken
                line.close()
                if isinstance(error, _TIMED_OUT):
                    self._pool.close_idle()  # they lead to the same silence: each would cost a call all its time
                raise
        except _UNREACHABLE:
            self.is_broken = True
            raise
        _settle(self._pool, line, reply)
        return _read(parts, reply, self._readings)

    async def block(self, parts: tuple[Any, ...], deadline: Deadline, behind: Behind) -> Any:
        """Send a command that blocks, once. Returns its reply, or that of the command that was sent behind it."""
        try:
            line = self._pool.take() or await self._connect(deadline)
            try:
                with self._pool.blocking(line):
                    reply = await behind.exchange(line, parts, deadline)
            except BaseException as error:
                (self._pool.discard_all if _is_not_primary(error) else AsyncLine.close)(line)
                raise
            _settle(self._pool, line, reply)
            return _heard(reply)
        except (RedisError, *_UNREACHABLE) as error:
            raise _translate(error, self._address, deadline.seconds) from None

    async def _connect(self, deadline: Deadline) -> AsyncLine:
        before, generation, kinds = _cancellations(), self._pool.generation, self._client.connection_pool
        connection = kinds.connection_class(**kinds.connection_kwargs)
        try:
            async with limited(deadline.seconds_left()):
                await connection.connect()
            if _cancellations() > before:  # which was swallowed: a `wait_for` of Python 3.11 may do so
                raise asyncio.CancelledError
            if self._is_closed:
                raise ConnectionError("the connections were closed meanwhile")
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        line = AsyncLine(connection, generation)
        self._lines.add(line)
        line.closed.add_done_callback(lambda _: self._lines.discard(line))
        return line

    async def close(self) -> None:
        self._is_closed = True
        lines = list(self._lines)
        for line in lines:
            line.close()
        if lines:
            await asyncio.wait([line.closed for line in lines])  # who is cancelled here cancels none of them


def _cancellations() -> int:
    """How often this task was asked to end."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _settle(pool: Pool[L], line: L, reply: Any) -> None:
    """Keep a connection for the next command, unless its server is not the primary."""
    if isinstance(reply, Exception) and _is_not_primary(reply):
        pool.discard_all(line)
    else:
        pool.give_back(line)


def _read(parts: tuple[Any, ...], reply: Any, readings: dict[str, Callable[[Any], Any]]) -> Any:
    """Raise what the server refused with, or return its reply as the client library would."""
    heard, reading = _heard(reply), readings.get(parts[0])
    return reading(heard) if reading else heard


def _heard(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _options(address: Address) -> dict[str, Any]:
    """Nothing is left to the client library's defaults: they have changed between its releases."""
    return {
        "protocol": 2,  # in another a server may say what is no reply
        "socket_timeout": address.timeout,
        "socket_connect_timeout": min(address.timeout, 2.0),
        "decode_responses": False,
        "health_check_interval": 0,
        "max_connections": 10_000,
    }
