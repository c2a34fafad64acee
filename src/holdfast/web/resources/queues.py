"""Queues: their jobs in each state, who is next, their load and shares; paused, resumed and forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec

from holdfast.client.finding import find
from holdfast.client.queues import one_queue
from holdfast.constants import MAX_BATCH, MAX_DURATION, MAX_SHARE_WEIGHT
from holdfast.records.jobs import JOBS
from holdfast.records.limits import SHARE_SET
from holdfast.records.queues import LOAD, PAUSED, QUEUE_LOADS, QUEUES, aload_record
from holdfast.records.table import Record
from holdfast.store.commands import Queue
from holdfast.units import milliseconds, with_unit
from holdfast.web.call import Call
from holdfast.web.lists import WholeListQuery, cut
from holdfast.web.resource import Listed, ListOf, Resources, about
from holdfast.web.steps import run

routes = Resources()

MAX_PEEKED = 100

Create = Annotated[bool, about("also if the queue has no jobs yet")]
Target = Annotated[str, about("time within which a job should start: 30s, 1m")]


class CreateQuery(msgspec.Struct, frozen=True):
    create: Create = False


class PeekQuery(msgspec.Struct, frozen=True):
    limit: Annotated[int, about("maximum number of jobs", ge=1, le=MAX_PEEKED)] = 10


class QueueLoadQuery(msgspec.Struct, frozen=True):
    target: Target = "1m"


class LoadQuery(msgspec.Struct, frozen=True):
    queue: Annotated[list[str], about("only these queues", max_length=MAX_BATCH)] = msgspec.field(default_factory=list)
    target: Target = "1m"


class ShareWeight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often the jobs of a share take turns."""

    weight: Annotated[int, about("turns of the share for each turn of another", ge=1, le=MAX_SHARE_WEIGHT)]


@routes.get("/queues", reply=ListOf(QUEUES), scope="visible", client="queues")
async def list_queues(call: Call, query: WholeListQuery) -> Listed:
    """List queues with their number of jobs in each state."""
    found = cut(await visible_queues(call), query, lambda each: each.name)
    return Listed(items=QUEUES.records(found.values), next=found.next)


@routes.get("/queues/{queue}", reply=QUEUES, client="queues")
async def show_queue(call: Call, queue: str) -> Record:
    """Show the number of jobs of a queue in each state."""
    return QUEUES.record(await find_queue(call, queue))


@routes.delete("/queues/{queue}", role="admin", client="forget")
async def forget_queue(call: Call, queue: str) -> None:
    """Remove an empty queue: its name, its settings, and its pause."""
    if not await call.app.aforget(queue):
        await find_queue(call, queue)


@routes.post("/queues/{queue}:pause", reply=PAUSED, client="pause")
async def pause_queue(call: Call, queue: str, query: CreateQuery) -> Record:
    """Pause a queue: its jobs are not started; running jobs continue."""
    if not query.create:
        await find_queue(call, queue)
    return {"queue": queue, "paused": True, "changed": await call.app.apause(queue)}


@routes.post("/queues/{queue}:resume", reply=PAUSED, client="resume")
async def resume_queue(call: Call, queue: str) -> Record:
    """Start jobs of a paused queue again."""
    await find_queue(call, queue)
    return {"queue": queue, "paused": False, "changed": await call.app.aresume(queue)}


@routes.get("/queues/{queue}:peek", reply=ListOf(JOBS), client="peek")
async def peek(call: Call, queue: str, query: PeekQuery) -> Listed:
    """List the waiting jobs that start next, in order.

    Jobs may be passed over when they are claimed: those whose limits are full, and those whose deadline is over.
    """
    return Listed(items=JOBS.records(await call.app.apeek(queue, limit=query.limit)))


@routes.put("/queues/{queue}/shares/{share}", reply=SHARE_SET, role="admin", client="set_share_weight")
async def set_share_weight(call: Call, queue: str, share: str, query: CreateQuery, body: ShareWeight) -> Record:
    """Give the jobs of a share more turns than those of other shares. It applies to jobs that are enqueued later."""
    if not query.create:
        await find_queue(call, queue)
    changed = await call.app.aset_share_weight(queue, share, body.weight)
    return {"queue": queue, "share": share, "weight": body.weight, "changed": changed}


# Load


@routes.get("/queues/{queue}/load", reply=QUEUE_LOADS, client="load")
async def show_queue_load(call: Call, queue: str, query: QueueLoadQuery) -> Record:
    """Show the load of a queue, and the concurrency that it needs.

    A queue that does not exist needs nothing.
    """
    [found] = await call.app.aload(queue, target=_read_target(query.target))
    return QUEUE_LOADS.record(found)


@routes.get("/load", reply=LOAD, scope="visible", client=("load", "overdue"))
async def show_load(call: Call, query: LoadQuery) -> Record:
    """Show the load of queues and the concurrency that they need, for autoscaling.

    `needed` is the number of jobs that have to run at once so that waiting and arriving jobs start within `target`. It
    is at least 1 while something in a queue is overdue, so it is right without any worker.
    """
    for name in query.queue:
        call.check_queue(name)
    target = _read_target(query.target)
    found = call.visible(await call.app.aload(*query.queue, target=target))
    return await aload_record(call.app, QUEUE_LOADS.records(found), target)


def _read_target(text: str) -> timedelta:
    return timedelta(milliseconds=milliseconds(with_unit(text), what="target", minimum=1, maximum=MAX_DURATION))


# Finding


async def visible_queues(call: Call) -> list[Queue]:
    """Return the queues that the user may see."""
    return call.visible(await call.app.aqueues(), lambda each: each.name)


async def find_queue(call: Call, name: str) -> Queue:
    """Return a queue; raise NotFound, with similar names, if there is none of this name."""
    if call.user.has_queue(name) and (found := await run(call, one_queue(name))):
        return found
    return find("queue", {each.name: each for each in await visible_queues(call)}, name)
