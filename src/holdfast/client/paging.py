"""Lists that the store returns in pages, each with the cursor of the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from holdfast.store import Command, Steps


class Page(Protocol):
    @property
    def cursor(self) -> str: ...


P = TypeVar("P", bound=Page)


def read_pages(page: Callable[..., Command[P]], **filters: Any) -> Steps[list[P]]:
    """Read all pages; `page` makes the command, of a cursor and filters."""
    found: P = yield page(**filters)
    pages = [found]
    while found.cursor:
        found = yield page(cursor=found.cursor, **filters)
        pages.append(found)
    return pages
