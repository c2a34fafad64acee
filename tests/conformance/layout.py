"""JSON as people read it: what fits is on one line, and short parts share lines."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 120
MAX_JOINED = 48  # characters of a part that shares a line with others
ON_LINES_OF_THEIR_OWN = ('"reply":', '"error":')


def write_json(value: Any, indent: int = 0, used: int = 0, *, open: int = 0) -> str:
    """Write a value; `used` is the number of characters before and after it on its line.

    The outermost `open` levels are never on one line.
    """
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, list | dict) or (open <= 0 and len(line) + indent + used <= WIDTH):
        return line
    before, after = ("{", "}") if isinstance(value, dict) else ("[", "]")
    parts = [head + write_json(each, indent + 2, len(head) + 1, open=open - 1) for head, each in _parts(value)]
    lines = _pack(parts, WIDTH - indent - 2)
    inner = " " * (indent + 2)
    return f"{before}\n" + ",\n".join(inner + each for each in lines) + f"\n{' ' * indent}{after}"


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(json.dumps(name, ensure_ascii=False) + ": ", each) for name, each in value.items()]
    return [("", each) for each in value]


def _pack(parts: list[str], width: int) -> list[str]:
    """Join neighbours that are short while they fit on a line."""
    lines: list[str] = []
    can_join = False
    for text in parts:
        is_long = "\n" in text or len(text) > MAX_JOINED
        if (
            can_join
            and not is_long
            and not text.startswith(ON_LINES_OF_THEIR_OWN)
            and len(lines[-1]) + len(text) + 3 <= width
        ):
            lines[-1] += f", {text}"
        else:
            lines.append(text)
        can_join = not is_long
    return lines
