"""Tags, scopes, tracked and stalled jobs, and the jobs that are claimed next."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.client.stalled import StalledJobs
from holdfast.records.jobs import JOBS
from holdfast.records.tags import SCOPES, TAGS, TRACKED, scope_records, tag_records, tracked_records
from holdfast.web.call import Call
from holdfast.web.resource import Listed, ListOf, Resources, about

routes = Resources()

Limit = Annotated[int, about("maximum number of rows", ge=1, le=1000)]
Minimum = Annotated[int, about("only those with at least this number of jobs", ge=1)]


class TagQuery(msgspec.Struct, frozen=True):
    tag: Annotated[list[str], about("only these tags")] = msgspec.field(default_factory=list)
    min: Minimum = 1
    limit: Limit = 100


class ScopeQuery(msgspec.Struct, frozen=True):
    within: Annotated[str | None, about("the scopes directly inside of this one")] = None
    min: Minimum = 1
    limit: Limit = 100


class NextQuery(msgspec.Struct, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10


@routes.get("/tags", reply=ListOf(TAGS), client="tags")
async def list_tags(call: Call, query: TagQuery) -> Listed:
    """List the most used tags, or some, with their numbers of jobs."""
    return Listed(items=tag_records(await call.app.atags(*query.tag, limit=query.limit, min_count=query.min)))


@routes.get("/scopes", reply=ListOf(SCOPES), client="scopes")
async def list_scopes(call: Call, query: ScopeQuery) -> Listed:
    """List the scopes directly inside of a scope, with their numbers of jobs."""
    return Listed(items=scope_records(await call.app.ascopes(query.within, limit=query.limit, min_count=query.min)))


@routes.get("/jobs:tracked", reply=ListOf(TRACKED), scope="visible", client="tracked")
async def list_tracked(call: Call) -> Listed:
    """List tracked jobs, those tracked last first; then those that were deleted."""
    found = await call.app.atracked()
    deleted = found.deleted if call.user.has_all_queues else []
    return Listed(items=tracked_records(found._replace(jobs=call.visible(found.jobs), deleted=deleted)))


@routes.get("/jobs:stalled", reply=StalledJobs, client="stalled")
async def count_stalled(call: Call) -> StalledJobs:
    """Count the running jobs whose leases have ended, and that no worker has requeued yet."""
    return await call.app.astalled()


@routes.get("/queues/{queue}/next", reply=ListOf(JOBS), client="peek")
async def list_next(call: Call, queue: str, query: NextQuery) -> Listed:
    """List the waiting jobs of a queue that are claimed next, in order."""
    return Listed(items=JOBS.records(await call.app.apeek(queue, limit=query.limit)))
