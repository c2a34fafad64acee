"""The page of tags, scopes and tracked jobs."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.web.call import Call
from holdfast.web.lists import ListQuery
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.tags import ScopesQuery, TagsQuery, list_scopes, list_tags, list_tracked

pages = Pages()

PAGE = 100


class TagsPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is listed, and which page of it."""

    show: Literal["tags", "scopes", "tracked"] = "tags"
    scope: str | None = None  # the scopes inside this one
    cursor: str | None = None


@pages.get("/tags")
async def tags_page(call: Call, query: TagsPageQuery) -> Page:
    """Tags and scopes with their numbers of jobs; or the tracked jobs."""
    show = query.show
    if show == "tags" and not call.user.has_all_queues:  # who sees some queues sees no counts of all
        show = "tracked"
    if show == "tags":
        found = await list_tags(call, query=TagsQuery(limit=PAGE, cursor=query.cursor))
    elif show == "scopes":
        found = await list_scopes(call, query=ScopesQuery(scope=query.scope, limit=PAGE, cursor=query.cursor))
    else:
        found = await list_tracked(call, query=ListQuery(limit=PAGE, cursor=query.cursor))
    largest = max((each.get("jobs") or 0 for each in found.items), default=0)
    return Page(
        "tags.html", title="Tags", section="Tags", show=show, rows=found.items, next=found.next, query=query,
        largest=largest, parts=_parts(query.scope), live_every=10,
    )  # fmt: skip


def _parts(scope: str | None) -> list[tuple[str, str]]:
    """Return the names of the scopes around a scope, and their paths: (acme, /acme), (west, /acme/west)."""
    names = [each for each in (scope or "").split("/") if each]
    return [(name, "/" + "/".join(names[: place + 1])) for place, name in enumerate(names)]
