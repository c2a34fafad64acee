"""The conversation with a server, and the Redis client: the only module that knows it.

A conversation is a generator that says what to send, hears the reply or the error, and so on to the end. So loading the
function library when it is missing, connecting anew, and translating errors are written once, for sync and async.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from holdfast.store import Address

_UNREACHABLE = (RedisConnectionError, RedisTimeoutError, OSError)
_NOT_NOW = (ClusterDownError, MasterDownError, TryAgainError)
_NOT_NOW_WORDS = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")  # which the client library has no class for
_ATTEMPTS = 3
RECONNECT: tuple[Any, ...] = ()  # what a conversation says to have a new connection


def conversation(parts: tuple[Any, ...], address: Address) -> Generator[tuple[Any, ...], Any, Any]:
    """Say what to send, hear the reply or the error, and so on to the end: written once for sync and async."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            return (yield from _load_if_missing(parts))
        except errors.HoldfastError:
            raise
        except _UNREACHABLE as error:
            if left == 0 or isinstance(error, RedisTimeoutError | TimeoutError):
                raise _translate(error, address) from error
            yield RECONNECT
        except RedisError as error:
            raise _translate(error, address) from None


def _load_if_missing(parts: tuple[Any, ...]) -> Generator[tuple[Any, ...], Any, Any]:
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


def _translate(error: Exception, address: Address) -> errors.HoldfastError:
    """Say in our words what the client library said in its."""
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return errors.StoreUnavailable(f"{address.words} did not answer within {address.timeout:g} s")
    if isinstance(error, _UNREACHABLE):
        return errors.StoreUnavailable(f"{address.words} cannot be reached: {error}")
    if isinstance(error, ReadOnlyError):
        return errors.StoreUnavailable(f"{address.words} is a replica and takes no writes: {error}")
    if isinstance(error, _NOT_NOW) or str(error).startswith(_NOT_NOW_WORDS):
        return errors.StoreUnavailable(f"{address.words} cannot work now: {error}")
    if isinstance(error, OutOfMemoryError):
        return errors.StoreFull("the server is out of memory and nothing was stored: raise maxmemory, or finish jobs")
    return errors.from_reply(str(error)) or errors.HoldfastError(f"{address.words} refused a command: {error}")


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
    }
