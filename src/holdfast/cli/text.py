"""Values as text that is safe to print; see `phrases.printable`, too."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.units import humanize


def json_text(value: Any, *, indent: int = 0) -> str:
    """Return JSON that shows no control character: inside strings they are escaped, as JSON allows."""
    data = msgspec.json.encode(value)
    text = (msgspec.json.format(data, indent=indent) if indent else data).decode()
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else _json_escape(each) for each in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def moment(value: datetime) -> str:
    """Return a time in UTC as text that programs read."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(span: timedelta) -> str:
    """Return how long ago something was, in its largest unit: 12s, 5m, 3h, 2d."""
    seconds = int(span.total_seconds())
    return f"{length(seconds)} ago" if seconds >= 0 else f"in {length(-seconds)}"


def length(seconds: float) -> str:
    """Return a duration as people say it."""
    if 0 < seconds < 10:
        return f"{seconds:.2g}s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def allowance(slots: int, per: int) -> str:
    """Return what a limit allows: 2 at once, 5 per 1s."""
    return f"{slots} per {humanize(per)}" if per else f"{slots} at once"


def seconds_text(seconds: float | None) -> str:
    """Return a duration as it would be given: 1s, 1h30m; nothing for none."""
    return "" if seconds is None else humanize(round(seconds * 1000))


def size(count: float) -> str:
    """Return a number of bytes as people say it."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.0f} {units[0]}" if units[0] == "B" or count >= 10 else f"{count:.1f} {units[0]}"
