"""Why jobs are not running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.store.commands.command import Command, Fields

MAX_EXPLAINED = 100  # jobs of one call


def explain(ids: Sequence[str]) -> Command[list[Fields | None]]:
    """Ask why up to 100 jobs are not running. The reply has None for a job that does not exist."""
    return Command("explain", {"ids": list(ids)}, _read_jobs)


def _read_jobs(reply: list[list[Any] | None]) -> list[Fields | None]:
    rows = [_read_job(row) for row in reply]
    _repeat_tasks([row for row in rows if row])
    return rows


def _repeat_tasks(rows: list[Fields]) -> None:
    """Copy the tasks that workers know to all jobs of a queue: the store lists them once."""
    known: dict[str, list[str]] = {}
    for row in rows:
        for code, facts in row["reasons"]:
            if code == "unknown-task":
                facts["tasks"] = known.setdefault(row["queue"], facts["tasks"])


def _read_job(row: list[Any] | None) -> Fields | None:
    """Read the facts of a job; each of its `reasons` is a code and a dictionary of facts."""
    if row is None:
        return None
    fields = _pairs(row)
    fields["reasons"] = [(code.decode(), _pairs(facts)) for code, *facts in fields.get("reasons", ())]
    return fields


def _pairs(flat: list[Any]) -> Fields:
    return {flat[at].decode(): _read(flat[at], flat[at + 1]) for at in range(0, len(flat), 2)}


def _read(name: bytes, value: Any) -> Any:
    if name in (b"reasons", b"error"):  # an error is as its executor encoded it
        return value
    if isinstance(value, list):
        return [_read(b"", each) for each in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value
