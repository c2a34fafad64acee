"""The file of the outbox: one line per record, appended, and marked in place when it was sent.

    P 00001 000000412 1a2b3c4d {"at":1700000000000,"args":{...},"ids":["..."],"blobs":["..."],"format":2}⏎
    │ calls size      checksum  the entry as JSON
    └ P pending, S sent, X damaged and set aside

A damaged record is recognised by its size or checksum. JSON contains no line breaks, so the next record starts on the
next line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

import msgspec

from holdfast.outbox.entry import FORMAT, Entry

MAX_BYTES = 64 << 20  # of the file
CHUNK = 4 << 20  # bytes that are read at once, at least one record
HEADER_SIZE = 27
SENT, SET_ASIDE = b"S", b"X"

_HEADER = re.compile(rb"([PS]) (\d{5}) (\d{9}) ([0-9a-f]{8}) ")


class Record(NamedTuple):
    """The record from `start` to `end`. If it is damaged, `data` is None; once set aside it counts as sent."""

    start: int
    end: int
    is_sent: bool
    calls: int
    data: bytes | None

    @property
    def is_pending(self) -> bool:
        return self.data is not None and not self.is_sent

    @property
    def is_new_damage(self) -> bool:
        return self.data is None and not self.is_sent

    @property
    def entry(self) -> Entry:
        """The entry.

        Raises:
            MsgspecError: another release wrote it, in another format.
        """
        entry = msgspec.json.decode(self.data or b"", type=Entry)
        if entry.format != FORMAT:
            raise msgspec.ValidationError(f"the format of the entry is {entry.format}, not {FORMAT}")
        return entry


def encode_record(entry: Entry) -> bytes:
    data = msgspec.json.encode(entry)
    return b"P %05d %09d %08x %b\n" % (len(entry.ids), len(data), crc32(data), data)


def read_records(file: BinaryIO, start: int = 0) -> Iterator[Record]:
    """Read the records from an offset. Damage extends to the end of its line."""
    file.seek(start)
    while header := file.read(HEADER_SIZE):
        found = _HEADER.fullmatch(header)
        body = file.read(int(found[3]) + 1) if found and int(found[3]) <= MAX_BYTES else b""
        data = body[:-1]
        if found and len(data) == int(found[3]) and body.endswith(b"\n") and crc32(data) == int(found[4], 16):
            record = Record(start, start + len(header) + len(body), found[1] == SENT, int(found[2]), data)
        else:
            file.seek(start)
            is_set_aside = header[:1] in (SET_ASIDE, b"\n")  # an empty line contains nothing to set aside
            record = Record(start, start + len(file.readline()), is_set_aside, calls=0, data=None)
        yield record
        start = record.end
        file.seek(start)


@contextmanager
def opened(path: str | Path, flags: int) -> Iterator[BinaryIO]:
    """Open a file to read from; it is written by descriptor, at an offset."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "rb") as file:
        yield file


def append(file: BinaryIO, size: int, data: bytes) -> None:
    """Write to the end of a file and wait until it is on disk; if that fails, leave the file as it was."""
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(file.fileno(), data[written:], size + written)
        os.fsync(file.fileno())
    except BaseException:
        os.ftruncate(file.fileno(), size)
        raise


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file, whose last line may be incomplete."""
    with opened(path, os.O_RDWR | os.O_CREAT) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        line_break = b"\n" if size and file.read(1) != b"\n" else b""
        append(file, size, line_break + line + b"\n")


def end_of_last_line(file: BinaryIO, size: int) -> int:
    """Return the offset at which the last complete line of a file ends."""
    end = size
    while end > 0:
        start = max(0, end - CHUNK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
