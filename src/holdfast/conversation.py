"""The conversation with a server, and the Redis client: the only module that knows it.

A conversation is a generator that says what to send, hears the reply or the error, and so on to the end. So loading the
function library when it is missing, connecting anew, and translating errors are written once, for sync and async.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    BusyLoadingError,
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
from holdfast.line import Line

if TYPE_CHECKING:
    from holdfast.store import Address

_UNREACHABLE = (RedisConnectionError, RedisTimeoutError, OSError)
_NOT_NOW = (ClusterDownError, MasterDownError, TryAgainError)
_NOT_NOW_WORDS = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")  # which the client library has no class for
_TIMED_OUT = (RedisTimeoutError, TimeoutError)
_ATTEMPTS = 3
ANSWERS = (ResponseError, BusyLoadingError)  # errors that the server said: the command was not carried out
RECONNECT: tuple[Any, ...] = ()  # what a conversation says to have a new connection

Talk = Generator[tuple[Any, ...], Any, Any]


def conversation(parts: tuple[Any, ...], address: Address, budget: Budget | None = None) -> Talk:
    """Say what to send, hear the reply or the error, and so on to the end: written once for sync and async."""
    if budget and address.home:  # no network is between us, but perhaps a slow disk
        budget.extend_to(address.timeout)
    try:
        return (yield from _attempts(parts, address, budget))
    except errors.StoreUnavailable as error:
        error.maybe_done = budget is None or budget.unanswered > 0
        raise


def _attempts(parts: tuple[Any, ...], address: Address, budget: Budget | None) -> Talk:
    seconds = budget.seconds if budget else address.timeout
    before: Exception | None = None
    for left in reversed(range(_ATTEMPTS)):
        try:
            return (yield from _load_if_missing(parts))
        except errors.HoldfastError:
            raise
        except _UNREACHABLE as error:
            if left == 0 or isinstance(error, _TIMED_OUT):
                raise _translate(before or error, address, seconds) from error
            before = error
            yield RECONNECT
        except RedisError as error:
            raise _translate(error, address, seconds) from None


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
    """Connections for commands that have a budget, kept between them.

    The client library's pool connects when it is asked for a connection, for as long as that takes: looking up a name
    cannot be interrupted. Here it is done in a thread, which is left alone when the time is over.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._idle: list[Line] = []

    def exchange(self, parts: tuple[Any, ...], budget: Budget) -> Any:
        """Send a command and return its reply, before the time is over."""
        line = self._take(budget)
        budget.unanswered += 1
        try:
            reply = line.exchange(parts, budget)
        except ANSWERS:
            budget.unanswered -= 1
            self._idle.append(line)
            raise
        except BaseException:
            # Interrupted or broken: its reply may still come, and must not answer another command.
            line.close()
            raise
        budget.unanswered -= 1
        self._idle.append(line)
        return reply

    def _take(self, budget: Budget) -> Line:
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if line.is_fresh:
                return line
            line.close()
        return Line(self._connect(budget))

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
        while self._idle:
            self._idle.pop().close()


def _connect(connection: Any, made: Future[Any]) -> None:
    try:
        connection.connect()
    except BaseException as error:
        made.set_exception(error)
    else:
        made.set_result(connection)


def connect(url: str, address: Address) -> redis.Redis:
    retry = Retry(ExponentialBackoff(cap=0.5, base=0.02), 3, (RedisConnectionError,))
    return redis.Redis.from_url(url, retry=retry, **_options(address))


def connect_async(url: str, address: Address) -> redis.asyncio.Redis:
    retry = AsyncRetry(ExponentialBackoff(cap=0.5, base=0.02), 3, (RedisConnectionError,))
    return redis.asyncio.Redis.from_url(url, retry=retry, **_options(address))


def _options(address: Address) -> dict[str, Any]:
    """Nothing is left to the client library's defaults: they have changed between its releases."""
    return {
        "protocol": 2,
        "socket_timeout": address.timeout,
        "socket_connect_timeout": min(address.timeout, 2.0),
        "decode_responses": False,
        "health_check_interval": 0,
        "max_connections": 10_000,
    }
