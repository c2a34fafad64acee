"""Where a worker says what it does, and shows what its jobs print: standard output and error, whoever reads them.

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

from holdfast.worker.formatting import SafeFormatter, wants_colour

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
