"""What can be known of a server: asked once, by the sync or the async store, and kept as one value.

Any question may be refused: managed servers do not let their users ask for settings. Then its answer is None, and the
doctor says that it could not be known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from holdfast import errors
from holdfast.server import keeper
from holdfast.store import library
from holdfast.store.store import Address, AsyncStore, Store

T = TypeVar("T")
Asking = Generator[tuple[Any, ...], Any, T]  # yields what to send, is sent the reply, or thrown the refusal

SAMPLES = 5  # of the clock, and of how long a call takes
SETTINGS = (
    "aof-load-truncated", "appendfsync", "bind", "dir", "disable-thp", "lazyfree-lazy-user-del", "min-replicas-max-lag",
    "min-replicas-to-write", "port", "protected-mode", "save", "tls-port",
)  # fmt: skip
# What the functions do to a key, and how the server writes it to its append-only file.
WRITES: tuple[tuple[Any, ...], ...] = (
    ("DEL",), ("HDEL", "f"), ("HINCRBY", "f", 1), ("HSET", "f", "v"), ("HSETNX", "f", "v"), ("LPOP",), ("LPUSH", "v"),
    ("LTRIM", 0, 0), ("PEXPIRE", 1), ("PEXPIREAT", 1), ("RPUSH", "v"), ("SADD", "m"), ("SET", "v"), ("SPOP", 1),
    ("SREM", "m"), ("SUNIONSTORE", "k"), ("UNLINK",), ("XADD", "*", "f", "v"), ("XTRIM", "MAXLEN", 1), ("ZADD", 0, "m"),
    ("ZPOPMAX",), ("ZREM", "m"), ("ZREMRANGEBYSCORE", 0, 0),
)  # fmt: skip


class Clock(NamedTuple):
    """The server's clock against that of this machine, in seconds."""

    ahead: float
    uncertain: float  # half of the quickest round trip
    went_back: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the doctor goes by. None: the server did not tell. Times are in seconds."""

    info: Mapping[str, str] | None = None
    settings: Mapping[str, str] | None = None
    user: str | None = None  # whom the server takes us for
    default_flags: tuple[str, ...] | None = None  # of the user `default`: on, off, nopass, ...
    default_may_write: bool | None = None  # what our functions write, whether or not anybody can log in as it
    libraries: tuple[str, ...] | None = None  # of functions, of any release of ours
    schema: str | None = None  # why the functions refuse the data of this namespace; empty: they do not
    undefined_limits: tuple[str, ...] | None = None  # that jobs took part in: they do not hold
    clock: Clock | None = None
    ping: float | None = None  # the quickest of several
    call: float | None = None
    host: str = ""  # that we connected to; empty: by a unix socket
    has_password: bool = False
    is_embedded: bool = False  # so its keeper syncs what it writes
    is_kept: bool = True  # by a keeper that lives


def gather(store: Store) -> Facts:
    """Ask a server all that the doctor wants to know.

    Raises:
        StoreUnavailable: it cannot be reached.
    """
    asking = _ask(store.address)
    try:
        question = next(asking)
        while True:
            try:
                reply = store.execute(*question)
            except errors.HoldfastError as error:
                question = asking.throw(error)
            else:
                question = asking.send(reply)
    except StopIteration as end:
        facts: Facts = end.value
        return facts


async def agather(store: AsyncStore) -> Facts:
    """Ask a server, as `gather` does."""
    asking = _ask(store.address)
    try:
        question = next(asking)
        while True:
            try:
                reply = await store.execute(*question)
            except errors.HoldfastError as error:
                question = asking.throw(error)
            else:
                question = asking.send(reply)
    except StopIteration as end:
        facts: Facts = end.value
        return facts


def _ask(address: Address) -> Asking[Facts]:
    info = _read_info((yield from _try("INFO")))
    user = _word((yield from _try("ACL", "WHOAMI")))
    call, schema = yield from _time_a_call(address)
    settings = _read_pairs((yield from _try("CONFIG", "GET", *SETTINGS)))
    return Facts(
        info=info,
        settings=settings,
        user=user,
        default_flags=_read_flags((yield from _try("ACL", "GETUSER", "default"))),
        default_may_write=(yield from _ask_what_default_may(address)),
        libraries=_read_libraries((yield from _try("FUNCTION", "LIST", "LIBRARYNAME", "holdfast_*"))),
        schema=schema,
        undefined_limits=(yield from _ask_undefined_limits(address)),
        clock=(yield from _read_clock(address)),
        ping=(yield from _time_a_ping()),
        call=call,
        host=_host(address),
        has_password=_has_password(address),
        is_embedded=(home := _home(address, settings or {})) is not None,
        is_kept=home is None or keeper.is_kept(home) is not False,
    )


def _try(*question: Any) -> Asking[Any]:
    """Ask, and return None if this user may not, or this server does not know the question."""
    try:
        return (yield question)
    except errors.StoreUnavailable:
        raise
    except errors.HoldfastError:
        return None


def _time_a_call(address: Address) -> Asking[tuple[float | None, str | None]]:
    """Return how long a function takes that only reads, and why it refuses; the first loads the library."""
    question = ("FCALL", library.function("count"), 1, address.key, b"{}")
    try:
        yield question
        return (yield from _quickest(question)), ""
    except errors.WrongSchema as error:
        return None, str(error)
    except errors.HoldfastError:  # not a reason to know nothing else: a replica, a full disk
        return None, None


def _ask_undefined_limits(address: Address) -> Asking[tuple[str, ...] | None]:
    try:
        reply = yield ("FCALL", library.function("limits"), 1, address.key, b"{}")
    except errors.HoldfastError:  # as above
        return None
    return tuple(sorted(str(_word(row[0])) for row in reply if row[1] == 0))


def _time_a_ping() -> Asking[float | None]:
    try:
        return (yield from _quickest(("PING",)))
    except errors.HoldfastError:  # as above
        return None


def _quickest(question: tuple[Any, ...]) -> Asking[float]:
    best = float("inf")
    for _ in range(SAMPLES):
        began = time.perf_counter()
        yield question
        best = min(best, time.perf_counter() - began)
    return best


def _ask_what_default_may(address: Address) -> Asking[bool | None]:
    for word, *rest in WRITES:
        answer = _word((yield from _try("ACL", "DRYRUN", "default", word, address.key, *rest)))
        if answer != "OK":
            return None if answer is None else False
    return True


def _read_clock(address: Address) -> Asking[Clock | None]:
    """Compare the clocks; also with the server's time at the last sign of life of a worker, which is in the past."""
    pulse = _word((yield from _try("HGET", address.key, "pulse")))
    samples: list[tuple[float, float, float]] = []
    for _ in range(SAMPLES):
        before = time.time()
        reply = yield from _try("TIME")
        after = time.time()
        if reply is None:
            return None
        there = int(reply[0]) + int(reply[1]) / 1e6
        samples.append((after - before, there - (before + after) / 2, there))
    took, ahead, _ = min(samples)
    times = [float(pulse or 0) / 1000, *(there for _, _, there in samples)]
    return Clock(ahead, max(took, 0.0) / 2, max(0.0, *(earlier - later for earlier, later in pairwise(times))))


def _word(reply: Any) -> str | None:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else None


def _read_info(reply: Any) -> dict[str, str] | None:
    """The client library has made a dict of it, with values of some types. Without a version it is not worth much."""
    if reply is None or "redis_version" not in reply:
        return None
    return {str(name): str(value) for name, value in reply.items()}


def _read_pairs(reply: Any) -> dict[str, str] | None:
    if reply is None:
        return None
    words = [str(_word(word)) for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _read_flags(reply: Any) -> tuple[str, ...] | None:
    """Of all that the server says of a user: passwords are none of our business, hashed or not."""
    if reply is None:
        return None
    return tuple(str(_word(flag)) for flag in dict(zip(reply[::2], reply[1::2], strict=True))[b"flags"])


def _read_libraries(reply: Any) -> tuple[str, ...] | None:
    if reply is None:
        return None
    return tuple(sorted(str(_word(dict(zip(each[::2], each[1::2], strict=True))[b"library_name"])) for each in reply))


def _host(address: Address) -> str:
    url = urlsplit(address.url or "")
    return "" if url.scheme in ("", "unix") else url.hostname or "localhost"


def _has_password(address: Address) -> bool:
    url = urlsplit(address.url or "")
    return url.password is not None or "password" in parse_qs(url.query)


def _home(address: Address, settings: Mapping[str, str]) -> str | None:
    """Return the home of an embedded server, also if it is used by its URL: then its data lies beside its lock."""
    if address.home is not None:
        return os.path.realpath(address.home)
    home, _, name = settings.get("dir", "").rpartition("/")
    is_here = not _host(address) and name == keeper.DATA and os.path.exists(f"{home}/{keeper.LIFE}")
    return home if is_here else None
