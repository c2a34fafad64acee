"""Remove function libraries that nobody calls any more: of older releases, and of older versions of an app's own Lua.

Each library knows when it was last called, by any program and in any namespace of its server. Workers ask all of them
once a day. One that has given the same answer for 30 days is removed; a program that calls it later loads it again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from holdfast import errors
from holdfast.store import AsyncStore, Command, Store, adrive, commands, drive, library

Requests = Generator[tuple[Any, ...] | Command[Any], Any, list[str]]
PREFIX = "holdfast_"


def remove_unused_libraries(store: Store) -> list[str]:
    """Remove function libraries that no program has called for 30 days, and return their names.

    Workers do this once a day, `holdfast upkeep` does, too. It needs the rights to call FUNCTION LIST and FUNCTION
    DELETE; without them it removes nothing.
    """
    return drive(
        _remove(store.address.key),
        lambda step: store.execute(*step) if isinstance(step, tuple) else store.run(step),
    )


async def aremove_unused_libraries(store: AsyncStore) -> list[str]:
    """Remove function libraries, like `remove_unused_libraries`."""

    async def request(step: Any) -> Any:
        return await (store.execute(*step) if isinstance(step, tuple) else store.run(step))

    return await adrive(_remove(store.address.key), request)


def _remove(key: str) -> Requests:
    last_used = {}
    for digest in (yield from _find_others()):
        try:
            last_used[digest] = yield ("FCALL_RO", f"hf_{digest}_last_used", 1, key, b"{}")
        except errors.StoreUnavailable:
            raise
        except errors.HoldfastError:  # it was removed meanwhile
            continue
    removed = []
    for digest in (yield commands.track_libraries(last_used)):
        try:
            yield ("FUNCTION", "DELETE", PREFIX + digest)
        except errors.StoreUnavailable:
            raise
        except errors.HoldfastError:  # this user may not, or another program was faster
            continue
        removed.append(PREFIX + digest)
    return removed


def _find_others() -> Generator[tuple[Any, ...], Any, list[str]]:
    """Return the digests of libraries that this process does not use, and that can say when they were called."""
    try:
        listed = yield ("FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*")
    except errors.StoreUnavailable:
        raise
    except errors.HoldfastError:  # this user may not
        return []
    own, found = library.digests(), []
    for row in listed:
        fields = dict(zip(row[::2], row[1::2], strict=True))
        digest = _digest(fields)
        if digest not in own and can_tell_last_use(fields):
            found.append(digest)
    return found


def can_tell_last_use(row: Mapping[bytes, Any]) -> bool:
    """Return whether a library in a reply to FUNCTION LIST knows when it was last called."""
    return f"hf_{_digest(row)}_last_used".encode() in {function[1] for function in row[b"functions"]}


def _digest(row: Mapping[bytes, Any]) -> str:
    name: bytes = row[b"library_name"]
    return name.decode().removeprefix(PREFIX)
