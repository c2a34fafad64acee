"""Workers and nodes: who serves what, what each holds, and when it gave its last sign of life.

A worker says so itself, every few seconds. One that says nothing for half a minute is not live: it counts for no queue
any more, whether it has crashed, hangs, or cannot reach the store. After the age that is configured it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.client_method import Stores
from holdfast.store.commands import HeldRow, WorkerRow
from holdfast.store.steps import Steps
from holdfast.units import LAST_MOMENT, utc


class HeldJob(msgspec.Struct, frozen=True):
    """A job that an executor of a worker holds, and the process that runs it (0: not known yet)."""

    executor: str
    id: str
    attempt: int
    queue: str
    task: str
    pid: int
    claimed_at: datetime


class Worker(msgspec.Struct, frozen=True):
    """A worker as it was at its last sign of life. `about` is what it says of itself: memory, CPU, executors.

    `queues` are those that it serves now, `told` what it was told: names and patterns.
    """

    name: str
    seen_at: datetime
    is_live: bool
    queues: list[str]
    about: dict[str, Any]
    held: list[HeldJob]

    @property
    def node(self) -> str:
        return self.name.partition("/")[0]

    @property
    def told(self) -> list[str]:
        """Which queues it was told to serve: names, patterns, and what is excluded."""
        told = self.about.get("queues")
        return [str(word) for word in told] if isinstance(told, list) else self.queues

    @property
    def is_draining(self) -> bool:
        """Whether it claims no more, and ends when its jobs have."""
        return self.about.get("draining") is True

    @property
    def allows_exec(self) -> bool:
        """Whether it runs any program that is enqueued."""
        return self.about.get("allow_exec") is True

    @property
    def tasks(self) -> list[str] | None:
        """Which tasks its app has; None if it does not tell, or they are too many."""
        tasks = self.about.get("tasks")
        return [str(name) for name in tasks] if isinstance(tasks, list) else None

    @property
    def is_idle(self) -> bool:
        """Whether it is live and has nothing to do."""
        return self.is_live and not self.held

    @property
    def pid(self) -> int:
        return int(self._number("pid"))

    @property
    def started_at(self) -> datetime | None:
        started = self._number("started")
        return utc(int(started)) if 0 < started <= LAST_MOMENT else None

    @property
    def memory(self) -> int:
        """Bytes, of all its processes."""
        return int(self._number("memory"))

    @property
    def cpu_seconds(self) -> float:
        """Of all its processes, since it started."""
        return float(self._number("cpu_seconds"))

    def _number(self, name: str) -> int | float:
        value = self.about.get(name)
        return value if isinstance(value, int | float) else 0


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


def read_workers(rows: Iterable[WorkerRow]) -> list[Worker]:
    return [_read_worker(row) for row in rows]


def _read_worker(row: WorkerRow) -> Worker:
    held = [_read_held(hold) for hold in row.held]
    return Worker(row.name, utc(row.seen), row.is_live, row.queues, _read_about(row.about), held)


def _read_about(text: str) -> dict[str, Any]:
    """What a worker says of itself. One in another language may say it in other words."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.MsgspecError:
        return {"words": text}


def _read_held(row: HeldRow) -> HeldJob:
    executor, id, attempt, queue, task, pid, claimed = row
    return HeldJob(executor, id, attempt, queue, task, pid, utc(claimed))


def by_node(workers: Sequence[Worker]) -> list[Node]:
    """Put workers together by their hosts, in the order of the names."""
    nodes: dict[str, list[Worker]] = {}
    for worker in workers:
        nodes.setdefault(worker.node, []).append(worker)
    return [Node(name, nodes[name]) for name in sorted(nodes)]


def workers(_: Stores) -> Steps[list[Worker]]:
    """Return the workers that gave a sign of life, the latest first."""
    return read_workers((yield commands.workers()))


def nodes(_: Stores) -> Steps[list[Node]]:
    """Return the hosts of all workers."""
    return by_node(read_workers((yield commands.workers())))


def deregister(_: Stores, worker: str) -> Steps[None]:
    """Forget a worker that is gone, before its time.

    Raises:
        JobNotFound: there is no such worker.
        WrongState: it is live, or holds jobs.
    """
    yield commands.deregister(worker)


def drain(_: Stores, worker: str) -> Steps[None]:
    """Have a worker claim no more, and end when its jobs have, however long they take.

    Raises:
        JobNotFound: there is no such worker.
    """
    yield commands.ask("drain", worker=worker, inbox=new_id())
