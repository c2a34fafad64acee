"""Durations in requests: seconds, or text such as 30s or 1h30m."""

from __future__ import annotations

from holdfast.units import Duration, with_unit


def read_duration(given: str | float | None) -> Duration | None:
    """Return a duration as the client takes it. A form sends a number as text."""
    return with_unit(given) if isinstance(given, str) else given
