"""How the lines of a worker's log look: nothing in them is obeyed by a terminal, and no text can forge a line.

What a job logs by itself goes to the log of its attempt, as it is.

Where a worker says what it does, and shows what its jobs print: standard output and error, whoever reads them.

Nobody may, as behind a pager, or no more, as when a collector of logs has died. A pipe that is full holds up whoever
writes to it, and a supervisor that is held up renews no lease. So what cannot be written soon is dropped, and how much
that was is said as soon as somebody reads again.
"""

from __future__ import annotations

import io
import logging
import os
import select
from typing import TextIO

from holdfast.running.current import is_in_job
from holdfast.text import printable

INDENT = "    "
_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}
_PLAIN = "\x1b[0m"


class SafeFormatter(logging.Formatter):
    """Escapes what is no visible character, and indents all lines of a record but its first."""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._colours = _COLOURS if coloured else {}

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if is_in_job():
            return text
        first, *rest = printable(text.rstrip("\n"), lines=True, tabs=True).split("\n")
        if not all(line.startswith(INDENT) for line in rest):
            rest = [f"{INDENT}{line}" for line in rest]
        if colour := self._colours.get(record.levelno):
            first = f"{colour}{first}{_PLAIN}"
        return "\n".join([first, *rest])


def wants_colour(descriptor: int) -> bool:
    """Only a terminal shows colours, and only if nobody has said otherwise: see https://no-color.org."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and os.isatty(descriptor)


PIECE = select.PIPE_BUF  # bytes that a pipe with any room takes at once, and as a whole
PATIENCE = 0.1  # seconds


def say_to(stream: TextIO | Outlet, level: str) -> None:
    """Have what this process logs go there, unless something has been said about that."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(SafeFormatter(coloured=wants_colour(stream.fileno())))
    logging.basicConfig(level=level, handlers=[handler])


class Outlet(io.TextIOBase):
    """A stream that waits for nobody. Each text is some whole lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._dropped = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, text: str) -> int:
        if self._dropped and self._put(
            f"[holdfast: nobody read this for a while; {self._dropped} lines are missing]\n"
        ):
            self._dropped = 0
        if self._dropped or not self._put(text):
            self._dropped += text.count("\n")
        return len(text)

    def _put(self, text: str) -> bool:
        data = text.encode("utf-8", "backslashreplace")
        for first in range(0, len(data), PIECE):
            if not self._poll.poll(0 if self._dropped else PATIENCE * 1000):
                return False
            try:
                os.write(self._descriptor, data[first : first + PIECE])
            except OSError:  # nobody will read it any more, or the disk is full
                return False
        return True
