"""The command value, and helpers to write arguments and read replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.store.deadline import Deadline
from holdfast.store.library import ExtendedLibrary

T_co = TypeVar("T_co", covariant=True)
Fields = dict[str, Any]


class Command(msgspec.Struct, Generic[T_co], frozen=True):
    """One call to one function of the Lua library. Without a `deadline` the address's timeout applies.

    `library` is the one with the app's own Lua, if the function is called there.
    """

    function: str
    args: dict[str, Any]
    read: Callable[[Any], T_co]
    blobs: tuple[bytes, ...] = ()
    deadline: Deadline | None = None
    library: ExtendedLibrary | None = None

    def within(self, deadline: Deadline) -> Command[T_co]:
        return Command(self.function, self.args, self.read, self.blobs, deadline, self.library)


def read_texts(reply: list[bytes]) -> list[str]:
    return [text.decode() for text in reply]


def omit_none(**args: Any) -> Fields:
    """Leave out None: a null in JSON is a true value in Lua."""
    return {name: value for name, value in args.items() if value is not None}


MAX_DIGITS = 13  # of a time until the year 2286

_BYTES = {b"payload", b"result", b"checkpoint", b"default:payload"}


def read_fields(part: list[Any] | None) -> Fields | None:
    """Read the fields of a job. A job with a text that is not UTF-8 is marked `unreadable`."""
    if not part:
        return None
    fields: Fields = {}
    try:
        for index in range(0, len(part), 2):
            name, value = part[index], part[index + 1]
            if name == b"tags":
                value = read_texts(value)
            fields[name.decode()] = value.decode() if isinstance(value, bytes) and name not in _BYTES else value
    except UnicodeDecodeError:
        return {"id": part[1].decode(errors="replace"), "unreadable": "DAMAGED"}
    return fields


def read_record(part: list[Any]) -> Fields:
    """Read the fields of a schedule, a subscription or a batch. One that is damaged can be listed, too, and removed."""
    fields: Fields = {}
    for index in range(0, len(part), 2):
        name, value = part[index], part[index + 1]
        is_text = isinstance(value, bytes) and name not in _BYTES
        fields[name.decode(errors="replace")] = value.decode(errors="replace") if is_text else value
    return fields


def read_number(text: str | None) -> int:
    """Read a number of a record; 0 if it is damaged."""
    return int(text) if text and text.isdecimal() and len(text) <= MAX_DIGITS else 0


class Template(msgspec.Struct, frozen=True):
    """What is shown of the jobs that a schedule or a subscription enqueues."""

    task: str = ""
    queue: str = ""


def read_template(text: str | None) -> Template:
    try:
        return msgspec.json.decode(text or "{}", type=Template)
    except msgspec.MsgspecError:
        return Template()


def read_pairs(reply: list[bytes]) -> dict[str, str]:
    return {reply[index].decode(): reply[index + 1].decode(errors="replace") for index in range(0, len(reply), 2)}
