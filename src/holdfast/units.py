"""Durations, moments and memory sizes as users write them, converted to integer milliseconds and bytes."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from holdfast.errors import Invalid

Duration = timedelta | int | float | str

WEEK, DAY, HOUR, MINUTE, SECOND = 604_800_000, 86_400_000, 3_600_000, 60_000, 1_000
UNITS = {"w": WEEK, "d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": 1}
PRINTED_UNITS = {unit: size for unit, size in UNITS.items() if unit != "w"}  # 90d is clearer than 12w6d
CENTURY = 36_525 * DAY
LAST_MOMENT = 253_402_300_799_999  # the last millisecond of the year 9999, where `datetime` ends

_TEXT = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{1,6})?(?:ms|[wdhms]))+", re.ASCII)
_PART = re.compile(r"([0-9.]+)(ms|[wdhms])")
_EXPECTED = 'a timedelta, a number of seconds, or text like "1h30m" or "250ms"'
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(value: Duration, *, what: str, minimum: int = 0, maximum: int = CENTURY) -> int:
    """Return a duration in milliseconds, rounded.

    Raises:
        Invalid: the value is not a duration, or not from `minimum` to `maximum`.
    """
    exact = _exact_milliseconds(value)
    if exact is None:
        raise Invalid(f"{what} is {value!r}; it must be {_EXPECTED}")
    if not minimum <= exact <= maximum:
        raise Invalid(f"{what} is {value!r}; it must be from {humanize(minimum)} to {humanize(maximum)}")
    return round(exact)


def with_unit(text: str) -> str:
    """Return the text of a duration; that of a number alone is in seconds."""
    return f"{text}s" if text[-1:].isdigit() else text


def is_duration(text: str) -> bool:
    """Return whether text is meant as a duration, with units, and not as a time."""
    return _TEXT.fullmatch(text) is not None


def moment(value: datetime, what: str) -> int:
    """Return the epoch milliseconds of an aware datetime, rounded down.

    Raises:
        Invalid: the value is not a datetime, has no time zone, or is before 1970.
    """
    if not isinstance(value, datetime):
        raise Invalid(f"{what} is {value!r}; it must be a datetime with a time zone")
    if value.utcoffset() is None:
        raise Invalid(f"{what} is {value!r}, which has no time zone; use datetime.now(UTC), or add tzinfo=...")
    since = (value - _EPOCH) // _MILLISECOND
    if since < 0:
        raise Invalid(f"{what} is {value!r}; it must not be before 1970")
    return since


def utc(ms: int) -> datetime:
    """Return epoch milliseconds as a datetime in UTC."""
    return _EPOCH + timedelta(0, 0, 0, ms)


def humanize(ms: int) -> str:
    """Return milliseconds as text that `milliseconds` can read: 1h30m, 250ms, 0s."""
    if ms < 0:
        return f"-{humanize(-ms)}"
    parts = []
    for unit, size in PRINTED_UNITS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _exact_milliseconds(value: Duration) -> float | None:
    """Return a duration in milliseconds before rounding; None if the value is not a duration."""
    if isinstance(value, timedelta):
        return value / _MILLISECOND
    if isinstance(value, str):
        return _parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if isinstance(value, float) and not math.isfinite(value) else value * SECOND


def _parse_duration(text: str) -> float | None:
    """Read text such as "1d12h": each unit at most once, larger units first."""
    if not _TEXT.fullmatch(text):
        return None
    parts = _PART.findall(text)
    sizes = [UNITS[unit] for _, unit in parts]
    if any(small >= large for large, small in pairwise(sizes)):
        return None
    return float(sum(float(number) * size for (number, _), size in zip(parts, sizes, strict=True)))


_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)


def size_in_bytes(value: str | int, *, what: str, minimum: int = 1 << 20) -> int:
    """Return a size in bytes. K, M, G and T are powers of 1024.

    Raises:
        Invalid: the value is not a size, or too small.
    """
    found = _SIZE.fullmatch(str(value).strip())
    if isinstance(value, bool) or not found:
        raise Invalid(f'{what} is {value!r}; it must be a size in bytes, or text like "512M" or "2G"')
    size = round(float(found[1]) * _SIZE_UNITS[found[2].upper()])
    if size < minimum:
        raise Invalid(f"{what} is {value!r}; it must be at least {humanize_size(minimum)}")
    return size


def humanize_size(size: int) -> str:
    """Return a size in MiB, with one decimal unless it is a whole number."""
    mebibytes = size / (1 << 20)
    return f"{mebibytes:.0f} MiB" if mebibytes.is_integer() else f"{mebibytes:.1f} MiB"
