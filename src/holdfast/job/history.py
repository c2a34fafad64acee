"""The order of a job's history: entries of attempts, and notes."""

from __future__ import annotations

from collections import deque
from datetime import datetime

import msgspec


class HistoryEntry(msgspec.Struct, frozen=True, gc=False):
    """One line of a job's history. `attempt` is 0 for events outside of attempts."""

    at: datetime
    what: str
    text: str = ""
    attempt: int = 0


def merge_by_time(runs: list[HistoryEntry], notes: list[HistoryEntry]) -> list[HistoryEntry]:
    """Merge the entries of attempts and notes, each sorted by time."""
    merged, rest = [], deque(notes)
    for entry in runs:
        while rest and (rest[0].at < entry.at or (rest[0].at == entry.at and _note_comes_first(rest[0], entry))):
            merged.append(rest.popleft())
        merged.append(entry)
    return [*merged, *rest]


def _note_comes_first(note: HistoryEntry, entry: HistoryEntry) -> bool:
    """Order entries of the same millisecond: notes of the attempt come before its end, others before the next claim."""
    if entry.what in ("created", "started"):
        return False
    return (entry.what != "claimed") == (note.what in ("reported", "cancelling"))
