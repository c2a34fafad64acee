"""Failures: what failed jobs have in common, and what is known about a fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.constants import DEFAULT_PAGE
from holdfast.job.failure import Example, restore
from holdfast.job.failures import FailureDetails, FailureGroup, FailuresBy
from holdfast.store.commands.command import Command, Fields, omit_none
from holdfast.units import utc


class FailuresPage(NamedTuple):
    groups: list[FailureGroup]
    cursor: list[str] | None


def failures(
    by: FailuresBy, *, queue: str | None = None, limit: int = DEFAULT_PAGE, cursor: Sequence[str] | None = None
) -> Command[FailuresPage]:
    """Return a page of groups. With `queue`, groups on several pages must be added up."""
    args = omit_none(by=by, queue=queue, limit=limit, cursor=cursor)

    def read(reply: list[Any]) -> FailuresPage:
        groups = [FailureGroup(**_read_group(by, row)) for row in reply[1:]]
        return FailuresPage(groups, [_text(part) for part in reply[0]] or None)

    return Command("failures", args, read)


def failure_trends(
    by: FailuresBy, names: Sequence[str], *, since: int, step: int, count: int
) -> Command[list[list[int]]]:
    """Return how many jobs of each name failed in each bucket, of those that are failed now."""
    args = {"by": by, "names": list(names), "since": since, "step": step, "count": count}
    return Command("failure_trends", args, list)


def failure(fingerprint: str) -> Command[FailureDetails | None]:
    return Command("failure", {"fingerprint": fingerprint}, _read_details)


def _read_group(by: FailuresBy, row: list[Any]) -> Fields:
    name, count, first, last, example, *record = row
    group = {"by": by, "name": _text(name), "count": count, "example": _text(example)}
    if record and record[4]:  # number of errors; 0: it has expired
        kind, place, task, revision, errors, first, last, description = record[:8]
        known = {"type": _text(kind), "place": _text(place), "task": _text(task), "revision": revision}
        group |= known | {"errors": errors, "message": _message(description)}
    return group | {"first_seen": utc(first) if first else None, "last_seen": utc(last) if last else None}


def _message(description: bytes) -> str:
    return restore(description, "", None, of=("", 0)).message if description else ""


def _read_details(row: list[Any]) -> FailureDetails | None:
    if not row:
        return None
    *row, job, attempt, traceback = row
    group, description = _read_group("fingerprint", row), row[-1]
    example = Example(group.get("place", ""), _text(job), attempt, _text(traceback))
    notes = restore(description, "", example, of=("", 0)).notes if description else ()
    taken_from = (example.job, example.attempt) if example.job else None
    return FailureDetails(**group, notes=notes, traceback=example.traceback, traceback_of=taken_from)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
