"""The log of an attempt: its output, as values."""

from __future__ import annotations

from typing import NamedTuple


class Log(NamedTuple):
    """The stored output of an attempt."""

    attempt: int  # 0: no attempt has printed anything
    attempts: list[int]  # the attempts that have a log
    head: bytes  # the beginning; everything, unless bytes were left out
    left_out: int  # number of bytes that were dropped between head and tail
    tail: bytes  # the end

    @property
    def data(self) -> bytes:
        """The stored output, with a line in place of the bytes that were left out."""
        return self.head + gap(self.left_out, self.head) + self.tail

    @property
    def text(self) -> str:
        """The same as `data`, as text; invalid UTF-8 is replaced."""
        parts = (self.head, gap(self.left_out, self.head), self.tail)
        return "".join(part.decode(errors="replace") for part in parts)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


class LogPart(NamedTuple):
    """The next part of the log of an attempt."""

    attempt: int
    data: bytes  # as it was printed
    text: str  # the same as text; an incomplete character comes with the next part
    left_out: int = 0  # number of bytes that were dropped before this part, because they came too fast


def gap(left_out: int, before: bytes) -> bytes:
    """Return the line in place of bytes that were left out; b"" if there are none."""
    if not left_out:
        return b""
    start = b"" if not before or before.endswith(b"\n") else b"\n"
    return start + f"[holdfast: {left_out:,} bytes are left out here]\n".encode()
