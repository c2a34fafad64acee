"""The conversation with a server, and the Redis client: the only module that knows it.

A conversation is a generator that says what to send, hears the reply or the error, and so on to the end. So loading the
function library when it is missing, connecting anew, and translating errors are written once, for sync and async.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from holdfast import errors, functions
from holdfast.budget import Budget
from holdfast.line import AsyncLine, Behind, Line, limited

if TYPE_CHECKING:
    from holdfast.store import Address

_UNREACHABLE = (RedisConnectionError, RedisTimeoutError, OSError)
_NOT_NOW = (ClusterDownError, MasterDownError, TryAgainError)
_NOT_NOW_WORDS = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")  # which the client library has no class for
_TIMED_OUT = (RedisTimeoutError, TimeoutError)
_ATTEMPTS = 3
_RETRIES = 3  # of connecting, in each
_FIXED = {"protocol": 2}  # whatever the URL says: in another a server may say what is no reply
RECONNECT: tuple[Any, ...] = ()  # what a conversation says to have a new connection

Talk = Generator[tuple[Any, ...], Any, Any]
L = TypeVar("L", Line, AsyncLine)


def conversation(parts: tuple[Any, ...], address: Address, budget: Budget) -> Talk:
    """Say what to send, hear the reply or the error, and so on to the end: written once for sync and async."""
    try:
        return (yield from _attempts(parts, address, budget))
    except errors.StoreUnavailable as error:
        error.maybe_done = budget.unanswered > 0
        raise


def _attempts(parts: tuple[Any, ...], address: Address, budget: Budget) -> Talk:
    before: Exception | None = None
    for left in reversed(range(_ATTEMPTS)):
        try:
            return (yield from _load_if_missing(parts))
        except errors.HoldfastError:
            raise
        except _UNREACHABLE as error:
            if left == 0 or isinstance(error, _TIMED_OUT) or not budget.may_repeat:
                raise _translate(before or error, address, budget.seconds) from error
            before = error
            yield RECONNECT
        except RedisError as error:
            raise _translate(error, address, budget.seconds) from None


def _load_if_missing(parts: tuple[Any, ...]) -> Talk:
    try:
        return (yield parts)
    except ResponseError as error:
        if "Function not found" not in str(error):
            raise
    try:
        yield ("FUNCTION", "LOAD", functions.library())
    except ResponseError as error:
        if "already exists" not in str(error):
            raise
    return (yield parts)


def _translate(error: Exception, address: Address, seconds: float) -> errors.HoldfastError:
    """Say in our words what the client library said in its."""
    if isinstance(error, _TIMED_OUT):
        return errors.StoreUnavailable(f"{address.words} did not answer within {seconds:.3g} s")
    if isinstance(error, _UNREACHABLE):
        return errors.StoreUnavailable(f"{address.words} cannot be reached: {str(error).rstrip('.')}")
    if isinstance(error, ReadOnlyError):
        return errors.StoreUnavailable(f"{address.words} is a replica and takes no writes: {error}")
    if isinstance(error, _NOT_NOW) or str(error).startswith(_NOT_NOW_WORDS):
        advice = "; make room on its disk" if "No space left" in str(error) else ""
        return errors.StoreUnavailable(f"{address.words} cannot work now: {error}{advice}")
    if isinstance(error, OutOfMemoryError):
        return errors.StoreFull("the server is out of memory and nothing was stored: raise maxmemory, or finish jobs")
    return errors.from_reply(str(error)) or errors.HoldfastError(f"{address.words} refused a command: {error}")


class Ready:
    """Connections of a process, kept between commands.

    The client library's pool connects when it is asked for a connection, for as long as that takes: looking up a name
    cannot be interrupted. Here it is done in a thread, which is left alone when the time is over.
    """

    def __init__(self, url: str, address: Address) -> None:
        retry = Retry(_backoff(), _RETRIES, (RedisConnectionError,))
        options = _options(address) | redis.connection.parse_url(url) | _FIXED
        self._pool = redis.ConnectionPool(retry=retry, **options)
        client = redis.Redis(connection_pool=self._pool)
        self._readings = dict(client.response_callbacks)
        self._idle: list[Line] = []

    def exchange(self, parts: tuple[Any, ...], budget: Budget) -> Any:
        """Send a command and return its reply, before the time is over."""
        line = _fresh(self._idle) or Line(self._connect(budget))
        try:
            reply = line.exchange(parts, budget)
        except BaseException:  # interrupted or broken
            line.close()
            raise
        self._idle.append(line)
        return _read(parts, reply, self._readings)

    def _connect(self, budget: Budget) -> Any:
        made: Future[Any] = Future()
        connection = self._pool.connection_class(**self._pool.connection_kwargs)
        try:
            threading.Thread(target=_connect, args=(connection, made), name="holdfast-connect", daemon=True).start()
        except RuntimeError:  # no thread can be started: the process is about to end
            _connect(connection, made)
        try:
            return made.result(budget.left())
        except TimeoutError:
            made.add_done_callback(lambda _: connection.disconnect())
            raise

    def close(self) -> None:
        with suppress(IndexError):  # there are no more; other threads may take some, too
            while True:
                self._idle.pop().close()


def _connect(connection: Any, made: Future[Any]) -> None:
    try:
        connection.connect()
    except BaseException as error:
        made.set_exception(error)
    else:
        made.set_result(connection)


class AsyncReady:
    """Connections of an event loop, kept between commands."""

    def __init__(self, url: str, address: Address) -> None:
        retry = AsyncRetry(_backoff(), _RETRIES, (RedisConnectionError,))
        options = _options(address) | redis.asyncio.connection.parse_url(url) | _FIXED
        self._address = address
        self._pool = redis.asyncio.ConnectionPool(retry=retry, **options)
        client = redis.asyncio.Redis(connection_pool=self._pool)
        self._readings = dict(client.response_callbacks)
        self._idle: list[AsyncLine] = []
        self._lines: set[AsyncLine] = set()  # all that are open
        self._is_closed = False

    async def exchange(self, parts: tuple[Any, ...], budget: Budget) -> Any:
        """Send a command and return its reply, before the time is over."""
        line = _fresh(self._idle) or await self._connect(budget)
        try:
            reply = await line.exchange(parts, budget)
        except BaseException:  # cancelled or broken
            line.close()
            raise
        self._idle.append(line)
        return _read(parts, reply, self._readings)

    async def block(self, parts: tuple[Any, ...], budget: Budget, behind: Behind) -> Any:
        """Send a command that blocks, once. Returns its reply, or that of the command that was sent behind it."""
        try:
            line = _fresh(self._idle) or await self._connect(budget)
            try:
                reply = await behind.exchange(line, parts, budget)
            except BaseException:
                line.close()
                raise
            self._idle.append(line)
            return _heard(reply)
        except (RedisError, *_UNREACHABLE) as error:
            raise _translate(error, self._address, budget.seconds) from None

    async def _connect(self, budget: Budget) -> AsyncLine:
        before = _cancellations()
        connection = self._pool.connection_class(**self._pool.connection_kwargs)
        try:
            async with limited(budget.left()):
                await connection.connect()
            if _cancellations() > before:  # which was swallowed: a `wait_for` of Python 3.11 may do so
                raise asyncio.CancelledError
            if self._is_closed:
                raise ConnectionError("the connections were closed meanwhile")
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        line = AsyncLine(connection)
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


def _fresh(idle: list[L]) -> L | None:
    """Take a line that can be used, if there is one."""
    while idle:
        try:
            line = idle.pop()
        except IndexError:  # another thread was faster
            break
        if line.is_fresh:
            return line
        line.close()
    return None


def _read(parts: tuple[Any, ...], reply: Any, readings: dict[str, Callable[[Any], Any]]) -> Any:
    """Raise what the server refused with, or return its reply as the client library would."""
    heard, reading = _heard(reply), readings.get(parts[0])
    return reading(heard) if reading else heard


def _heard(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _backoff() -> ExponentialBackoff:
    return ExponentialBackoff(cap=0.5, base=0.02)


def _options(address: Address) -> dict[str, Any]:
    """Nothing is left to the client library's defaults: they have changed between its releases."""
    return {
        "socket_timeout": address.timeout,
        "socket_connect_timeout": min(address.timeout, 2.0),
        "decode_responses": False,
        "health_check_interval": 0,
        "max_connections": 10_000,
    }
