"""Values as people read them on pages: numbers, durations, sizes, shares and times, all in UTC.

`static/ages.js` writes ages in the same words; a test compares the two.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.records.formatting import indented

UNKNOWN = "unknown"
SECOND, MINUTE, HOUR, DAY = 1, 60, 3_600, 86_400

Time = datetime | str  # a time of the client, or as records have it


def number(value: float | None) -> str:
    """Return a number with separators: 1,973; 2.4; 0.05."""
    if value is None:
        return UNKNOWN
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 10:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 1 else 2
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") or "0"


def ordinal(value: int) -> str:
    """Return a place: 1st, 2nd, 3rd, 11th, 1,022nd."""
    ending = "th" if value % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value:,}{ending}"


def size(count: float | None) -> str:
    """Return a number of bytes in its largest unit: 512 B, 4.1 KiB, 41 GiB."""
    if count is None:
        return UNKNOWN
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while abs(count) >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.0f} {units[0]}" if units[0] == "B" or abs(count) >= 100 else f"{count:.1f} {units[0]}"


def percent(share: float | None) -> str:
    """Return a share of 1 in percent. Only all is 100 %, and only nothing is 0 %."""
    if share is None:
        return UNKNOWN
    value = share * 100
    if 99.5 <= value < 100:
        return "> 99 %"
    if 0 < value < 0.1:
        return "< 0.1 %"
    return f"{number(round(value, 1)) if value < 10 else f'{value:.0f}'} %"


def duration(value: float | timedelta | None) -> str:
    """Return a duration in its two largest units: 212 ms, 0.4 s, 12 s, 1 min 05 s, 2 h 10 min, 3 d 4 h."""
    if value is None:
        return UNKNOWN
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 10:
        return _short_second(seconds)
    whole = round(seconds)
    for size, unit, part, part_unit in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            digits = 1 if size == DAY else 2
            return f"{whole // size} {unit} {rest:0{digits}} {part_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def _short_second(seconds: float) -> str:
    if 0 < seconds < 0.0995:
        return "< 1 ms" if seconds < 0.0005 else f"{seconds * 1000:.0f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    return f"{number(round(seconds, 1))} s"


def short_duration(value: float | timedelta | None) -> str:
    """Return a duration in its largest unit, rounded down: 38 s, 14 min, 2 h, 3 d."""
    if value is None:
        return UNKNOWN
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if abs(seconds) >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds)} s"


def read_time(value: Time) -> datetime:
    """Return a time of a record, or of the client, in UTC."""
    return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


def iso(value: Time) -> str:
    return read_time(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(value: Time, now: datetime) -> str:
    """Return how long ago or how soon a time is: 38 s ago, in 2 min."""
    seconds = int((now - read_time(value)).total_seconds())
    return f"{short_duration(seconds)} ago" if seconds >= 0 else f"in {short_duration(-seconds)}"


def due(value: Time, now: datetime) -> str:
    """Return how soon something happens that is due at a time: in 2 min, now."""
    seconds = int((read_time(value) - now).total_seconds())
    return f"in {short_duration(seconds)}" if seconds > 0 else "now"


def span(value: Time, now: datetime) -> str:
    """Return how far away a time is, in its largest unit: 38 s."""
    return short_duration(abs((now - read_time(value)).total_seconds()))


def clock(value: Time, now: datetime) -> str:
    """Return a time as short as it is clear: 10:41:52 today, Sun 22:10:22 in the last or next days, 14 Nov 22:03.

    No day of the week stands for two days: those of the past reach back 4 days, and those to come 3 days.
    """
    time = read_time(value)
    if time.date() == now.date():
        return f"{time:%H:%M:%S}"
    if -timedelta(days=3) < now - time < timedelta(days=4):
        return f"{time:%a %H:%M:%S}"
    if abs(now - time) < timedelta(days=300):
        return f"{time.day} {time:%b %H:%M}"
    return f"{time.day} {time:%b %Y}"


def to_minute(value: Time, now: datetime) -> str:
    """Return a time without its seconds, which an estimate does not know: 10:41, Sun 22:10, 14 Nov 22:03."""
    time = read_time(value)
    return clock(value, now).removesuffix(f":{time:%S}") if time.date() != now.date() else f"{time:%H:%M}"


def exact(value: Time) -> str:
    """Return a time with all that is known of it: Mon 16 Nov 2026, 10:41:52.123 UTC."""
    time = read_time(value)
    return f"{time:%a} {time.day} {time:%b %Y, %H:%M:%S}.{time.microsecond // 1000:03} UTC"


def stored_json(text: str | bytes) -> str:
    """Return JSON as it is stored, indented; its numbers are not read, so all of their digits remain."""
    data = text.encode() if isinstance(text, str) else text
    try:
        return indented(data).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data.decode(errors="backslashreplace")


def cut(text: str, length: int = 120) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


_COLOURS = re.compile(r"\x1b\[[\d;:]*m")


def printed_lines(text: str, length: int) -> list[str]:
    """Return what a terminal would still show of each line that a job printed, without colours, and cut.

    A carriage return begins a line again, as progress bars do.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    return [_COLOURS.sub("", line.rstrip("\r").rpartition("\r")[2])[:length] for line in lines]
