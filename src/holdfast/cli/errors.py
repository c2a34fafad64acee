"""Errors and notes on standard error: sentences for people, or with --json one JSON object per line."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.records.formatting import json_text
from holdfast.store import mask
from holdfast.text import printable


class _Format:
    """The format of messages in this process; `run` sets it before anything can fail."""

    json = False


message_format = _Format()


def print_error(message: str, code: str = "ERROR", **more: Any) -> None:
    """Print an error. `code` is that of the exception; `more` appears in JSON only.

    Messages may quote the command line, so passwords of URLs are masked.
    """
    message = mask(message)
    _print(message, {"code": code, "message": message, **more})


def print_note(message: str) -> None:
    """Print something that is not an error but good to know."""
    _print(message, {"note": message})


def _print(message: str, record: dict[str, Any]) -> None:
    sys.stdout.flush()
    if message_format.json:
        sys.stderr.write(f"{json_text(record)}\n")
    else:  # further lines are indented, so that none can pass for a message of its own
        sys.stderr.write(f"holdfast: {printable(message, lines=True)}".replace("\n", "\n  ") + "\n")
