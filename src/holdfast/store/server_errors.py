"""What the errors of a server and of the connection to it mean: whether to retry, and which of our errors to raise.

READONLY, LOADING, CLUSTERDOWN, MASTERDOWN   not the primary, or not yet: reconnect and retry
UNBLOCKED                                    a blocked command of a server that was demoted: the same
MOVED                                        once: a failover, retry; twice: the wrong node of a cluster, unless the
                                             topology is known
ASK, TRYAGAIN                                the slot is moving to another node: retry
BUSY, MISCONF, NOREPLICAS                    temporarily unavailable: `StoreUnavailable`, without a retry
OOM                                          `StoreFull`
connection refused, reset or timed out       retry until the deadline
wrong password, invalid certificate          `StoreUnavailable`, without a retry
"""

from __future__ import annotations

from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING

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

from holdfast import errors

if TYPE_CHECKING:
    from holdfast.store.address import Address

UNREACHABLE = (RedisConnectionError, RedisTimeoutError, OSError)
TIMED_OUT = (RedisTimeoutError, TimeoutError)
STORE_ERRORS = (RedisError, *UNREACHABLE)
_ACCESS_DENIED = (AuthenticationError, AuthorizationError)  # also connection errors, but a retry does not help
_NOT_PRIMARY = (ReadOnlyError, ClusterDownError, BusyLoadingError, MovedError)  # MASTERDOWN is a ClusterDownError
_UNBLOCKED = "UNBLOCKED force unblock"
_NON_LOCAL_KEY = "access a non local key in a cluster node"
_FUNCTION_MISSING = "Function not found"
_TEMPORARY = ("BUSY", "MISCONF", "NOREPLICAS")


def is_not_primary(error: BaseException) -> bool:
    """Return whether the server is not the primary, or not yet; a new connection may lead to another server."""
    return isinstance(error, _NOT_PRIMARY) or str(error).startswith(_UNBLOCKED) or is_non_local_key(error)


def is_non_local_key(error: BaseException) -> bool:
    """Return whether the slot moved to another node during a function, which may already have written."""
    return _is_from_server(error, _NON_LOCAL_KEY)


def redirection(error: BaseException) -> tuple[str, int] | None:
    """Return the host and the port of the node to which MOVED leads; without a host, it is the same one."""
    return (str(error.host), int(error.port)) if isinstance(error, MovedError) else None


def is_function_missing(error: BaseException) -> bool:
    """Return whether the function library must be loaded, for example after a failover to a new server."""
    return isinstance(error, ResponseError) and _is_from_server(error, _FUNCTION_MISSING)


def is_library_loaded(error: BaseException) -> bool:
    """Return whether FUNCTION LOAD failed because another client has just loaded the library."""
    return isinstance(error, ResponseError) and "already exists" in str(error)


def may_recover(error: Exception, previous: Exception | None, topology: str = "") -> bool:
    """Return whether a retry may succeed. Without a topology, a second MOVED in a row is no failover: the URL names the
    wrong node of a cluster.
    """
    if isinstance(error, MovedError):
        return topology == "cluster" or not isinstance(previous, MovedError)
    if isinstance(error, UNREACHABLE):
        return not isinstance(error, _ACCESS_DENIED) and not isinstance(error.__context__, SSLCertVerificationError)
    return is_not_primary(error) or is_function_missing(error) or isinstance(error, (AskError, TryAgainError))


def translate(error: Exception, address: Address, seconds: float) -> errors.HoldfastError:
    """Turn an error of the Redis client into one of ours."""
    if reason := _unavailable(error, address, seconds):
        return errors.StoreUnavailable(f"{address.display} {reason}")
    if isinstance(error, OutOfMemoryError):
        return errors.StoreFull("the server is out of memory: nothing was stored; raise its maxmemory, or delete jobs")
    return errors.from_reply(str(error)) or errors.HoldfastError(f"{address.display} refused a command: {error}")


def _is_from_server(error: BaseException, text: str) -> bool:
    """Return whether the server itself sent this text; our functions may quote it in their own errors."""
    return text in str(error) and errors.from_reply(str(error)) is None


def _unavailable(error: Exception, address: Address, seconds: float) -> str:
    """Describe why a server is unavailable; '' for errors of another kind."""
    if isinstance(error, TIMED_OUT):
        return f"did not answer within {seconds:.3g} s"
    if isinstance(error, UNREACHABLE):
        return f"cannot be reached: {str(error).rstrip('.')}"
    if isinstance(error, ReadOnlyError):
        return "is a replica and accepts no writes; use the address of the primary, or wait for the end of a failover"
    if isinstance(error, AskError):
        return _describe_redirect(error, address.namespace)
    if is_not_primary(error) or isinstance(error, TryAgainError) or str(error).startswith(_TEMPORARY):
        advice = "; free space on its disk" if "No space left" in str(error) else ""
        return f"is temporarily unavailable: {error}{advice}"
    return ""


def _describe_redirect(error: AskError, namespace: str) -> str:
    """Describe MOVED and ASK, of which the Redis client keeps only the slot and the node."""
    node = str(error).rpartition(" ")[2]
    if not isinstance(error, MovedError):
        return f"is temporarily unavailable: its cluster is moving namespace {namespace} to {node} (ASK)"
    return (
        f"is part of a cluster in which {node} has the keys of namespace {namespace} (MOVED): let the URL begin with"
        " redis+cluster://, which finds the node"
    )
