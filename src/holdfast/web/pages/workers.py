"""The pages of workers: who is there, what each has to do, and whether a release is rolled out."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from holdfast.client.events import END
from holdfast.constants import MAX_BATCH
from holdfast.events.types import TYPES
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.events import shown
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.events import EventQuery, list_events
from holdfast.web.resources.workers import (
    Slots,
    WorkersFilter,
    WorkersQuery,
    list_nodes,
    list_workers,
    show_worker,
    slots_of,
    summarize_workers,
)

pages = Pages()

PAGE = 50  # workers
JOBS = 100  # of one worker
DID = [each.name for each in TYPES if each.name != "saved"]  # events on the page of a worker
MAX_SILENT = 3  # workers that are explained above the list


class WorkersPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which workers."""

    queue: str | None = None
    node: str | None = None
    idle: bool = False
    by: Literal["worker", "node"] = "worker"
    after: str | None = None  # the last worker of the page before


@pages.get("/workers")
async def workers_page(call: Call, query: WorkersPageQuery) -> Page:
    """Workers by node, or the nodes."""
    narrow: Any = {"queue": query.queue, "node": query.node, "idle": query.idle}
    limit = PAGE if query.by == "worker" else 1
    found, figures, silent = await asyncio.gather(
        list_workers(call, query=WorkersQuery(**narrow, limit=limit, cursor=query.after)),
        summarize_workers(call, query=WorkersFilter(**narrow)),
        list_workers(call, query=WorkersQuery(**narrow, silent=True, limit=MAX_SILENT)),
    )  # fmt: skip
    shown: list[Record] = found.items
    nodes = (await list_nodes(call)).items if query.by == "node" else []
    return Page(
        "workers.html", title="Workers", section="Workers", workers=shown,
        slots={each["worker"]: slots_of_record(each) for each in shown}, query=query, nodes=nodes, figures=figures,
        has_more=found.next is not None, silent=silent.items, live_events="type=lost,crashed", live_every=5,
    )  # fmt: skip


@pages.get("/workers/{worker}")
async def worker_page(call: Call, worker: str) -> Page:
    """A worker: its jobs, its processes, and what it did last."""
    found = await show_worker(call, worker=worker)
    events = await list_events(call, query=EventQuery(worker=worker, type=DID, limit=MAX_BATCH, before=END))
    return Page(
        "worker.html", title=f"Worker {worker}", section="Workers", worker=found, slots=slots_of_record(found),
        shown=JOBS, cpus=cpus_of(found), pools=_rows(found, "pools"), executors=_rows(found, "executors"),
        tasks=_tasks(found),
        events=[shown(each) for each in events.items[:12]], live_events=f"worker={worker}", live_every=5,
    )  # fmt: skip


def slots_of_record(worker: Record) -> Slots:
    return slots_of(worker["about"], len(worker["jobs"]), [job["task"] for job in worker["jobs"]])


def cpus_of(worker: Record) -> float | None:
    """Return how many processors it has used on average."""
    if not worker["started_at"]:
        return None
    seconds = (worker["seen_at"] - worker["started_at"]).total_seconds()
    return worker["cpu_seconds"] / seconds if seconds > 0 else None


def _rows(worker: Record, name: str) -> list[dict[str, Any]]:
    found = worker["about"].get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _tasks(worker: Record) -> list[str]:
    found = worker["about"].get("tasks")
    return [str(each) for each in found] if isinstance(found, list) else []
