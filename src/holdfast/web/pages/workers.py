"""The pages of workers: who is there, what each has to do, and whether a release is rolled out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.client.events import END
from holdfast.constants import MAX_BATCH
from holdfast.events.types import TYPES
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.events import shown
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.events import EventQuery, list_events
from holdfast.web.resources.workers import WorkersQuery, list_nodes, list_workers, show_worker

pages = Pages()

PAGE = 100  # workers
DID = [each.name for each in TYPES if each.name != "saved"]  # events on the page of a worker
MAX_SILENT = 3  # workers that are explained above the list


class Slots(NamedTuple):
    """The slots of a worker: jobs that run, and how many may run at once; None: unknown."""

    busy: int
    total: int | None
    inner_busy: int = 0  # jobs in the executors themselves: coroutines and threads
    inner_total: int = 0

    @property
    def whole(self) -> tuple[int, int]:
        """Jobs and slots of both kinds, of those that are used for anything."""
        return self.busy + self.inner_busy, (self.total or 0) + (self.inner_total if self.inner_busy else 0)


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
    narrow = WorkersQuery(queue=query.queue, node=query.node, idle=query.idle, limit=MAX_BATCH)
    found: list[Record] = (await list_workers(call, query=narrow)).items
    rest = [each for each in found if query.after is None or each["worker"] > query.after]
    shown = rest[:PAGE]
    nodes = (await list_nodes(call)).items if query.by == "node" else []
    return Page(
        "workers.html", title="Workers", section="Workers", workers=shown,
        slots={each["worker"]: slots_of(each) for each in shown}, query=query,
        nodes=nodes, figures=figures(found), has_more=len(rest) > PAGE,
        silent=[each for each in found if not each["live"]][:MAX_SILENT], live_events="type=lost,crashed", live_every=5,
    )  # fmt: skip


@pages.get("/workers/{worker}")
async def worker_page(call: Call, worker: str) -> Page:
    """A worker: its jobs, its processes, and what it did last."""
    found = await show_worker(call, worker=worker)
    events = await list_events(call, query=EventQuery(worker=worker, type=DID, limit=MAX_BATCH, before=END))
    return Page(
        "worker.html", title=f"Worker {worker}", section="Workers", worker=found, slots=slots_of(found),
        cpus=cpus_of(found), pools=_rows(found, "pools"), executors=_rows(found, "executors"), tasks=_tasks(found),
        events=[shown(each) for each in events.items[:12]], live_events=f"worker={worker}", live_every=5,
    )  # fmt: skip


def figures(workers: Sequence[Record]) -> Record:
    """Return the numbers above the list."""
    live = [each for each in workers if each["live"]]
    whole = [slots_of(each).whole for each in live]
    revisions = Counter(revision for each in live if (revision := revision_of(each)) is not None)
    newest = max(revisions, default=None)
    today = datetime.now(UTC).date()
    return {
        "workers": len(workers),
        "nodes": len({each["node"] for each in workers}),
        "live": len(live),
        "draining": sum(each["draining"] for each in live),
        "busy": sum(busy for busy, _ in whole),
        "slots": sum(total for _, total in whole),
        "revision": newest,
        "current": revisions[newest] if newest is not None else 0,
        "since": min(
            (started for each in live if revision_of(each) == newest and (started := each["started_at"])), default=None
        ),
        "memory": sum(each["memory_bytes"] for each in live),
        "stalled": sum(each["stalled"] for each in workers),
        "started_today": sum(bool(each["started_at"]) and each["started_at"].date() == today for each in live),
    }


def slots_of(worker: Record) -> Slots:
    """Return the slots of a worker by what it reports; workers in other languages may report other things."""
    pools = [
        each
        for each in _rows(worker, "pools")
        if _is_count(each.get("processes")) and _is_count(each.get("concurrency"))
    ]
    held = [job["task"] for job in worker["jobs"]]
    if not pools:
        return Slots(len(held), None)
    processes, concurrency = (sum(each[name] for each in pools) for name in ("processes", "concurrency"))
    if not processes:
        return Slots(len(held), concurrency)
    names = worker["about"].get("in_process")
    inside = {str(name) for name in names} if isinstance(names, list) else set()
    inner = sum(task in inside for task in held)
    return Slots(len(held) - inner, processes, inner, concurrency if inside else 0)


def revision_of(worker: Record) -> int | None:
    """Return the release of its app."""
    found = worker["about"].get("revision")
    return found if type(found) is int else None


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


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= 1_000_000
