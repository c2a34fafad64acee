"""Values as text: durations, sizes, times, and JSON without control characters."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.units import humanize

MAX_INDENTED = 100  # levels of JSON; with more, indentation could take a thousand times the space of the data

_BRACKETS = re.compile(rb'[\[\]{}]|"(?:[^"\\]|\\.)*"', re.DOTALL)


def json_text(value: Any, *, indent: int = 0) -> str:
    """Return JSON in which control characters are escaped."""
    data = msgspec.json.encode(value)
    text = (indented(data, indent) if indent else data).decode()
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else _json_escape(each) for each in text)


def indented(data: bytes, indent: int = 2) -> bytes:
    """Indent JSON, unless it is nested too deeply.

    Raises:
        msgspec.DecodeError: it is no JSON.
    """
    return data if _is_deep(data) else msgspec.json.format(data, indent=indent)


def _is_deep(data: bytes) -> bool:
    if data.count(b"[") + data.count(b"{") <= MAX_INDENTED:
        return False
    depth = 0
    for found in _BRACKETS.finditer(data):
        bracket = found[0]
        if bracket in (b"[", b"{"):
            depth += 1
            if depth > MAX_INDENTED:
                return True
        elif bracket in (b"]", b"}"):
            depth -= 1
    return False


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def iso_time(value: datetime) -> str:
    """Return a time in UTC in ISO 8601."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age(span: timedelta) -> str:
    """Return how long ago or how soon a time is, in its largest unit: 12s ago, in 5m."""
    seconds = int(span.total_seconds())
    return f"{short_duration(seconds)} ago" if seconds >= 0 else f"in {short_duration(-seconds)}"


def short_duration(seconds: float) -> str:
    """Return a duration in its largest unit: 1.5s, 12s, 5m, 3h, 2d."""
    if 0 < seconds < 10:
        return f"{seconds:.2g}s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def capacity(slots: int, per: int) -> str:
    """Return the capacity of a limit: 2 at once, 5 per 1s."""
    return f"{slots} per {humanize(per)}" if per else f"{slots} at once"


def duration_text(seconds: float | None) -> str:
    """Return a duration as users write it: 1s, 1h30m; nothing for None."""
    return "" if seconds is None else humanize(round(seconds * 1000))


def short_size(count: float) -> str:
    """Return a number of bytes in its largest unit: 512 B, 2.9 MiB."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.0f} {units[0]}" if units[0] == "B" or count >= 10 else f"{count:.1f} {units[0]}"
