"""Opens connections with the Redis client library: TCP, TLS, unix sockets, and the socket of an embedded server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from holdfast.server import keeper

if TYPE_CHECKING:
    from holdfast.store.address import Address, Target


__all__ = ["key_slot", "new_async_client", "new_client", "new_connection", "new_seed_connection"]


class _EmbeddedConnection(redis.UnixDomainSocketConnection):  # type: ignore[misc]
    """A connection to an embedded server. Nothing is sent until the user of the listening process is verified."""

    def __init__(self, *, users: frozenset[int], **options: Any) -> None:
        super().__init__(**options)
        self._users = users

    def on_connect_check_health(self, check_health: bool = True) -> None:
        _check_peer(self._sock, self._users)
        super().on_connect_check_health(check_health=check_health)


class _AsyncEmbeddedConnection(redis.asyncio.UnixDomainSocketConnection):  # type: ignore[misc]
    """The async variant of `_EmbeddedConnection`."""

    def __init__(self, *, users: frozenset[int], **options: Any) -> None:
        super().__init__(**options)
        self._users = users

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        _check_peer(self._writer.get_extra_info("socket"), self._users)
        await super().on_connect_check_health(check_health=check_health)


def _check_peer(connection: Any, users: frozenset[int]) -> None:
    try:
        keeper.check_peer(connection, users)
    except keeper.UntrustedPeer as error:
        raise RedisConnectionError(str(error)) from None


_CLASSES: dict[str, Any] = {
    "tcp": redis.Connection,
    "tls": redis.SSLConnection,
    "unix": redis.UnixDomainSocketConnection,
    "embedded": _EmbeddedConnection,
}
_ASYNC_CLASSES: dict[str, Any] = {
    "tcp": redis.asyncio.Connection,
    "tls": redis.asyncio.SSLConnection,
    "unix": redis.asyncio.UnixDomainSocketConnection,
    "embedded": _AsyncEmbeddedConnection,
}


def new_client(target: Target, address: Address) -> Any:
    """Return a Redis client that is not connected, and never retries: see `command_retry`."""
    options = _options(address) | target.options
    pool = redis.ConnectionPool(_CLASSES[target.kind], retry=Retry(NoBackoff(), 0), **options)
    return redis.Redis(connection_pool=pool)


def new_async_client(target: Target, address: Address) -> Any:
    """Return an async Redis client, like `new_client`."""
    options = _options(address) | target.options
    pool = redis.asyncio.ConnectionPool(_ASYNC_CLASSES[target.kind], retry=AsyncRetry(NoBackoff(), 0), **options)
    return redis.asyncio.Redis(connection_pool=pool)


def new_connection(client: Any, place: tuple[str, int] | None = None) -> Any:
    """Return a connection of a client, which its `connect` opens; `place` is the host and the port, if not its own."""
    pool = client.connection_pool
    where = {"host": place[0], "port": place[1]} if place else {}
    return pool.connection_class(**{**pool.connection_kwargs, **where})


def new_seed_connection(target: Target, seed: tuple[str, int], timeout: float) -> Any:
    """Return a connection to a Sentinel, or to a node of a cluster that knows the others."""
    topology, options = target.topology, dict(target.options)
    if topology and topology.name == "sentinel":  # it has no databases, and users of its own
        options = {name: value for name, value in options.items() if name not in ("db", "username", "password")}
        options |= topology.access
    limits = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": Retry(NoBackoff(), 0)}
    return _CLASSES[target.kind](**{**options, "protocol": 2, "host": seed[0], "port": seed[1], **limits})


def _options(address: Address) -> dict[str, Any]:
    """Set every option: the client library's defaults have changed between releases."""
    return {
        "protocol": 2,  # RESP3 servers may push messages that are not replies
        "socket_timeout": address.timeout,
        "socket_connect_timeout": min(address.timeout, 2.0),
        "decode_responses": False,
        "health_check_interval": 0,
        "max_connections": 10_000,
    }
