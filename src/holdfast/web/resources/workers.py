"""Workers and the machines they run on: listed, drained and deregistered; and the jobs that have stalled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from holdfast.client.finding import find
from holdfast.client.workers import brief_workers, by_node, some_workers
from holdfast.records.table import Record
from holdfast.records.workers import DRAINED, NODES, STALLED, WORKER_SUMMARY, WORKERS
from holdfast.store.commands import BriefWorker, Worker
from holdfast.web.call import Call
from holdfast.web.lists import ListQuery, cut
from holdfast.web.memo import shared
from holdfast.web.resource import Listed, ListOf, Resources, about
from holdfast.web.steps import run

routes = Resources()

BRIEFLY_FOR = 1.0  # seconds: heartbeats come every few seconds
MAX_SLOTS = 1_000_000  # of a worker, as it reports them

# What a worker reports about itself that names neither queues nor tasks.
OWN_FACTS = ("allow_exec", "app", "cpu_seconds", "draining", "host", "memory", "pid", "revision", "started", "version")

OTHERS = "has_other_queues"  # a fact that is added: the worker serves queues, too, that the user may not see


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


Idle = Annotated[bool, about("only live workers without jobs")]
Silent = Annotated[bool, about("only workers without a recent heartbeat")]
OfQueue = Annotated[str | None, about("only workers that serve this queue")]
OfNode = Annotated[str | None, about("only workers of this machine")]


class WorkersFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workers."""

    idle: Idle = False
    silent: Silent = False
    queue: OfQueue = None
    node: OfNode = None


class WorkersQuery(ListQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workers, and which page of them."""

    idle: Idle = False
    silent: Silent = False
    queue: OfQueue = None
    node: OfNode = None


@routes.get("/workers", reply=ListOf(WORKERS), scope="visible", client="workers")
async def list_workers(call: Call, query: WorkersQuery) -> Listed:
    """List workers with their queues, resources and jobs, by name.

    A worker without a recent heartbeat is not live. It is forgotten after a day.
    """
    found = cut(await _matching(call, query), query, lambda each: each.name)
    return Listed(items=WORKERS.records(await _whole(call, found.values)), next=found.next)


@routes.get("/workers:summary", reply=WORKER_SUMMARY, scope="visible", client="workers")
async def summarize_workers(call: Call, query: WorkersFilter) -> Record:
    """Count workers, their jobs and slots, and the releases that they have."""
    found = await _matching(call, query)
    live = [each for each in found if each.is_live]
    slots = [slots_of(each.about, each.holds) for each in live]
    stalled = await stalled_by_worker(call)
    return {
        "workers": len(found),
        "nodes": len({each.node for each in found}),
        "live": len(live),
        "draining": sum(each.is_draining for each in live),
        "jobs": sum(each.holds for each in live),
        "slots": sum(each.whole[1] for each in slots) if any(each.total for each in slots) else None,
        "memory_bytes": sum(each.memory for each in live),
        "stalled": sum(stalled.get(each.name, 0) for each in found),
        "releases": _releases(found),
    }


async def _matching(call: Call, query: WorkersFilter | WorkersQuery) -> list[BriefWorker]:
    return [
        each
        for each in await visible_briefly(call)
        if (each.is_idle or not query.idle)
        and not (each.is_live and query.silent)
        and (query.queue is None or query.queue in each.queues)
        and (query.node is None or query.node == each.node)
    ]


def _releases(workers: Iterable[BriefWorker]) -> list[Record]:
    by_revision: dict[int, list[BriefWorker]] = {}
    for each in workers:
        if type(revision := each.about.get("revision")) is int:
            by_revision.setdefault(revision, []).append(each)
    return [
        {
            "revision": revision,
            "live": sum(each.is_live for each in some),
            "since": min((each.started_at for each in some if each.started_at), default=None),
        }
        for revision, some in sorted(by_revision.items())
    ]


def slots_of(about: Record, holds: int, tasks: Sequence[str] | None = None) -> Slots:
    """Return the slots of a worker by what it reports; workers in other languages may report other things.

    Without the tasks of its jobs, jobs count as running inside of the executors if there are more than processes.
    """
    pools = about.get("pools")
    sizes = [_sizes(each) for each in pools] if isinstance(pools, list) else []
    known = [size for size in sizes if size]
    if not known:
        return Slots(holds, None)
    processes, concurrency = map(sum, zip(*known, strict=True))
    if not processes:
        return Slots(holds, concurrency)
    names = about.get("in_process")
    inside = {str(name) for name in names} if isinstance(names, list) else set()
    more_than_processes = max(0, holds - processes) if inside else 0
    inner = more_than_processes if tasks is None else sum(task in inside for task in tasks)
    return Slots(holds - inner, processes, inner, concurrency if inside else 0)


def _sizes(pool: Any) -> tuple[Any, Any] | None:
    """Return the processes and the concurrency of a pool."""
    if not isinstance(pool, dict):
        return None
    sizes = pool.get("processes"), pool.get("concurrency")
    return sizes if all(type(each) is int and 0 <= each <= MAX_SLOTS for each in sizes) else None


@routes.get("/workers/{worker}", reply=WORKERS, scope="visible", client="workers")
async def show_worker(call: Call, worker: str) -> Record:
    """Show the queues, the resources and the jobs of a worker."""
    return WORKERS.record(await find_worker(call, worker))


@routes.post("/workers/{worker}:drain", reply=DRAINED, scope="visible", client="drain")
async def drain_worker(call: Call, worker: str) -> Record:
    """Drain a worker: it claims no more jobs, and exits when its jobs have ended.

    Jobs are not interrupted, and may take as long as they need. It cannot be undone; start another worker.
    """
    found = await find_worker(call, worker)
    await _check_queues(call, found)
    await call.app.adrain(worker)
    return _drained(found)


@routes.post("/nodes/{node}:drain", reply=ListOf(DRAINED), client="drain")
async def drain_node(call: Call, node: str) -> Listed:
    """Drain all live workers of a machine."""
    workers = await call.app.aworkers()
    find("node", {each.node: each for each in workers}, node)
    chosen = [each for each in workers if each.node == node and each.is_live]
    for each in chosen:
        await call.app.adrain(each.name)
    return Listed(items=[_drained(each) for each in chosen])


@routes.delete("/workers/{worker}", role="admin", scope="visible", client="deregister")
async def deregister_worker(call: Call, worker: str) -> None:
    """Forget a dead worker now, and not after a day. 409 if it is live or holds jobs."""
    await _check_queues(call, await find_worker(call, worker))
    await call.app.aderegister(worker)


@routes.get("/nodes", reply=ListOf(NODES), scope="visible", client="nodes")
async def list_nodes(call: Call, query: ListQuery) -> Listed:
    """List the machines that workers run on."""
    found = cut(by_node(await visible_briefly(call)), query, lambda each: each.name)
    return Listed(items=NODES.records(found.values), next=found.next)


@routes.get("/stalled", reply=STALLED, client="stalled")
async def count_stalled(call: Call) -> Record:
    """Count the running jobs whose leases have ended, and that no worker has requeued yet.

    `GET /jobs?stalled=true` lists them.
    """
    return STALLED.record(await call.app.astalled())


# Rights


async def visible_workers(call: Call) -> list[Worker]:
    """Return the workers that serve a queue that the user may see, with the queues and the jobs that he may see."""
    return _visible(call, await call.app.aworkers())


def _visible(call: Call, found: list[Worker]) -> list[Worker]:
    if call.user.has_all_queues:
        return found
    narrowed = [_narrowed(call, each) for each in found]
    return [each for each in narrowed if each.queues or each.held]


async def visible_briefly(call: Call) -> list[BriefWorker]:
    """Return the same with numbers of jobs: only the jobs themselves show which of them a user may see."""
    if call.user.has_all_queues:
        return await shared(call, "workers", BRIEFLY_FOR, lambda: run(call, brief_workers()))
    return [
        BriefWorker(each.name, each.seen_at, each.is_live, each.queues, each.about, each.holds)
        for each in await visible_workers(call)
    ]


async def _whole(call: Call, workers: Iterable[BriefWorker]) -> list[Worker]:
    """Return some workers with their jobs, by name."""
    names = [each.name for each in workers]
    return _visible(call, await run(call, some_workers(names))) if names else []


async def stalled_by_worker(call: Call) -> dict[str, int]:
    """Return how many jobs of each worker have stalled. There are none while no timer is overdue, as is usual."""
    if not call.user.has_all_queues:
        return {each.name: len(each.stalled) for each in await visible_workers(call)}
    return (await call.app.astalled()).workers if await call.app.aoverdue() else {}


def _narrowed(call: Call, worker: Worker) -> Worker:
    may_see = call.user.has_queue
    queues = [queue for queue in worker.queues if may_see(queue)]
    about = {name: worker.about[name] for name in OWN_FACTS if name in worker.about}
    held = [job for job in worker.held if may_see(job.queue)]
    others = {OTHERS: True} if (queues, held) != (worker.queues, worker.held) else {}
    return msgspec.structs.replace(worker, queues=queues, held=held, about={**about, "queues": queues, **others})


async def find_worker(call: Call, name: str) -> Worker:
    """Return a worker that the user may see; raise NotFound, with similar names, if there is none of this name."""
    if found := _visible(call, await run(call, some_workers([name]))):
        return found[0]
    known: dict[str, Worker] = {each.name: each for each in await visible_workers(call)}
    return find("worker", known, name)


async def _check_queues(call: Call, worker: Worker) -> None:
    """Raise a problem unless the user has rights on all queues that a worker serves, and has jobs of."""
    if not call.user.has_all_queues:
        whole = [*await run(call, some_workers([worker.name])), worker][0]
        for queue in (*whole.queues, *(job.queue for job in whole.held)):
            call.check_queue(queue)


def _drained(worker: Worker) -> Record:
    return {"worker": worker.name, "state": "draining", "jobs": worker.holds}
