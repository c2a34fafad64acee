"""Pages of lists that the client returns whole, such as queues and schedules: a part of them, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.constants import MAX_BATCH

T = TypeVar("T")

Cursor = Annotated[str | None, msgspec.Meta(description="`next` of the page before; the first page without it")]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH, description="maximum number of records")] = 100
    cursor: Cursor = None


class WholeListQuery(ListQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list that most users want whole."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH, description="maximum number of records")] = MAX_BATCH


class Part(NamedTuple, Generic[T]):
    """A page, and the cursor of the next one."""

    values: list[T]
    next: str | None


def cut(values: Iterable[T], query: ListQuery, name_of: Callable[[T], str]) -> Part[T]:
    """Return a page of values by name. The cursor is a name, so that values may come and go meanwhile."""
    after = query.cursor
    found = sorted((each for each in values if after is None or name_of(each) > after), key=name_of)
    page = found[: query.limit]
    return Part(page, name_of(page[-1]) if len(found) > len(page) else None)
