"""Workers and the machines they run on: listed, drained and deregistered; and the jobs that have stalled."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.client.finding import find
from holdfast.client.workers import by_node
from holdfast.records.table import Record
from holdfast.records.workers import DRAINED, NODES, STALLED, WORKERS
from holdfast.store.commands import Worker
from holdfast.web.call import Call
from holdfast.web.lists import ListQuery, cut
from holdfast.web.resource import Listed, ListOf, Resources, about

routes = Resources()

# What a worker reports about itself that names neither queues nor tasks.
OWN_FACTS = ("allow_exec", "app", "cpu_seconds", "draining", "host", "memory", "pid", "revision", "started", "version")

OTHERS = "has_other_queues"  # a fact that is added: the worker serves queues, too, that the user may not see


class WorkersQuery(ListQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workers."""

    idle: Annotated[bool, about("only live workers without jobs")] = False
    queue: Annotated[str | None, about("only workers that serve this queue")] = None
    node: Annotated[str | None, about("only workers of this machine")] = None


@routes.get("/workers", reply=ListOf(WORKERS), scope="visible", client="workers")
async def list_workers(call: Call, query: WorkersQuery) -> Listed:
    """List workers with their queues, resources and jobs, by name.

    A worker without a recent heartbeat is not live. It is forgotten after a day.
    """
    chosen = [each for each in await visible_workers(call) if _matches(each, query)]
    found = cut(chosen, query, lambda each: each.name)
    return Listed(items=WORKERS.records(found.values), next=found.next)


def _matches(worker: Worker, query: WorkersQuery) -> bool:
    return (
        (worker.is_idle or not query.idle)
        and (query.queue is None or query.queue in worker.queues)
        and (query.node is None or query.node == worker.node)
    )


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
    found = cut(by_node(await visible_workers(call)), query, lambda each: each.name)
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
    found = await call.app.aworkers()
    if call.user.has_all_queues:
        return found
    narrowed = [_narrowed(call, each) for each in found]
    return [each for each in narrowed if each.queues or each.held]


def _narrowed(call: Call, worker: Worker) -> Worker:
    may_see = call.user.has_queue
    queues = [queue for queue in worker.queues if may_see(queue)]
    about = {name: worker.about[name] for name in OWN_FACTS if name in worker.about}
    held = [job for job in worker.held if may_see(job.queue)]
    others = {OTHERS: True} if (queues, held) != (worker.queues, worker.held) else {}
    return msgspec.structs.replace(worker, queues=queues, held=held, about={**about, "queues": queues, **others})


async def find_worker(call: Call, name: str) -> Worker:
    """Return a worker that the user may see; raise NotFound, with similar names, if there is none of this name."""
    return find("worker", {each.name: each for each in await visible_workers(call)}, name)


async def _check_queues(call: Call, worker: Worker) -> None:
    """Raise a problem unless the user has rights on all queues that a worker serves, and has jobs of."""
    if not call.user.has_all_queues:
        whole = {each.name: each for each in await call.app.aworkers()}.get(worker.name, worker)
        for queue in (*whole.queues, *(job.queue for job in whole.held)):
            call.check_queue(queue)


def _drained(worker: Worker) -> Record:
    return {"worker": worker.name, "state": "draining", "jobs": len(worker.held)}
