"""Failures: errors by fingerprint, and the page of one."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from urllib.parse import urlencode

import msgspec

from holdfast.constants import MAX_BATCH
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.lists import WholeListQuery
from holdfast.web.pages.deploys import find_deploys
from holdfast.web.pages.page import Page, Pages
from holdfast.web.pages.periods import DAY
from holdfast.web.resources.failures import FailureQuery, FailuresQuery, list_failures, show_failure
from holdfast.web.resources.queues import list_queues
from holdfast.web.resources.workers import WorkersQuery, list_workers

pages = Pages()

ROWS = 25
EXAMPLES = 100


class FailuresPageQuery(msgspec.Struct, frozen=True):
    """Which failures."""

    queue: str | None = None
    cursor: str | None = None


@pages.get("/failures")
async def failures_page(call: Call, query: FailuresPageQuery) -> Page:
    """Errors by fingerprint, those that were seen last first."""
    queues = [each for each in (await list_queues(call, query=WholeListQuery())).items if each["failed"]]
    names = [each["queue"] for each in sorted(queues, key=lambda each: -each["failed"])]
    queue = query.queue or (None if call.user.has_all_queues else next(iter(names), None))
    items, following = [], None
    if queue is not None or call.user.has_all_queues:
        found = await list_failures(
            call, query=FailuresQuery(by="fingerprint", queue=queue, limit=ROWS, cursor=query.cursor)
        )
        items, following = found.items, found.next
    return Page(
        "failures.html", title="Failures", section="Failures", failures=items, queues=names, queue=queue,
        failed=sum(each["failed"] for each in queues), is_new=is_new,
        next=_address(call, queue, following) if following else None,
        first=_address(call, queue, None) if query.cursor else None,
        live_events="type=failed,retried,deleted", live_every=10,
    )  # fmt: skip


def _address(call: Call, queue: str | None, cursor: str | None) -> str:
    named = {name: value for name, value in (("queue", queue), ("cursor", cursor)) if value}
    return call.url("/failures") + (f"?{urlencode(named)}" if named else "")


def is_new(failure: Record) -> bool:
    """Return whether an error was first seen within a day."""
    first: datetime | None = failure["first_seen"]
    return first is not None and datetime.now(UTC) - first < DAY


@pages.get("/failures/{failure}")
async def failure_page(call: Call, failure: str) -> Page:
    """A fingerprint, or another name that failed jobs have in common: when it began, whom it affects, a traceback."""
    found, workers = await asyncio.gather(
        show_failure(call, failure=failure, query=FailureQuery(examples=EXAMPLES)),
        list_workers(call, query=WorkersQuery(limit=MAX_BATCH)),
    )
    examples: list[Record] = found["examples"]
    return Page(
        "failure.html", title=f"Failure {found['type'] or found['name']}", section="Failures", failure=found,
        examples=examples[:10], tasks=Counter(each["task"] for each in examples).most_common(12),
        queues=Counter(each["queue"] for each in examples).most_common(12), looked_at=len(examples),
        deploys=find_deploys(workers.items), is_new=is_new, live_events="type=failed,retried,deleted", live_every=10,
    )  # fmt: skip
