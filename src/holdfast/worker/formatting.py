"""How the lines of a worker's log look: nothing in them is obeyed by a terminal, and no text can forge a line.

What a job logs by itself goes to the log of its attempt, as it is.
"""

from __future__ import annotations

import logging
import os

from holdfast.current import is_in_job
from holdfast.phrases import printable

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
