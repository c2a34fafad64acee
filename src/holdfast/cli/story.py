"""The history of a job for people: one time line, with the traceback of each failure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from holdfast.cli.output import STYLES, Fact
from holdfast.records.formatting import iso_time, short_duration
from holdfast.records.table import Record

_WHAT_WIDTH = 12


def story(record: Record) -> Iterator[Fact]:
    """Yield the entries of a job's history, each with its time as the label."""
    attempts = {attempt["number"]: attempt for attempt in record["attempts"]}
    shown: dict[tuple[str, str], int] = {}  # fingerprint and traceback -> attempt
    yield Fact("history", "")
    for entry in record["history"]:
        attempt = attempts.get(entry["attempt"])
        lines = [f"{entry['what']:<{_WHAT_WIDTH}} {_text(entry, attempt)}".rstrip()]
        if attempt and entry["what"] == attempt["outcome"]:
            lines += (f"    {line}" for line in _traceback(attempt, shown))
        yield Fact(iso_time(entry["at"]), "\n".join(lines), STYLES.get(entry["what"], ""))


def _text(entry: Record, attempt: Record | None) -> str:
    """Return what an entry says: of which attempt, what happened, how long it took, and by whom."""
    first = f"attempt {entry['attempt']}" if entry["attempt"] else ""
    about = ", ".join(text for text in (first, *_details(entry, attempt)) if text)
    return f"{about}: {entry['text']}" if first and entry["text"] else _join(entry["text"], about)


def _join(*texts: str) -> str:
    return ", ".join(text for text in texts if text)


def _details(entry: Record, attempt: Record | None) -> Iterator[str]:
    what, who = entry["what"], entry["who"]
    if attempt and what == "claimed":
        yield f"in queue {entry['queue']}" if entry["queue"] else ""
        if attempt["claimed_at"] > attempt["queued_at"]:
            yield f"after {_elapsed(attempt['queued_at'], attempt['claimed_at'])}"
    elif attempt and what == attempt["outcome"]:
        yield f"after {_elapsed(attempt['started_at'] or attempt['claimed_at'], entry['at'])}"
    if who and (what == "claimed" or not attempt or who != attempt["executor"]):
        yield f"by {who}"


def _elapsed(first: datetime, second: datetime) -> str:
    return short_duration((second - first).total_seconds())


def _traceback(attempt: Record, shown: dict[tuple[str, str], int]) -> Iterator[str]:
    """Yield the traceback of an attempt, unless an earlier attempt has shown it."""
    failure = attempt["failure"]
    trace = failure["traceback"].rstrip() if failure else ""
    if not trace:
        return
    of, before = failure["traceback_of"], shown.get((failure["fingerprint"], trace))
    if before:
        yield f"the traceback is above, with attempt {before}"
        return
    shown[failure["fingerprint"], trace] = attempt["number"]
    if of:
        yield f"an example of the same fingerprint, attempt {of[1]} of job {of[0]}:"
    yield from trace.splitlines()
