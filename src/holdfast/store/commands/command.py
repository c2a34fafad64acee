"""A command as a value, and what the others share to write arguments and read replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.store.deadline import Budget

T_co = TypeVar("T_co", covariant=True)
Fields = dict[str, Any]


class Command(msgspec.Struct, Generic[T_co], frozen=True):
    """One call of one function of the library; with a `budget` it takes no longer than that, in all."""

    verb: str
    args: dict[str, Any]
    read: Callable[[Any], T_co]
    blobs: tuple[bytes, ...] = ()
    budget: Budget | None = None

    def within(self, budget: Budget) -> Command[T_co]:
        return Command(self.verb, self.args, self.read, self.blobs, budget)


def read_texts(reply: list[bytes]) -> list[str]:
    return [text.decode() for text in reply]


def given(**args: Any) -> Fields:
    """Leave out what is None: a null in JSON is a true value in Lua."""
    return {name: value for name, value in args.items() if value is not None}


_BYTES = {b"payload", b"result", b"checkpoint"}


def read_fields(part: list[Any] | None) -> Fields | None:
    """Read what a reply says of a job. One with a text that is not UTF-8 is `unreadable`."""
    if not part:
        return None
    fields: Fields = {}
    try:
        for place in range(0, len(part), 2):
            name, value = part[place], part[place + 1]
            fields[name.decode()] = value.decode() if isinstance(value, bytes) and name not in _BYTES else value
    except UnicodeDecodeError:
        return {"id": part[1].decode(errors="replace"), "unreadable": "DAMAGED"}
    return fields


def read_pairs(reply: list[bytes]) -> dict[str, str]:
    return {reply[place].decode(): reply[place + 1].decode(errors="replace") for place in range(0, len(reply), 2)}
