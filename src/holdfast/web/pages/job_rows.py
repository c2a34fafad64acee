"""Rows of lists of jobs: the arguments in short, the attempts, and how the last one ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.job.retries import BUDGETS
from holdfast.records.formatting import json_text
from holdfast.records.table import Record
from holdfast.web.pages.formats import cut, read_time

MAX_ARGUMENTS = 160  # characters
MAX_VALUE = 60
FINAL = ("succeeded", "failed", "cancelled")
OTHER_BUDGETS = ("crashed", "lost", *BUDGETS)  # groups of failures that use up no retries, or may not


class Row(NamedTuple):
    """A job in a list."""

    job: Record
    arguments: str
    attempt: str
    waited: float | None  # seconds that its last attempt waited, if that is known
    ran: float | None
    error: tuple[str, str] | None  # type and message of its last failure
    ended_by: tuple[str, str] | None  # who cancelled or failed it, and why


def make_row(job: Record) -> Row:
    """Return the row of a job in a list; `job` has its details, unless it was deleted a moment ago."""
    attempts: list[Record] = job.get("attempts") or []
    last = attempts[-1] if attempts else None
    return Row(
        job,
        short_arguments(job.get("arguments")),
        attempts_text(job),
        _seconds(last, "queued_at", "claimed_at"),
        _seconds(last, "claimed_at", "ended_at"),
        _error(job),
        _ended_by(job),
    )


def short_arguments(arguments: Any) -> str:
    """Return arguments as Python would have them: order=918236, to="ann@example.org"."""
    if isinstance(arguments, str):
        return cut(arguments[: MAX_ARGUMENTS + 1], MAX_ARGUMENTS)
    if not isinstance(arguments, Mapping):
        return ""
    shown: list[str] = []
    for name, value in arguments.items():
        shown.append(f"{cut(str(name), MAX_VALUE)}={_short(value)}")
        if sum(map(len, shown)) > MAX_ARGUMENTS:
            break
    return cut(", ".join(shown), MAX_ARGUMENTS)


def _short(value: Any) -> str:
    """Return a value as JSON; only the beginning of long text is looked at."""
    if isinstance(value, str) and len(value) > MAX_VALUE:
        return json_text(value[:MAX_VALUE])[:-1] + '…"'
    if isinstance(value, list | dict) and len(value) > MAX_VALUE:
        return f"{'[' if isinstance(value, list) else '{'}… {len(value):,} items"
    try:
        return cut(json_text(value), MAX_VALUE)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return "…"


def attempts_text(job: Record) -> str:
    """Return the number of the attempt, and of how many: that is, of those that errors use up."""
    number, retries = job["attempt"], job.get("retries")
    if retries is None or number < 1 or number > retries + 1 or (number == 1 and job["state"] != "failed"):
        return str(number)
    if job["state"] == "failed" and job["group"] in OTHER_BUDGETS:
        return str(number)
    return f"{number} of {retries + 1}"


def seconds_between(start: datetime | str | None, end: datetime | str | None) -> float | None:
    if start is None or end is None:
        return None
    return max((read_time(end) - read_time(start)).total_seconds(), 0.0)


def _seconds(attempt: Record | None, start: str, end: str) -> float | None:
    return None if attempt is None else seconds_between(attempt[start], attempt[end])


def _error(job: Record) -> tuple[str, str] | None:
    failure = job.get("failure")
    return (failure["type"], " ".join(failure["message"][:400].split())) if failure else None


def _ended_by(job: Record) -> tuple[str, str] | None:
    """Return who ended a job that did not end by itself, and the reason."""
    if job["state"] not in ("cancelled", "failed"):
        return None
    ends = ("cancelled", "cancelling") if job["state"] == "cancelled" else ("failed",)
    notes = [note for note in job.get("notes") or [] if note["what"] in ends]
    return (notes[-1]["who"], notes[-1]["text"]) if notes else None
