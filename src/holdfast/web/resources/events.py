"""Events: a list, or a stream that is followed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec

from holdfast.client.events import START, earlier_events, event_page
from holdfast.constants import MAX_BATCH
from holdfast.errors import Invalid
from holdfast.events.event import Event
from holdfast.events.filter import EventFilter
from holdfast.records.events import EVENTS
from holdfast.records.table import Record
from holdfast.store.commands import EventPage
from holdfast.web.api import JSON, NDJSON
from holdfast.web.call import Call
from holdfast.web.feed import follow
from holdfast.web.resource import Chunks, Listed, ListOf, Resources, about
from holdfast.web.security.redaction import redacted
from holdfast.web.steps import run
from holdfast.web.streaming import EVENT_STREAM, HEADERS, LAST_EVENT_ID, preferred, sse, with_comments

routes = Resources()

_POSITION = re.compile(r"=?\d{1,15}-\d{1,15}", re.ASCII)


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events."""

    type: Annotated[list[str], about("only events of these types")] = msgspec.field(default_factory=list)
    queue: Annotated[str | None, about("only of jobs of this queue, and of the queue")] = None
    job: Annotated[str | None, about("only of the job with this id")] = None
    worker: Annotated[str | None, about("only those that this node or worker caused")] = None
    tag: Annotated[str | None, about("only of jobs with this tag")] = None
    scope: Annotated[str | None, about("only of jobs in this scope, or below it")] = None
    tracked: Annotated[bool, about("only of tracked jobs")] = False
    limit: Annotated[int, about("how many events are compared", ge=1, le=MAX_BATCH)] = 50
    cursor: Annotated[
        str | None,
        about("id of the event after which to begin, or `start`; else a list has the latest"),
    ] = None
    before: Annotated[
        str | None,
        about("instead: list events before this one, or before the `end`, the latest first"),
    ] = None

    def selects(self) -> EventFilter:
        return EventFilter.of(
            [name for each in self.type for name in each.split(",")],
            queue=self.queue, job=self.job, worker=self.worker, tag=self.tag, scope=self.scope, tracked=self.tracked,
        )  # fmt: skip


@routes.get(
    "/events", reply=ListOf(EVENTS, stream=EVENT_STREAM), scope="visible", client=("events", "subscribe"),
    headers=LAST_EVENT_ID,
)  # fmt: skip
async def list_events(call: Call, query: EventQuery) -> Listed | Chunks:
    """List the latest events, or those after one; or those before one, the latest first; or follow them.

    Only `limit` events are compared with the filter, so a page may have fewer, or none; `next` is the `cursor` of the
    next page, or its `before`.

    With `Accept: text/event-stream` the answer is a stream of server-sent events, each with its id and the record as
    data; `Last-Event-ID` resumes it. An event named `gap` says that events before the next one are no longer known.
    """
    selects, after = query.selects(), call.request.headers.get("last-event-id") or query.cursor
    if after is not None and after != START and not _POSITION.fullmatch(after):
        raise Invalid(f"expected the id of an event, or {START}, got {after[:60]!r}")
    if preferred(call.request, JSON, NDJSON, EVENT_STREAM) == EVENT_STREAM:
        call.headers |= HEADERS
        return Chunks(EVENT_STREAM, with_comments(call, _messages(call, selects, after)))
    if query.before is not None:
        earlier = await run(call, earlier_events(query.before, limit=query.limit, selects=selects))
        return _listed(call, earlier)
    page = await run(call, event_page(after, limit=query.limit, selects=selects))
    return _listed(call, page)


def _listed(call: Call, page: EventPage) -> Listed:
    records = [EVENTS.record(event) for each in page.events if (event := visible_part(call, each))]
    return Listed(items=records, next=page.position if page.has_more else None)


async def _messages(call: Call, selects: EventFilter, after: str | None) -> AsyncIterator[bytes]:
    async for each in follow(call.app, selects, after):
        if event := visible_part(call, each):
            yield sse(_shown(call, event), id=event.id, event="gap" if event.is_gap else "")


def _shown(call: Call, event: Event) -> Record:
    record: Any = redacted(EVENTS.record(event), EVENTS, call.user, call.site.redact)
    return record  # type: ignore[no-any-return]


def visible_part(call: Call, event: Event) -> Event | None:
    """Return an event with only the jobs and queues that the user may see; None if there are none."""
    if call.user.has_all_queues or event.is_gap:
        return event
    places = [place for place, queue in enumerate(event.queues) if queue and call.user.has_queue(queue)]
    return event.select(places) if places else None
