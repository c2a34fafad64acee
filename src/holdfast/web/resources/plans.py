"""Plans: when the backlogs of queues will be gone, now and with another number of workers."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.client.finding import find
from holdfast.planning.inputs import MAX_QUEUES
from holdfast.records.plans import PLAN, plan_record
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.problems import RETRY_AFTER, Problem
from holdfast.web.resource import Resources, about
from holdfast.web.resources.queues import visible_queues

routes = Resources()

MAX_SLOTS = 100_000
MAX_AT_ONCE = 2  # a plan takes a processor for a second or two

_running: set[object] = set()  # the calls that are being answered

Slots = Annotated[int, msgspec.Meta(ge=1, le=MAX_SLOTS)]


class PlanQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What if."""

    queue: Annotated[list[str], about("only these queues; else all that have work", max_length=MAX_QUEUES)] = (
        msgspec.field(default_factory=list)
    )
    workers: Annotated[str | None, about("+10 more workers that serve the queues, -2 fewer, or 8 in total")] = None
    processes: Annotated[Slots | None, about("of each added worker; else as today")] = None
    concurrency: Annotated[Slots | None, about("of each added worker; else as today")] = None
    arriving: Annotated[
        Annotated[float, msgspec.Meta(ge=0)] | None,
        about("jobs that arrive per second in each of the queues; else as in the last hour"),
    ] = None


@routes.get("/plan", reply=PLAN, scope="none", client="plan")
async def show_plan(call: Call, query: PlanQuery) -> Record:
    """Forecast when backlogs will be gone, and what more workers would do.

    `now` is the forecast with the workers of today, `then` the one with `workers`: the middle of many simulations, the
    range in which eight of ten end, and what determines that time. It takes a second or two; 503 if several plans are
    being made already.
    """
    for name in query.queue:
        call.check_queue(name)
    if not query.queue:
        call.check_all_queues()
    if len(_running) >= MAX_AT_ONCE:
        raise Problem(503, "BUSY", "other plans are being made; try again", {"Retry-After": str(RETRY_AFTER)})
    _running.add(call)
    try:
        known = {each.name: each for each in await visible_queues(call)} if query.queue else {}
        for name in query.queue:
            find("queue", known, name)
        found = await call.app.aplan(
            *query.queue, workers=_read_workers(query.workers), processes=query.processes,
            concurrency=query.concurrency, arriving=query.arriving,
        )  # fmt: skip
    finally:
        _running.discard(call)
    return plan_record(found)


def _read_workers(text: str | None) -> str | None:
    """Read `+10` also if the plus was not escaped, which makes it a space."""
    return f"+{text[1:]}" if text and text[0] == " " else text
