"""Call functions of the app's own Lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast import errors
from holdfast.store.commands.command import Command, Fields, omit_none, read_texts
from holdfast.store.commands.enqueue import NewJob
from holdfast.store.library import ExtendedLibrary
from holdfast.store.tokens import new_token


class CallReply(NamedTuple):
    """The value that a function returned, and the ids of the items that it ended."""

    value: Any
    ended: list[str]


def call(
    library: ExtendedLibrary,
    name: str,
    arguments: Sequence[Any],
    jobs: Sequence[tuple[NewJob, str]] = (),
    *,
    adder: str | None = None,
) -> Command[CallReply]:
    """Call a function, which may enqueue `jobs`, each with its `on_exists`. A lost reply is returned again."""
    calls: list[Fields] = [{**job.batch, "on_exists": on_exists} for job, on_exists in jobs]
    args = omit_none(
        name=name, arguments=list(arguments), calls=calls or None, adder=adder if calls else None, token=new_token()
    )
    blobs = (" ".join(job.id for job, _ in jobs).encode(), *(job.payload for job, _ in jobs))
    return Command("call", args, _read_reply, blobs, library=library)


def query(library: ExtendedLibrary, name: str, arguments: Sequence[Any]) -> Command[CallReply]:
    """Call a function that writes nothing."""
    return Command("query", {"name": name, "arguments": list(arguments)}, _read_reply, library=library)


def _read_reply(reply: list[bytes]) -> CallReply:
    value, *ended = reply
    try:
        return CallReply(msgspec.json.decode(value), read_texts(ended))
    except UnicodeDecodeError:
        raise errors.LuaFailed("the function ran, but returned text that is not UTF-8") from None
