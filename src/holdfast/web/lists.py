"""Pages of lists that the client returns whole, such as queues and schedules: a part of them, by name or place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.constants import MAX_BATCH
from holdfast.errors import Invalid
from holdfast.web.resource import about

T = TypeVar("T")

MAX_DIGITS = 9  # of a cursor that is a number

Cursor = Annotated[str | None, about("`next` of the page before; the first page without it")]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list."""

    limit: Annotated[int, about("maximum number of records", ge=1, le=MAX_BATCH)] = 100
    cursor: Cursor = None


class WholeListQuery(ListQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list that most users want whole."""

    limit: Annotated[int, about("maximum number of records", ge=1, le=MAX_BATCH)] = MAX_BATCH


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


def cut_by_place(values: Sequence[T], query: ListQuery) -> Part[T]:
    """Return a page of values in their order. The cursor is the number of those before."""
    skip = read_skip(query)
    return Part(list(values[skip : skip + query.limit]), next_skip(query, skip, len(values) - skip))


def read_skip(query: ListQuery) -> int:
    """Return how many values the pages before had."""
    text = query.cursor or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise Invalid(f"the cursor {text[:60]!r} is not that of another page")
    return int(text)


def next_skip(query: ListQuery, skip: int, found: int) -> str | None:
    """Return the cursor of the next page; `found` values, or more, follow the skipped ones."""
    return str(skip + query.limit) if found > query.limit else None
