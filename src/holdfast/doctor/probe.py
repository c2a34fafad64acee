"""The facts about a server, collected once by the sync or the async store into one value.

Any request may be refused: managed servers do not let their users read settings. The fact is None then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast import errors
from holdfast.client.libraries import can_tell_last_use
from holdfast.server import keeper
from holdfast.store import Address, AsyncStore, Store, adrive, drive, library
from holdfast.store.commands.checks import CheckHistory, read_check_history

T = TypeVar("T")
Requests = Generator[tuple[Any, ...], Any, T]  # yields requests, receives replies or errors

MAX_PAGES = 100  # of 1,000 queues
MAX_LAG = 600  # seconds that a subscription may be behind
NODES = 10_000  # of the stream of events whose size is looked up
SAMPLES = 5  # of the clock, and of the duration of a call
SETTINGS = (
    "aof-load-truncated", "appendfsync", "bind", "dir", "disable-thp", "lazyfree-lazy-user-del", "min-replicas-max-lag",
    "min-replicas-to-write", "port", "protected-mode", "save", "tls-port",
)  # fmt: skip
# Every way in which the functions write to a key, as it appears in the append-only file.
WRITES: tuple[tuple[Any, ...], ...] = (
    ("APPEND", "v"), ("COPY", "k"), ("DEL",), ("HDEL", "f"), ("HINCRBY", "f", 1), ("HSET", "f", "v"),
    ("HSETNX", "f", "v"), ("LPOP",), ("LPUSH", "v"), ("LMOVE", "k", "RIGHT", "LEFT"), ("LREM", 0, "v"),
    ("LSET", 0, "v"), ("LTRIM", 0, 0), ("PERSIST",), ("PEXPIRE", 1), ("PEXPIREAT", 1), ("RENAME", "k"),
    ("RPOP",), ("RPUSH", "v"), ("SADD", "m"), ("SET", "v"), ("SREM", "m"), ("UNLINK",), ("XADD", "*", "f", "v"),
    ("XTRIM", "MAXLEN", 1), ("ZADD", 0, "m"), ("ZPOPMAX",), ("ZPOPMIN", 1), ("ZREM", "m"),
    ("ZREMRANGEBYRANK", 0, 0), ("ZREMRANGEBYSCORE", 0, 0), ("ZUNIONSTORE", 1, "k"),
)  # fmt: skip


class Clock(NamedTuple):
    """The server's clock compared with that of this machine, in seconds."""

    ahead: float
    uncertain: float  # half of the fastest round trip
    went_back: float = 0.0


class FullQueue(NamedTuple):
    """A queue with almost as many failed jobs as it may have, or all; and about how many bytes one takes."""

    name: str
    failed: int
    most: int
    bytes: int  # 0: unknown


class FailureLimits(NamedTuple):
    """Queues with many failed jobs, and the kinds of names of which there are too many: g, p, t."""

    queues: tuple[FullQueue, ...] = ()
    kinds: str = ""


class Undelivered(NamedTuple):
    """A subscription that is not paused, and whose events nobody has looked at for a while."""

    name: str
    behind: int  # seconds from the last event that was looked at to the latest one
    is_held: bool  # by a worker
    is_damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The facts about a server; None if it refused the request. Times are in seconds."""

    info: Mapping[str, str] | None = None
    settings: Mapping[str, str] | None = None
    user: str | None = None  # the user of our connection
    default_flags: tuple[str, ...] | None = None  # of the user `default`: on, off, nopass, ...
    default_may_write: bool | None = None  # what our functions write; applies even if nobody can log in as it
    libraries: tuple[str, ...] | None = None  # function libraries of any release of Holdfast
    undated_libraries: tuple[str, ...] = ()  # those of older releases, which do not know when they were last called
    may_remove_libraries: bool | None = None  # whether this user may call FUNCTION DELETE
    schema: str | None = None  # why the functions refuse the data of this namespace; empty if they do not
    undefined_limits: tuple[str, ...] | None = None  # limits that jobs name, which are not enforced
    failure_limits: FailureLimits | None = None
    tags: int | None = None  # number of different tags
    event_bytes: int | None = None  # of the events that are kept
    undelivered: tuple[Undelivered, ...] | None = None  # subscriptions
    check_history: CheckHistory | None = None  # what upkeep has found
    clock: Clock | None = None
    ping: float | None = None  # the fastest of several
    call: float | None = None
    host: str = ""  # empty for a unix socket
    has_password: bool = False
    is_embedded: bool = False  # its keeper syncs its files
    has_keeper: bool = True  # its keeper is alive


def probe_server(store: Store) -> ServerFacts:
    """Ask a server for all facts that the checks need.

    Raises:
        StoreUnavailable: it cannot be reached.
    """
    return drive(_collect(store.address), lambda request: store.execute(*request))


async def aprobe_server(store: AsyncStore) -> ServerFacts:
    """Ask a server, like `probe_server`."""
    return await adrive(_collect(store.address), lambda request: store.execute(*request))


def _collect(address: Address) -> Requests[ServerFacts]:
    info = _read_info((yield from _reply_or_none("INFO")))
    user = _text((yield from _reply_or_none("ACL", "WHOAMI")))
    call, schema = yield from _time_call(address)
    settings = _read_pairs((yield from _reply_or_none("CONFIG", "GET", *SETTINGS)))
    libraries = _read_libraries((yield from _reply_or_none("FUNCTION", "LIST", "LIBRARYNAME", "holdfast_*")))
    return ServerFacts(
        info=info,
        settings=settings,
        user=user,
        default_flags=_read_flags((yield from _reply_or_none("ACL", "GETUSER", "default"))),
        default_may_write=(yield from _check_default_may_write(address)),
        libraries=None if libraries is None else tuple(sorted(libraries)),
        undated_libraries=tuple(sorted(name for name, is_dated in (libraries or {}).items() if not is_dated)),
        may_remove_libraries=(yield from _check_may_remove(user)),
        schema=schema,
        undefined_limits=(yield from _list_undefined_limits(address)),
        failure_limits=(yield from _read_failure_limits(address)),
        tags=(yield from _count_tags(address)),
        event_bytes=(yield from _measure_events(address)),
        undelivered=(yield from _find_undelivered(address)),
        check_history=(yield from _read_check_history(address)),
        clock=(yield from _read_clock(address)),
        ping=(yield from _time_ping()),
        call=call,
        host=_host(address),
        has_password=_has_password(address),
        is_embedded=(home := _home(address, settings or {})) is not None,
        has_keeper=home is None or keeper.has_keeper(home) is not False,
    )


def _reply_or_none(*request: Any) -> Requests[Any]:
    """Return the reply; None if this user may not send the request, or the server does not know it."""
    try:
        return (yield request)
    except errors.StoreUnavailable:
        raise
    except errors.HoldfastError:
        return None


def _time_call(address: Address) -> Requests[tuple[float | None, str | None]]:
    """Return the duration of a read-only function, and why it was refused. The first call loads the library."""
    request = ("FCALL", library.function("count"), 1, address.key, b"{}")
    try:
        yield request
        return (yield from _fastest(request)), ""
    except errors.WrongSchema as error:
        return None, str(error)
    except errors.HoldfastError:  # a replica or a full disk: other facts are still available
        return None, None


def _list_undefined_limits(address: Address) -> Requests[tuple[str, ...] | None]:
    try:
        _, undefined = yield ("FCALL", library.function("limit_names"), 1, address.key, b"{}")
    except errors.HoldfastError:  # as above
        return None
    return tuple(sorted(str(_text(name)) for name in undefined))


def _read_failure_limits(address: Address) -> Requests[FailureLimits | None]:
    full, after = [], b""
    for _ in range(MAX_PAGES):
        args = msgspec.json.encode({"after": str(_text(after))} if after else {})
        try:
            after, kinds, *rows = yield ("FCALL", library.function("failure_limits"), 1, address.key, args)
        except errors.HoldfastError:  # as above
            return None
        full += [FullQueue(str(_text(name)), *numbers) for name, *numbers in rows]
        if not after:
            break
    return FailureLimits(tuple(full), str(_text(kinds)))


def _count_tags(address: Address) -> Requests[int | None]:
    try:
        total, *_ = yield ("FCALL", library.function("tags"), 1, address.key, b'{"limit":1}')
    except errors.HoldfastError:  # as above
        return None
    return int(total)


def _measure_events(address: Address) -> Requests[int | None]:
    try:
        key, *_ = yield ("FCALL", library.function("events"), 1, address.key, b'{"limit":1}')
    except errors.HoldfastError:  # as above
        return None
    try:
        return (yield ("MEMORY", "USAGE", key, "SAMPLES", NODES)) or 0
    except errors.StoreUnavailable:
        raise
    except errors.HoldfastError:
        return None


def _find_undelivered(address: Address) -> Requests[tuple[Undelivered, ...] | None]:
    """Return the subscriptions that are behind; there are at most as many as one page has."""
    try:
        rows = yield ("FCALL", library.function("subscriptions"), 1, address.key, b"{}")
    except errors.HoldfastError:  # as above
        return None
    found = map(_undelivered, (_read_pairs(row) or {} for row in rows))
    return tuple(each for each in found if each is not None)


def _read_check_history(address: Address) -> Requests[CheckHistory | None]:
    try:
        reply = yield ("FCALL", library.function("check_history"), 1, address.key, b"{}")
    except errors.HoldfastError:  # as above
        return None
    return read_check_history(reply)


def _undelivered(fields: Mapping[str, str]) -> Undelivered | None:
    name, is_held = fields["name"], _number(fields.get("ends")) > _number(fields["now"])
    if not {"position", "spec", "batch"} <= fields.keys():
        return Undelivered(name, 0, is_held, is_damaged=True)
    looked_at = max(_number(fields["position"].lstrip("=")), _number(fields.get("since")))
    behind = (_number(fields["last_event"]) - looked_at) // 1000
    return Undelivered(name, behind, is_held) if behind > MAX_LAG and fields.get("paused") != "1" else None


def _number(text: str | None) -> int:
    """Return the milliseconds that a position, or a time, begins with."""
    digits = (text or "").partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _time_ping() -> Requests[float | None]:
    try:
        return (yield from _fastest(("PING",)))
    except errors.HoldfastError:  # as above
        return None


def _fastest(request: tuple[Any, ...]) -> Requests[float]:
    best = float("inf")
    for _ in range(SAMPLES):
        began = time.perf_counter()
        yield request
        best = min(best, time.perf_counter() - began)
    return best


def _check_default_may_write(address: Address) -> Requests[bool | None]:
    for command, *arguments in WRITES:
        answer = _text((yield from _reply_or_none("ACL", "DRYRUN", "default", command, address.key, *arguments)))
        if answer != "OK":
            return None if answer is None else False
    return True


def _check_may_remove(user: str | None) -> Requests[bool | None]:
    answer = _text((yield from _reply_or_none("ACL", "DRYRUN", user or "default", "FUNCTION", "DELETE", "holdfast_0")))
    return None if answer is None else answer == "OK"


def _read_clock(address: Address) -> Requests[Clock | None]:
    """Compare the clocks; also with the server's time at the last heartbeat of a worker, which must be earlier."""
    pulse = _text((yield from _reply_or_none("HGET", address.key, "pulse")))
    samples: list[tuple[float, float, float]] = []
    for _ in range(SAMPLES):
        before = time.time()
        reply = yield from _reply_or_none("TIME")
        after = time.time()
        if reply is None:
            return None
        there = int(reply[0]) + int(reply[1]) / 1e6
        samples.append((after - before, there - (before + after) / 2, there))
    took, ahead, _ = min(samples)
    times = [float(pulse or 0) / 1000, *(there for _, _, there in samples)]
    return Clock(ahead, max(took, 0.0) / 2, max(0.0, *(earlier - later for earlier, later in pairwise(times))))


def _text(reply: Any) -> str | None:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else None


def _read_info(reply: Any) -> dict[str, str] | None:
    """Read the dict that the client library makes of INFO. Without a version it is of no use."""
    if reply is None or "redis_version" not in reply:
        return None
    return {str(name): str(value) for name, value in reply.items()}


def _read_pairs(reply: Any) -> dict[str, str] | None:
    if reply is None:
        return None
    texts = [str(_text(each)) for each in reply]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _read_flags(reply: Any) -> tuple[str, ...] | None:
    """Read only the flags of a user, not its passwords, hashed or not."""
    if reply is None:
        return None
    return tuple(str(_text(flag)) for flag in dict(zip(reply[::2], reply[1::2], strict=True))[b"flags"])


def _read_libraries(reply: Any) -> dict[str, bool] | None:
    """Return the names of libraries, and whether each knows when it was last called."""
    if reply is None:
        return None
    rows = [dict(zip(each[::2], each[1::2], strict=True)) for each in reply]
    return {str(_text(row[b"library_name"])): can_tell_last_use(row) for row in rows}


def _host(address: Address) -> str:
    url = urlsplit(address.url or "")
    return "" if url.scheme in ("", "unix") else url.hostname or "localhost"


def _has_password(address: Address) -> bool:
    url = urlsplit(address.url or "")
    return url.password is not None or "password" in parse_qs(url.query)


def _home(address: Address, settings: Mapping[str, str]) -> str | None:
    """Return the home of an embedded server; if it is addressed by a URL, its data lies beside its lock."""
    if address.home is not None:
        return os.path.realpath(address.home)
    home, _, name = settings.get("dir", "").rpartition("/")
    is_here = not _host(address) and name == keeper.DATA and os.path.exists(f"{home}/{keeper.LIFE}")
    return home if is_here else None
