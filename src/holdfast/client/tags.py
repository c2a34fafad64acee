"""Tags, scopes and tracked jobs: change them, and count jobs by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast import errors
from holdfast.client.enqueue import MARKS_AT_ONCE
from holdfast.client.jobs import Replies, get_many, read_reply
from holdfast.client.queries import App, page_size
from holdfast.constants import DEFAULT_PAGE, MAX_BATCH
from holdfast.job.job import Job
from holdfast.job.marks import check_tags
from holdfast.names import check_id, check_scope, check_tag
from holdfast.store import Command, Steps, Stores, commands
from holdfast.store.commands import CountsReply

DONE = {  # by action and answer
    "tag": {"OK": "tagged", "SAME": "unchanged"},
    "untag": {"OK": "untagged", "SAME": "unchanged"},
    "track": {"OK": "tracked", "SAME": "unchanged"},
    "untrack": {"OK": "untracked", "SAME": "unchanged"},
}


# Tags


def tag(_: Stores, id: str, /, *tags: str) -> Steps[bool]:
    """Add tags to a job in any state. Return whether it changed anything.

    jobs.tag(job.id, "reviewed", "2024-07")

    Raises:
        JobNotFound: no job has this id.
        Invalid, TooBig: one of them is not a tag, or the job would have more than 32.
    """
    return _changed((yield from _apply("tag", [id], _with_tags(commands.tag, tags))))


def untag(_: Stores, id: str, /, *tags: str) -> Steps[bool]:
    """Remove tags from a job. Return whether it changed anything.

    Raises:
        JobNotFound: no job has this id.
    """
    return _changed((yield from _apply("untag", [id], _with_tags(commands.untag, tags))))


def tag_many(_: Stores, ids: Sequence[str], /, *tags: str) -> Steps[Replies]:
    """Add tags to any number of jobs. Return for each `tagged` or `unchanged`, or the error that `tag` would raise."""
    return (yield from _apply("tag", ids, _with_tags(commands.tag, tags), size=_jobs_at_once(tags)))


def untag_many(_: Stores, ids: Sequence[str], /, *tags: str) -> Steps[Replies]:
    """Remove tags from any number of jobs. Return for each `untagged` or `unchanged`, or an error."""
    return (yield from _apply("untag", ids, _with_tags(commands.untag, tags), size=_jobs_at_once(tags)))


def tags(
    _: Stores, *names: str, limit: int | None = DEFAULT_PAGE, skip: int = 0, min_count: int = 1
) -> Steps[dict[str, int]]:
    """Return tags and how many jobs have each: the most used first, or these tags.

    jobs.tags()                           # {"import": 1200, "slow": 7}
    jobs.tags("import", "urgent")         # {"import": 1200, "urgent": 0}

    A job counts until its record is deleted. With `min_count=2` the tags of single jobs are left out; `limit=None`
    returns all, and `skip` leaves out the first ones.
    """
    if names:
        counts = yield commands.tag_counts([check_tag(name) for name in names])
        return dict(zip(names, counts, strict=True))
    return (yield from _read_counts(commands.tags, limit, skip, min_count))


# Scopes


def scopes(
    _: Stores, scope: str | None = None, /, *, limit: int | None = DEFAULT_PAGE, skip: int = 0, min_count: int = 1
) -> Steps[dict[str, int]]:
    """Return the scopes directly inside a scope and how many jobs each has, those with the most jobs first.

    jobs.scopes()                         # {"/tenant": 1200, "/internal": 7}
    jobs.scopes("/tenant")                # {"/tenant/7": 900, "/tenant/8": 300}

    `limit=None` returns all, and `skip` leaves out the first ones.
    """
    within = None if scope in (None, "/") else check_scope(scope or "")
    return (yield from _read_counts(lambda **page: commands.scopes(within, **page), limit, skip, min_count))


# Tracked jobs


class TrackedJobs(NamedTuple):
    """The tracked jobs, those tracked last first; and the ids of up to 1,000 of them that were deleted."""

    jobs: list[Job[Any]]
    deleted: list[str]


def track(_: Stores, id: str, /, *more: str) -> Steps[None]:
    """Track jobs: `tracked` lists them, and their events say that they are tracked. Up to 10,000 jobs are tracked.

    Raises:
        JobNotFound: one of them does not exist; the others are tracked.
        TooBig: too many jobs are tracked.
    """
    _changed((yield from _apply("track", [id, *more], commands.track)))


def untrack(_: Stores, id: str, /, *more: str) -> Steps[None]:
    """Track jobs no longer; also deleted ones, which `tracked` then no longer lists.

    Raises:
        JobNotFound: one of them does not exist, and was not tracked.
    """
    _changed((yield from _apply("untrack", [id, *more], commands.untrack)))


def tracked(self: App) -> Steps[TrackedJobs]:
    """Return the tracked jobs, and the ids of tracked jobs that were deleted."""
    jobs: list[Job[Any]] = []
    skip: int | None = 0
    while skip is not None:
        page, skip = yield from tracked_page(self, skip=skip)
        jobs += page.jobs
    return TrackedJobs(jobs, page.deleted)


def tracked_page(self: App, *, skip: int = 0, limit: int = MAX_BATCH) -> Steps[tuple[TrackedJobs, int | None]]:
    """Return a page of the tracked jobs, and how many to skip for the next one; None: this is the last."""
    found = yield commands.tracked(limit=limit, skip=skip)
    jobs = (yield from get_many(self, found.ids)) if found.ids else []
    page = TrackedJobs([job for job in jobs if job], found.deleted)
    return page, skip + limit if skip + limit < found.total else None


def _with_tags(
    command: Callable[[Sequence[str], Sequence[str]], Command[list[str]]], tags: Sequence[str]
) -> Callable[[Sequence[str]], Command[list[str]]]:
    checked = check_tags("tags", tags)
    if not checked:
        raise errors.Invalid("no tags are given; give at least one")
    return lambda ids: command(ids, checked)


def _jobs_at_once(tags: Sequence[str]) -> int:
    """Return of how many jobs one call changes these tags."""
    return max(1, min(MAX_BATCH, MARKS_AT_ONCE // max(1, len(tags))))


def _apply(
    verb: str, ids: Sequence[str], command: Callable[[Sequence[str]], Command[list[str]]], *, size: int = MAX_BATCH
) -> Steps[Replies]:
    """Apply a command to jobs, a bounded number at a time."""
    checked = [check_id(id) for id in ids]
    replies: Replies = []
    for first in range(0, len(checked), size):
        batch = checked[first : first + size]
        for id, reply in zip(batch, (yield command(batch)), strict=True):
            replies.append(read_mark(verb, id, reply))
    return replies


def read_mark(verb: str, id: str, reply: str) -> str | errors.HoldfastError:
    """Return what `tag`, `untag`, `track` or `untrack` did with a job, or why it did nothing."""
    return DONE[verb].get(reply) or read_reply(verb, id, reply)


def _changed(replies: Replies) -> bool:
    """Return whether anything changed, or raise the first error."""
    for reply in replies:
        if isinstance(reply, errors.HoldfastError):
            raise reply
    return any(reply != "unchanged" for reply in replies)


def _read_counts(
    page: Callable[..., Command[CountsReply]], limit: int | None, skip: int, min_count: int
) -> Steps[dict[str, int]]:
    """Read the pages of a catalogue. Counts change meanwhile, so a name may be read twice; its last count applies."""
    counts: dict[str, int] = {}
    end = None if limit is None else skip + limit
    while end is None or skip < end:
        size = page_size(None if end is None else end - skip)
        found: CountsReply = yield page(limit=size, skip=skip, min=min_count)
        counts |= found.jobs
        skip += size
        if len(found.jobs) < size:
            break
    return counts
