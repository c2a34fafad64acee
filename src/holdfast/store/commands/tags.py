"""Tags, scopes and tracked jobs: change them, and count jobs by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.constants import DEFAULT_PAGE
from holdfast.store.commands.command import Command, omit_none, read_texts


def tag(ids: Sequence[str], tags: Sequence[str]) -> Command[list[str]]:
    return Command("tag", {"ids": list(ids), "tags": list(tags)}, read_texts)


def untag(ids: Sequence[str], tags: Sequence[str]) -> Command[list[str]]:
    return Command("untag", {"ids": list(ids), "tags": list(tags)}, read_texts)


def track(ids: Sequence[str]) -> Command[list[str]]:
    return Command("track", {"ids": list(ids)}, read_texts)


def untrack(ids: Sequence[str]) -> Command[list[str]]:
    return Command("untrack", {"ids": list(ids)}, read_texts)


class CountsReply(NamedTuple):
    """The number of all names, and the number of jobs of those on this page, the largest first."""

    total: int
    jobs: dict[str, int]


def tags(*, limit: int = DEFAULT_PAGE, skip: int = 0, min: int = 1) -> Command[CountsReply]:
    """Return the most used tags with at least `min` jobs."""
    return Command("tags", {"limit": limit, "skip": skip, "min": min}, _read_counts)


def tag_counts(names: Sequence[str]) -> Command[list[int]]:
    """Return the number of jobs with each of these tags."""
    return Command("tags", {"names": list(names)}, list)


def scopes(scope: str | None = None, *, limit: int = DEFAULT_PAGE, skip: int = 0, min: int = 1) -> Command[CountsReply]:
    """Return the scopes directly inside a scope, or all that have one part."""
    return Command("scopes", omit_none(scope=scope, limit=limit, skip=skip, min=min), _read_counts)


def _read_counts(reply: list[Any]) -> CountsReply:
    total, *rows = reply
    return CountsReply(total, dict(zip(read_texts(rows[::2]), rows[1::2], strict=True)))


class TrackedReply(NamedTuple):
    """The number of tracked jobs, the ids of those on this page, and of tracked jobs that were deleted."""

    total: int
    ids: list[str]
    deleted: list[str]


def tracked(*, limit: int = DEFAULT_PAGE, skip: int = 0) -> Command[TrackedReply]:
    return Command(
        "tracked",
        {"limit": limit, "skip": skip},
        lambda reply: TrackedReply(reply[0], read_texts(reply[1]), read_texts(reply[2])),
    )
