"""Workers and nodes: who serves what, what each holds, and when it gave its last sign of life.

A worker says so itself, every few seconds. One that says nothing for half a minute is not live: it counts for no queue
any more, whether it has crashed, hangs, or cannot reach the store. After the age that is configured it is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.names import new_id
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import HeldJob, Worker


class Node(msgspec.Struct, frozen=True):
    """A host, with its workers; the latest seen first."""

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
    """Put workers together by their hosts, in the order of the names."""
    nodes: dict[str, list[Worker]] = {}
    for worker in workers:
        nodes.setdefault(worker.node, []).append(worker)
    return [Node(name, nodes[name]) for name in sorted(nodes)]


def workers(_: Stores) -> Steps[list[Worker]]:
    """Return the workers that gave a sign of life, the latest first."""
    found: list[Worker] = yield commands.workers()
    return found


def nodes(_: Stores) -> Steps[list[Node]]:
    """Return the hosts of all workers."""
    return by_node((yield commands.workers()))


def deregister(_: Stores, worker: str) -> Steps[None]:
    """Forget a worker that is gone, before its time.

    Raises:
        WorkerNotFound: there is no such worker.
        WrongState: it is live, or holds jobs.
    """
    yield commands.deregister(worker)


def drain(_: Stores, worker: str) -> Steps[None]:
    """Have a worker claim no more, and end when its jobs have, however long they take.

    Raises:
        WorkerNotFound: there is no such worker.
    """
    yield commands.request("drain", worker=worker, inbox=new_id())
