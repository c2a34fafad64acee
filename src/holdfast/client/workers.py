"""Workers and nodes: the queues they serve, the jobs they hold, and their last heartbeat.

A worker sends a heartbeat every few seconds. Without one for half a minute it is not live, whether it crashed, hangs or
cannot reach the server; after a configurable time it is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from holdfast.client.paging import read_pages
from holdfast.client.queue_patterns import expand, is_pattern
from holdfast.client.queues import queue_names
from holdfast.constants import MAX_BATCH
from holdfast.names import new_id
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import BriefWorker, HeldJob, Reported, Worker

W = TypeVar("W", Worker, BriefWorker)


class Node(msgspec.Struct, Generic[W], frozen=True):
    """A host and its workers, the most recently seen first."""

    name: str
    workers: list[W]

    @property
    def is_live(self) -> bool:
        return any(worker.is_live for worker in self.workers)

    @property
    def seen_at(self) -> datetime:
        return max(worker.seen_at for worker in self.workers)

    @property
    def queues(self) -> list[str]:
        return sorted({queue for worker in self.workers if worker.is_live for queue in worker.queues})

    @property
    def held(self) -> list[HeldJob]:
        return [job for worker in self.workers if isinstance(worker, Worker) for job in worker.held]

    @property
    def holds(self) -> int:
        """The number of jobs that its workers hold."""
        return sum(worker.holds for worker in self.workers)

    @property
    def memory(self) -> int:
        return sum(worker.memory for worker in self.workers if worker.is_live)

    @property
    def cpu_seconds(self) -> float:
        return sum(worker.cpu_seconds for worker in self.workers if worker.is_live)


def by_node(workers: Sequence[W]) -> list[Node[W]]:
    """Group workers by host, sorted by name."""
    nodes: dict[str, list[W]] = {}
    for worker in workers:
        nodes.setdefault(worker.node, []).append(worker)
    return [Node(name, nodes[name]) for name in sorted(nodes)]


def workers(_: Stores) -> Steps[list[Worker]]:
    """Return all workers, the latest heartbeat first."""
    found = yield from _read(None)
    return (yield from _with_queues(sorted(found, key=lambda worker: worker.seen_at, reverse=True)))


def some_workers(names: Sequence[str]) -> Steps[list[Worker]]:
    """Return those of some workers that exist, in the order of the names."""
    found: list[Worker] = []
    for first in range(0, len(names), MAX_BATCH):
        found += yield from _read(names[first : first + MAX_BATCH])
    return (yield from _with_queues(found))


def brief_workers() -> Steps[list[BriefWorker]]:
    """Return all workers, with the numbers of their jobs, the latest heartbeat first."""
    pages = yield from read_pages(commands.brief_workers)
    found = {worker.name: worker for page in pages for worker in page.workers}  # one on two pages counts once
    return (yield from _with_queues(sorted(found.values(), key=lambda worker: worker.seen_at, reverse=True)))


def _read(names: Sequence[str] | None) -> Steps[list[Worker]]:
    found: dict[str, Worker] = {}
    pages = yield from read_pages(commands.workers, names=names)
    for worker in (worker for page in pages for worker in page.workers):
        found[worker.name] = _merge(found.get(worker.name), worker)
    return list(found.values())


def _with_queues(found: list[W]) -> Steps[list[W]]:
    names = (yield from queue_names()) if any(_has_pattern(worker) for worker in found) else []
    return _expand(found, names)


def nodes(self: Stores) -> Steps[list[Node[Worker]]]:
    """Return the hosts of all workers."""
    return by_node((yield from workers(self)))


def _merge(before: Worker | None, worker: Worker) -> Worker:
    """Add the jobs of another page to a worker. The page is newer."""
    if before is None:
        return worker
    held = {(job.executor, job.id, job.attempt): job for job in (*before.held, *worker.held)}
    return msgspec.structs.replace(worker, held=list(held.values()))


def _has_pattern(worker: Reported) -> bool:
    return any(is_pattern(entry) for entry in worker.queues)


def _expand(found: list[W], names: list[str]) -> list[W]:
    """Replace patterns by the queues that match. Workers with the same entries share a list."""
    served: dict[tuple[str, ...], list[str]] = {}
    for worker in found:
        entries = tuple(worker.queues)
        if _has_pattern(worker) and entries not in served:
            served[entries] = expand(entries, names)
    return [
        msgspec.structs.replace(worker, queues=served[entries])
        if (entries := tuple(worker.queues)) in served
        else worker
        for worker in found
    ]


def deregister(_: Stores, worker: str) -> Steps[None]:
    """Forget a dead worker now instead of after the configured time.

    Raises:
        WorkerNotFound: no worker has this name.
        WrongState: it is live, or holds jobs.
    """
    yield commands.deregister(worker)


def drain(_: Stores, worker: str) -> Steps[None]:
    """Drain a worker: it claims no more jobs and exits when its jobs have ended, however long they take.

    Raises:
        WorkerNotFound: no worker has this name.
    """
    yield commands.request("drain", worker=worker, inbox=new_id())
