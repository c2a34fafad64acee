"""Workers and nodes: the queues they serve, the jobs they hold, and their last heartbeat.

A worker sends a heartbeat every few seconds. Without one for half a minute it is not live, whether it crashed, hangs or
cannot reach the server; after a configurable time it is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.names import new_id
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import HeldJob, Worker


class Node(msgspec.Struct, frozen=True):
    """A host and its workers, the most recently seen first."""

    name: str
    workers: list[Worker]

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
        return [job for worker in self.workers for job in worker.held]

    @property
    def memory(self) -> int:
        return sum(worker.memory for worker in self.workers if worker.is_live)

    @property
    def cpu_seconds(self) -> float:
        return sum(worker.cpu_seconds for worker in self.workers if worker.is_live)


def by_node(workers: Sequence[Worker]) -> list[Node]:
    """Group workers by host, sorted by name."""
    nodes: dict[str, list[Worker]] = {}
    for worker in workers:
        nodes.setdefault(worker.node, []).append(worker)
    return [Node(name, nodes[name]) for name in sorted(nodes)]


def workers(_: Stores) -> Steps[list[Worker]]:
    """Return all workers, the latest heartbeat first."""
    found: list[Worker] = yield commands.workers()
    return found


def nodes(_: Stores) -> Steps[list[Node]]:
    """Return the hosts of all workers."""
    return by_node((yield commands.workers()))


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
