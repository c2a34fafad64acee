"""What is said on the standard error: as a sentence for people, or with --json as one JSON object a line."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.cli.text import json_text
from holdfast.store import mask
from holdfast.text import printable


class _Voice:
    """How this process complains; `run` sets it, before anything can go wrong."""

    json = False


voice = _Voice()


def complain(message: str, code: str = "ERROR", **more: Any) -> None:
    """Say what is wrong. `code` is that of the error; `more` is for programs only.

    What was typed may be quoted: not the password of a URL.
    """
    message = mask(message)
    _say(message, {"code": code, "message": message, **more})


def note(message: str) -> None:
    """Say what is not wrong, but good to know."""
    _say(message, {"note": message})


def _say(message: str, record: dict[str, Any]) -> None:
    sys.stdout.flush()
    if voice.json:
        sys.stderr.write(f"{json_text(record)}\n")
    else:  # no line of a message can be taken for another message
        sys.stderr.write(f"holdfast: {printable(message, lines=True)}".replace("\n", "\n  ") + "\n")
