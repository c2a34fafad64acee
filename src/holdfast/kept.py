"""A call as it is kept on disk, and the file of such records.

    K 00001 000000412 1a2b3c4d {"at":1700000000000,"args":{...},"ids":["..."],"blobs":["..."],"format":2}⏎
    │ calls length    checksum

K becomes S, in place, when the record was sent. A record that is not whole is known by its length or its checksum; as
JSON has no line breaks, the next one begins after the next line break. Its first byte becomes X when it was set aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import msgspec

from holdfast import errors
from holdfast.commands import Command

MOST_BYTES = 64 << 20
FORMAT = 2
SET_ASIDE = b"X\n"  # how a damaged line begins that was set aside, and an empty one, where nothing is to be

_HEADER = re.compile(rb"([KS]) (\d{5}) (\d{9}) ([0-9a-f]{8}) ")
HEADER_SIZE = 27


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """An enqueue that waits on disk: when it was kept, in milliseconds of this machine's clock, and what to send."""

    at: int
    args: dict[str, Any]
    ids: list[str]
    blobs: tuple[bytes, ...]
    format: int = 1  # of those that do not say

    @classmethod
    def of(cls, command: Command[Any], now: int) -> Kept:
        """Delay and deadline count from now on. And an id must be looked up then, however new it is today."""
        batches = [_with_times(batch, now) for batch in command.args["batches"]]
        args = {name: value for name, value in command.args.items() if name != "fresh"}
        ids, *payloads = command.blobs
        return cls(now, {**args, "batches": batches}, ids.decode().split(" "), tuple(payloads), FORMAT)

    @property
    def command(self) -> Command[None]:
        return Command("enqueue", self.args, lambda _: None, (" ".join(self.ids).encode(), *self.blobs))

    @property
    def batches(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.args["batches"]
        return found

    @property
    def calls(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each id, and what is said of it and of its like."""
        ids = iter(self.ids)
        for batch in self.batches:
            for _ in range(batch.get("count", 1)):
                yield next(ids), batch


def _with_times(batch: dict[str, Any], now: int) -> dict[str, Any]:
    """Say when, in the place of how long from now."""
    names = {"delay": "due", "deadline": "start_by"}
    return {names.get(name, name): now + value if name in names else value for name, value in batch.items()}


class Refused(msgspec.Struct, frozen=True):
    """A kept call that the store refused when it was sent: when, with which code and words."""

    at: int
    code: str
    reason: str
    call: Kept

    @property
    def error(self) -> errors.HoldfastError:
        return errors.BY_CODE.get(self.code, errors.HoldfastError)(self.reason)


class Record(NamedTuple):
    """What stands in the file from `place` to `end`.

    `data` is nothing of a part that is damaged; that is never sent, but once set aside it counts as if it were.
    """

    place: int
    end: int
    is_sent: bool
    calls: int
    data: bytes | None

    @property
    def kept(self) -> Kept:
        """What is kept.

        Raises:
            MsgspecError: another release wrote it, in a form that is not known here.
        """
        kept = msgspec.json.decode(self.data or b"", type=Kept)
        if kept.format != FORMAT:
            raise msgspec.ValidationError(f"the form of the record is {kept.format}, not {FORMAT}")
        return kept


def line_of(kept: Kept) -> bytes:
    data = msgspec.json.encode(kept)
    return b"K %05d %09d %08x %b\n" % (len(kept.ids), len(data), crc32(data), data)


def read_records(file: BinaryIO, place: int = 0) -> Iterator[Record]:
    """Read from a place on. What is no record is passed over, up to the end of its line."""
    file.seek(place)
    while header := file.read(HEADER_SIZE):
        found = _HEADER.fullmatch(header)
        body = file.read(int(found[3]) + 1) if found and int(found[3]) <= MOST_BYTES else b""
        data = body[:-1]
        if found and len(data) == int(found[3]) and body.endswith(b"\n") and crc32(data) == int(found[4], 16):
            record = Record(place, place + len(header) + len(body), found[1] == b"S", int(found[2]), data)
        else:
            file.seek(place)
            record = Record(place, place + len(file.readline()), header[:1] in SET_ASIDE, calls=0, data=None)
        yield record
        place = record.end
        file.seek(place)
