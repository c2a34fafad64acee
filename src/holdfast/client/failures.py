"""Failures: failed jobs by group, fingerprint, task or queue."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast import errors
from holdfast.job.failures import FailureDetails, FailureGroup, FailuresBy
from holdfast.names import check_text
from holdfast.store import Pages, Steps, Stores, commands

MAX_PAGE = 500


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
    return _pages(by, limit) if queue is None else _pages_of_queue(by, queue, limit)


def _pages(by: FailuresBy, limit: int | None) -> Pages[FailureGroup]:
    cursor, left = None, limit
    while left is None or left > 0:
        size = MAX_PAGE if left is None or by == "queue" else min(left, MAX_PAGE)
        page: commands.FailuresPage = yield commands.failures(by, limit=size, cursor=cursor)
        yield page.groups[:left]
        cursor, left = page.cursor, None if left is None else left - len(page.groups)
        if cursor is None:
            return


def _pages_of_queue(by: FailuresBy, queue: str, limit: int | None) -> Pages[FailureGroup]:
    """Add up what the pages of a queue's failed jobs have in common."""
    found: dict[str, FailureGroup] = {}
    cursor = None
    while True:
        page: commands.FailuresPage = yield commands.failures(by, queue=queue, limit=MAX_PAGE, cursor=cursor)
        for group in page.groups:
            known = found.get(group.name)
            found[group.name] = _added(known, group) if known else group
        cursor = page.cursor
        if cursor is None:
            break
    latest = sorted(found.values(), key=lambda group: (group.last_seen is not None, group.last_seen), reverse=True)
    yield latest[:limit]


def _added(one: FailureGroup, other: FailureGroup) -> FailureGroup:
    """Add two parts of a group; the later one has the later jobs."""
    if one.by == "fingerprint" and other.errors:
        return replace(other, count=one.count + other.count)
    return replace(other, count=one.count + other.count, first_seen=one.first_seen)


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
