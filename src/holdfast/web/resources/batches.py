"""Batches: named groups of jobs, and how far they are."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import msgspec

from holdfast.client.batches import BatchState, batch_page
from holdfast.errors import ResultTimeout
from holdfast.records.batches import BATCHES, CANCELLED, CLOSED, OPENED
from holdfast.records.table import Record
from holdfast.store import adrive
from holdfast.web.background import background_of
from holdfast.web.call import Call
from holdfast.web.lists import Cursor
from holdfast.web.new_jobs import DurationText, LaterJob, make_call
from holdfast.web.resource import Listed, ListOf, Resources, about
from holdfast.web.resources.job_actions import Body, Reason
from holdfast.web.streaming import PREFER, wait_of

routes = Resources()


class BatchQuery(msgspec.Struct, frozen=True):
    state: Annotated[BatchState | None, about("only batches in this state")] = None
    limit: Annotated[int, about("maximum number of records", ge=1, le=100)] = 50
    cursor: Cursor = None


class OpenBatch(Body, frozen=True, kw_only=True):
    then: Annotated[LaterJob | None, about("enqueued once all jobs of the batch have ended")] = None
    on_success: Annotated[LaterJob | None, about("enqueued then, if all succeeded")] = None
    on_failure: Annotated[LaterJob | None, about("enqueued then, if not all succeeded")] = None
    keep: Annotated[DurationText | None, about("how long it is kept after that")] = None


class CancelBatch(Body, frozen=True):
    reason: Reason = ""


@routes.get("/batches", reply=ListOf(BATCHES), client="batches")
async def list_batches(call: Call, query: BatchQuery) -> Listed:
    """List batches, newest first."""
    steps = batch_page(query.cursor, limit=query.limit, state=query.state)
    found, cursor = await adrive(steps, call.app.async_store.run)
    return Listed(items=BATCHES.records(found), next=cursor)


@routes.get("/batches/{batch}", reply=BATCHES, client="batch", headers=PREFER)
async def show_batch(call: Call, batch: str) -> Record:
    """Show how far a batch is. `Prefer: wait=30` waits until it is done, up to that number of seconds, and 60."""
    found = call.app.batch(batch)
    seconds = wait_of(call.request)
    if seconds is not None:
        call.headers["Preference-Applied"] = f"wait={seconds:.0f}"
        with suppress(ResultTimeout):
            status = await background_of(call.app).unless_ending(found.await_(seconds))
            if status is not None:
                return BATCHES.record(status)
    return BATCHES.record(await found.astatus())


@routes.put("/batches/{batch}", reply=OPENED, status=(201, 200), client="batch")
async def open_batch(call: Call, batch: str, body: OpenBatch) -> Record:
    """Open a batch (201), or continue one that is open (200); its jobs have the option `batch`."""
    named = {"then": body.then, "on_success": body.on_success, "on_failure": body.on_failure}
    calls: Any = {on: make_call(call, each, later=True) for on, each in named.items() if each is not None}
    created = await call.app.batch(batch, keep=body.keep, **calls).aopen()
    call.respond(201 if created else 200)
    return {"batch": batch, "created": created}


@routes.post("/batches/{batch}:close", reply=CLOSED, client="batch")
async def close_batch(call: Call, batch: str) -> Record:
    """Close a batch: only its own jobs can add more. Once all have ended, it is done."""
    found = call.app.batch(batch)
    changed = await found.aclose()
    return {"batch": batch, "state": (await found.astatus()).state, "changed": changed}


@routes.post("/batches/{batch}:cancel", reply=CANCELLED, client="batch")
async def cancel_batch(call: Call, batch: str, body: CancelBatch) -> Record:
    """Close a batch, and cancel all its jobs that have not ended."""
    found = call.app.batch(batch)
    counts = await found.acancel(reason=body.reason)
    record = {"batch": batch, "state": (await found.astatus()).state}
    return record | {each: counts.get(each, 0) for each in ("cancelled", "cancelling")}


@routes.delete("/batches/{batch}", client="batch")
async def delete_batch(call: Call, batch: str) -> None:
    """Delete a batch that is done; its jobs stay."""
    await call.app.batch(batch).adelete()
