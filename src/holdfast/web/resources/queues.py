"""Queues: their jobs in each state, paused and resumed."""

from __future__ import annotations

import msgspec

from holdfast.client.finding import find
from holdfast.records.queues import PAUSED, QUEUES
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.resource import Listed, ListOf, Resources

routes = Resources()


class PauseQuery(msgspec.Struct, frozen=True):
    create: bool = False  # pause the queue even if it has no jobs yet


@routes.get("/queues", reply=ListOf(QUEUES), scope="visible", client="queues")
async def list_queues(call: Call) -> Listed:
    """List queues with their number of jobs in each state."""
    return Listed(items=call.visible(QUEUES.records(await call.app.aqueues())))


@routes.post("/queues/{queue}:pause", reply=PAUSED, client="pause")
async def pause_queue(call: Call, queue: str, query: PauseQuery) -> Record:
    """Pause a queue: its jobs are not started; running jobs continue."""
    if not query.create:
        await _check_exists(call, queue)
    return {"queue": queue, "paused": True, "changed": await call.app.apause(queue)}


@routes.post("/queues/{queue}:resume", reply=PAUSED, client="resume")
async def resume_queue(call: Call, queue: str) -> Record:
    """Start jobs of a paused queue again."""
    await _check_exists(call, queue)
    return {"queue": queue, "paused": False, "changed": await call.app.aresume(queue)}


async def _check_exists(call: Call, queue: str) -> None:
    """Raise NotFound, with similar names, if there is no queue of this name."""
    find("queue", {each.name: each for each in call.visible(await call.app.aqueues(), lambda each: each.name)}, queue)
