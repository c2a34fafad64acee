"""The console of a worker, for its log and the output of its jobs: standard output and error, which may be pipes.

A full pipe blocks the process that writes to it, and a blocked supervisor renews no leases. So text that cannot be
written soon is dropped, and the number of dropped lines is logged when the pipe is read again.

Log lines of the worker are escaped: no text can control a terminal, or forge a line. Log lines of a job go to the log
of its attempt, unescaped.
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
    """Escapes invisible characters, and indents all lines of a record except its first."""

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
    """Return whether to log in colour: only to a terminal, and not with NO_COLOR (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and os.isatty(descriptor)


PIECE = select.PIPE_BUF  # bytes that a writable pipe takes as a whole
WRITE_TIMEOUT = 0.1  # seconds


def log_to(stream: TextIO | ConsoleStream, level: str) -> None:
    """Log to a stream, unless logging is configured already."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(SafeFormatter(coloured=wants_colour(stream.fileno())))
    logging.basicConfig(level=level, handlers=[handler])


class ConsoleStream(io.TextIOBase):
    """A stream that never blocks for long. Each text consists of whole lines."""

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
            f"[holdfast: this output was not read for a while; {self._dropped} lines are missing]\n"
        ):
            self._dropped = 0
        if self._dropped or not self._put(text):
            self._dropped += text.count("\n")
        return len(text)

    def _put(self, text: str) -> bool:
        data = text.encode("utf-8", "backslashreplace")
        for first in range(0, len(data), PIECE):
            if not self._poll.poll(0 if self._dropped else WRITE_TIMEOUT * 1000):
                return False
            try:
                os.write(self._descriptor, data[first : first + PIECE])
            except OSError:  # broken pipe, or the disk is full
                return False
        return True
