"""Durations and times in requests: seconds, or text such as 30s or 1h30m; ISO 8601 with a time zone."""

from __future__ import annotations

from datetime import datetime

from holdfast.errors import Invalid
from holdfast.units import Duration, is_duration, with_unit

_TIME = "a time such as 2024-07-01T02:00Z"


def read_duration(given: str | float | None) -> Duration | None:
    """Return a duration as the client takes it. A form sends a number as text."""
    return with_unit(given) if isinstance(given, str) else given


def read_time(text: str, what: str, *, expected: str = _TIME) -> datetime:
    """Return a time in ISO 8601."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{what} is {text[:60]!r}; it must be {expected}") from None
    if time.tzinfo is None:
        raise Invalid(f"{what} is {text[:60]!r}, without a time zone; in UTC, that is {time:%Y-%m-%dT%H:%M:%S}Z")
    return time


def read_time_or_age(text: str, what: str) -> Duration | datetime:
    """Return a duration as it is, and a time in ISO 8601 as a datetime."""
    return text if is_duration(text) else read_time(text, what, expected=f"a duration such as 1h, or {_TIME}")
