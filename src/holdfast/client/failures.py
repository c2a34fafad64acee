"""Failures: failed jobs by group, fingerprint, task or queue."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast import errors
from holdfast.job.failures import FailureDetails, FailureGroup, FailuresBy
from holdfast.names import check_text
from holdfast.store import Command, Pages, Steps, Stores, commands
from holdfast.units import milliseconds, moment

MAX_PAGE = 500
MAX_TRENDS = 100  # names of a call


def failures(
    _: Stores, *, by: FailuresBy = "group", queue: str | None = None, limit: int | None = None
) -> Pages[FailureGroup]:
    """Iterate over the groups, fingerprints, tasks or queues of failed jobs: number, first and last time, an example.

    for group in jobs.failures():
        print(group.name, group.count, group.last_seen)
    for error in jobs.failures(by="fingerprint", limit=10):
        print(error.name, error.count, error.type, error.place, error.message)

    Those with the latest failure come first; queues are sorted by name. A group that fails again meanwhile may be
    skipped, as it moves to the front. With `queue`, only the failed jobs of this queue are counted, one by one.
    """
    if by not in ("group", "fingerprint", "task", "queue"):
        raise errors.Invalid(f"expected `by` as group, fingerprint, task or queue, got {by!r:.40}")
    return _pages(by, limit) if queue is None else _all_of_queue(by, queue, limit)


class FailureGroups(NamedTuple):
    """A page of groups, and the cursor of the next one."""

    groups: list[FailureGroup]
    cursor: str | None
    looked_at: int | None = None  # the latest failed jobs, if only these were counted


def failures_page(
    *, by: FailuresBy = "group", queue: str | None = None, limit: int = MAX_PAGE, cursor: str | None = None,
    max_looked_at: int | None = None,
) -> Steps[FailureGroups]:  # fmt: skip
    """Return a page of what `failures` iterates over.

    With `queue`, each page looks at its failed jobs again: at all, or at about `max_looked_at` that failed last.
    """
    if queue is not None:
        skip = _read_number(cursor or "0")
        found, is_part = yield from _of_queue(by, queue, max_looked_at)
        following = str(skip + limit) if len(found) > skip + limit else None
        looked_at = sum(group.count for group in found) if is_part else None
        return FailureGroups(found[skip : skip + limit], following, looked_at)
    after = None if cursor is None else _read_cursor(cursor)
    page: commands.FailuresPage = yield commands.failures(by, limit=min(limit, MAX_PAGE), cursor=after)
    return FailureGroups(page.groups, None if page.cursor is None else msgspec.json.encode(page.cursor).decode())


def failure_trends(
    by: FailuresBy, names: Sequence[str], *, since: datetime, step: timedelta, count: int
) -> Steps[list[list[int]]]:
    """Return how many jobs of each group, fingerprint or task failed in each of `count` buckets."""
    found: list[list[int]] = []
    for first in range(0, len(names), MAX_TRENDS):
        found += yield commands.failure_trends(
            by, names[first : first + MAX_TRENDS], since=moment(since, "since"), step=milliseconds(step, what="step"),
            count=count,
        )  # fmt: skip
    return found


def _read_number(cursor: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", cursor, re.ASCII):
        raise errors.Invalid(f"the cursor {cursor[:60]!r} is not that of another page")
    return int(cursor)


def _read_cursor(cursor: str) -> list[str]:
    try:
        return msgspec.json.decode(cursor, type=list[str])
    except msgspec.MsgspecError:
        raise errors.Invalid(f"the cursor {cursor[:60]!r} is not that of another page") from None


def _pages(by: FailuresBy, limit: int | None) -> Pages[FailureGroup]:
    cursor, left = None, limit
    while left is None or left > 0:
        size = MAX_PAGE if left is None or by == "queue" else min(left, MAX_PAGE)
        page: commands.FailuresPage = yield commands.failures(by, limit=size, cursor=cursor)
        yield page.groups[:left]
        cursor, left = page.cursor, None if left is None else left - len(page.groups)
        if cursor is None:
            return


def _all_of_queue(by: FailuresBy, queue: str, limit: int | None) -> Pages[FailureGroup]:
    found, _ = yield from _of_queue(by, queue, None)
    yield found[:limit]


def _of_queue(
    by: FailuresBy, queue: str, max_looked_at: int | None
) -> Generator[Command[Any], Any, tuple[list[FailureGroup], bool]]:
    """Add up what the pages of a queue's failed jobs have in common; those with the latest failure come first.

    Return also whether there are more jobs than may be looked at.
    """
    found: dict[str, FailureGroup] = {}
    cursor, left = None, max_looked_at
    while left is None or left > 0:
        page: commands.FailuresPage = yield commands.failures(by, queue=queue, limit=MAX_PAGE, cursor=cursor)
        for group in page.groups:
            known = found.get(group.name)
            found[group.name] = _added(known, group) if known else group
        left = left and left - sum(group.count for group in page.groups)
        cursor = page.cursor
        if cursor is None:
            break
    newest = sorted(found.values(), key=lambda group: (group.last_seen is not None, group.last_seen), reverse=True)
    return newest, cursor is not None


def _added(one: FailureGroup, other: FailureGroup) -> FailureGroup:
    """Add two parts of a group; the later one has the later jobs."""
    if one.by == "fingerprint" and other.errors:
        return replace(other, count=one.count + other.count)
    return replace(other, count=one.count + other.count, first_seen=one.first_seen)


def failure_group(by: FailuresBy, name: str) -> Steps[FailureGroup | None]:
    """Return the failed jobs of a group, task or queue; None if there are none."""
    cursor = None
    while True:
        page: commands.FailuresPage = yield commands.failures(by, limit=MAX_PAGE, cursor=cursor)
        for group in page.groups:
            if group.name == name:
                return group
        cursor = page.cursor
        if cursor is None:
            return None


def failure(_: Stores, fingerprint: str, /) -> Steps[FailureDetails]:
    """Return what is known about a fingerprint, with the traceback of an example.

    error = jobs.failure(job.fingerprint)
    print(error.type, error.place, error.traceback)

    Raises:
        NotFound: no error with this fingerprint is known, or none was seen for long.
    """
    found: FailureDetails | None = yield commands.failure(check_text(fingerprint, "a fingerprint"))
    if found is None:
        raise errors.NotFound(f"no error with fingerprint {fingerprint} is known; it may not have been seen for long")
    return found
