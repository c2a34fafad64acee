"""Tags, scopes and tracked jobs: counted and listed. Actions on jobs change them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.client.tags import tracked_page
from holdfast.constants import MAX_BATCH
from holdfast.records.tags import SCOPES, TAGS, TRACKED, scope_records, tag_records, tracked_records
from holdfast.web.call import Call
from holdfast.web.lists import ListQuery, next_skip, read_skip
from holdfast.web.resource import Listed, ListOf, Resources, about
from holdfast.web.steps import run

routes = Resources()


class CountsQuery(ListQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which names."""

    min_count: Annotated[int, about("only those with at least this number of jobs", ge=1)] = 1


class TagsQuery(CountsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tags."""

    tag: Annotated[list[str], about("only these tags", max_length=MAX_BATCH)] = msgspec.field(default_factory=list)


class ScopesQuery(CountsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which scopes."""

    scope: Annotated[str | None, about("those directly inside this one, as in /tenant; else those with one part")] = (
        None
    )


@routes.get("/tags", reply=ListOf(TAGS), client="tags")
async def list_tags(call: Call, query: TagsQuery) -> Listed:
    """List tags and how many jobs have each, the most used first; or these tags.

    A job counts in any state, until its record is deleted.
    """
    if query.tag:
        return Listed(items=tag_records(await call.app.atags(*query.tag)))
    skip = read_skip(query)
    counts = await call.app.atags(limit=query.limit + 1, skip=skip, min_count=query.min_count)
    return Listed(items=tag_records(counts)[: query.limit], next=next_skip(query, skip, len(counts)))


@routes.get("/scopes", reply=ListOf(SCOPES), client="scopes")
async def list_scopes(call: Call, query: ScopesQuery) -> Listed:
    """List the scopes directly inside a scope and how many jobs each has, those with the most jobs first."""
    skip = read_skip(query)
    counts = await call.app.ascopes(query.scope, limit=query.limit + 1, skip=skip, min_count=query.min_count)
    return Listed(items=scope_records(counts)[: query.limit], next=next_skip(query, skip, len(counts)))


@routes.get("/tracked", reply=ListOf(TRACKED), scope="visible", client="tracked")
async def list_tracked(call: Call, query: ListQuery) -> Listed:
    """List tracked jobs, those tracked last first; on the last page also up to 1,000 that were deleted."""
    page, skip = await run(call, tracked_page(call.app, skip=read_skip(query), limit=query.limit))
    if skip is not None or not call.user.has_all_queues:
        page = page._replace(deleted=[])
    return Listed(items=call.visible(tracked_records(page)), next=None if skip is None else str(skip))
