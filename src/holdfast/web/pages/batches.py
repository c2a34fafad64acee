"""The pages of batches: how far each is, and what happens when it is done."""

from __future__ import annotations

from typing import get_args

import msgspec

from holdfast.client.batches import BatchState
from holdfast.web.call import Call
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.batches import BatchQuery, list_batches, show_batch

pages = Pages()

PAGE = 50  # batches


class BatchesPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which batches."""

    state: BatchState | None = None
    cursor: str | None = None


@pages.get("/batches")
async def batches_page(call: Call, query: BatchesPageQuery) -> Page:
    """Batches, the newest first."""
    found = await list_batches(call, query=BatchQuery(state=query.state, limit=PAGE, cursor=query.cursor))
    return Page(
        "batches.html", title="Batches", section="Batches", batches=found.items, next=found.next, query=query,
        states=get_args(BatchState), live_events="type=batch_done", live_every=5,
    )  # fmt: skip


@pages.get("/batches/{batch}")
async def batch_page(call: Call, batch: str) -> Page:
    """A batch: how far it is, its jobs by state, and what is enqueued when it is done."""
    return Page(
        "batch.html", title=f"Batch {batch}", section="Batches", batch=await show_batch(call, batch=batch),
        live_events="type=batch_done", live_every=3,
    )  # fmt: skip
