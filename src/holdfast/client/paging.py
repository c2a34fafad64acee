"""Lists that the store returns in pages, each with the cursor of the next one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Protocol, TypeVar

from holdfast.store import Command, Pages, Steps


class Page(Protocol):
    @property
    def cursor(self) -> str: ...


P = TypeVar("P", bound=Page)
T = TypeVar("T")


def read_pages(page: Callable[..., Command[P]], **filters: Any) -> Steps[list[P]]:
    """Read all pages; `page` makes the command, of a cursor and filters."""
    found: P = yield page(**filters)
    pages = [found]
    while found.cursor:
        found = yield page(cursor=found.cursor, **filters)
        pages.append(found)
    return pages


def read_first(pages: Pages[T], limit: int) -> Steps[list[T]]:
    """Read the first entries of a list; `pages` is the generator of a paged method."""
    found: list[T] = []
    reply = None
    with closing(pages), suppress(StopIteration):
        while len(found) < limit:
            step = pages.send(reply)
            reply = (yield step) if isinstance(step, Command) else None
            found += step if isinstance(step, list) else ()
    return found[:limit]
