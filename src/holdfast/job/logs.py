"""What an attempt printed, as values."""

from __future__ import annotations

from typing import NamedTuple


class Log(NamedTuple):
    """What an attempt printed, as far as it is kept."""

    attempt: int  # 0: no attempt has printed anything
    attempts: list[int]  # those that have a log
    head: bytes  # the beginning; all of it, unless something is left out
    left_out: int  # bytes between
    tail: bytes  # the end

    @property
    def data(self) -> bytes:
        """All that is kept, with a line that says how many bytes are left out."""
        return self.head + gap(self.left_out, self.head) + self.tail

    @property
    def text(self) -> str:
        """The same as text; what is no UTF-8 is replaced."""
        parts = (self.head, gap(self.left_out, self.head), self.tail)
        return "".join(part.decode(errors="replace") for part in parts)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


class LogPart(NamedTuple):
    """What came next in the log of an attempt."""

    attempt: int
    data: bytes  # as it was printed
    text: str  # the same; a character that is not complete comes with the next part
    left_out: int = 0  # bytes before it that were not kept: it came too fast


def gap(left_out: int, before: bytes) -> bytes:
    """A line that says how much is left out; nothing if nothing is."""
    if not left_out:
        return b""
    start = b"" if not before or before.endswith(b"\n") else b"\n"
    return start + f"[holdfast: {left_out:,} bytes are left out here]\n".encode()
