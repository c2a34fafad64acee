"""Workers: which queues each serves, which jobs it holds, and when it last sent a heartbeat.

Workers send a heartbeat every few seconds. Without one for half a minute, a worker is not live and no longer counts for
its queues, whether it crashed, hangs, or cannot reach the store. It is forgotten after the configured age.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.store.commands.command import Command, omit_none
from holdfast.units import LAST_MOMENT, utc

_HELD = 9  # values of a held job


class HeldJob(msgspec.Struct, frozen=True):
    """A job that an executor of a worker holds, and the process that runs it (0: not yet known)."""

    executor: str
    id: str
    attempt: int
    queue: str
    task: str
    pid: int
    claimed_at: datetime
    heartbeat_at: datetime | None = (
        None  # when its lease was last renewed; None: unknown, after an outage of the server
    )
    stalled: bool = False  # its lease has ended, and no worker has requeued it yet


class Reported(msgspec.Struct, frozen=True):
    """A worker as of its last heartbeat. `about` is what it reports about itself: memory, CPU, executors."""

    name: str
    seen_at: datetime
    is_live: bool
    queues: list[str]
    about: dict[str, Any]

    @property
    def node(self) -> str:
        return self.name.partition("/")[0]

    @property
    def queue_patterns(self) -> list[str]:
        """The queues it was configured to serve: names, patterns and exclusions; `queues` are those it serves now."""
        patterns = self.about.get("queues")
        return [str(pattern) for pattern in patterns] if isinstance(patterns, list) else self.queues

    @property
    def is_draining(self) -> bool:
        """Whether it claims no more jobs, and exits when those it holds have ended."""
        return self.about.get("draining") is True

    @property
    def allows_exec(self) -> bool:
        """Whether it runs any program that is enqueued."""
        return self.about.get("allow_exec") is True

    @property
    def tasks(self) -> list[str] | None:
        """The tasks of its app; None if it does not report them, or there are too many."""
        tasks = self.about.get("tasks")
        return [str(name) for name in tasks] if isinstance(tasks, list) else None

    @property
    def tasks_in_process(self) -> list[str]:
        """Those of its tasks that take none of its processes: coroutines, and tasks in threads."""
        tasks = self.about.get("in_process")
        return [str(name) for name in tasks] if isinstance(tasks, list) else []

    @property
    def pid(self) -> int:
        return int(self._number("pid"))

    @property
    def started_at(self) -> datetime | None:
        started = self._number("started")
        return utc(int(started)) if 0 < started <= LAST_MOMENT else None

    @property
    def memory(self) -> int:
        """Bytes used by all its processes."""
        return int(self._number("memory"))

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all its processes since it started."""
        return float(self._number("cpu_seconds"))

    def _number(self, name: str) -> int | float:
        value = self.about.get(name)
        return value if isinstance(value, int | float) else 0


class Worker(Reported, frozen=True):
    """A worker, and the jobs that it holds."""

    held: list[HeldJob]

    @property
    def holds(self) -> int:
        """The number of jobs that it holds."""
        return len(self.held)

    @property
    def is_idle(self) -> bool:
        """Whether it is live and holds no jobs."""
        return self.is_live and not self.held

    @property
    def stalled(self) -> list[HeldJob]:
        """The jobs that it holds and whose leases have ended, because it sends no heartbeats."""
        return [job for job in self.held if job.stalled]


class BriefWorker(Reported, frozen=True):
    """A worker, and how many jobs it holds: reading them takes ten times as long. `about` has no names of tasks."""

    holds: int

    @property
    def is_idle(self) -> bool:
        """Whether it is live and holds no jobs."""
        return self.is_live and not self.holds


class WorkerPage(NamedTuple):
    """Workers, oldest heartbeat first. One that holds many jobs is on several pages, each with other jobs."""

    cursor: str  # of the next page; '' after the last
    workers: list[Worker]


class BriefWorkerPage(NamedTuple):
    """Workers, oldest heartbeat first."""

    cursor: str  # of the next page; '' after the last
    workers: list[BriefWorker]


def workers(
    *, names: Sequence[str] | None = None, since: int | None = None, cursor: str | None = None
) -> Command[WorkerPage]:
    """Return workers, or those of these names that exist, in their order."""
    return Command("workers", omit_none(names=names, since=since, cursor=cursor), _read_workers)


def _read_workers(reply: list[Any]) -> WorkerPage:
    return WorkerPage(reply[0].decode(), [_read_worker(row) for row in reply[1:]])


def _read_worker(row: list[Any]) -> Worker:
    name, seen, live, queues, about, flat = row
    held = [_read_held(flat[index : index + _HELD]) for index in range(0, len(flat), _HELD)]
    return Worker(name.decode(), utc(seen), live == 1, queues.decode().split(), read_about(about.decode()), held)


def brief_workers(*, since: int | None = None, cursor: str | None = None) -> Command[BriefWorkerPage]:
    return Command("workers", omit_none(brief=True, since=since, cursor=cursor), _read_brief_workers)


class _BriefAbout(msgspec.Struct):
    """What is read of each of a thousand workers; names of tasks would take most of the time."""

    draining: Any = msgspec.UNSET
    in_process: Any = msgspec.UNSET
    memory: Any = msgspec.UNSET
    pools: Any = msgspec.UNSET
    revision: Any = msgspec.UNSET
    started: Any = msgspec.UNSET


def _read_brief_workers(reply: list[Any]) -> BriefWorkerPage:
    return BriefWorkerPage(reply[0].decode(), [_read_brief_worker(row) for row in reply[1:]])


def _read_brief_worker(row: list[Any]) -> BriefWorker:
    name, seen, live, queues, about, holds = row
    return BriefWorker(name.decode(), utc(seen), live == 1, queues.decode().split(), _read_brief_about(about), holds)


def _read_brief_about(text: bytes) -> dict[str, Any]:
    try:
        found = msgspec.structs.asdict(msgspec.json.decode(text, type=_BriefAbout))
    except msgspec.MsgspecError:
        return {}
    return {name: value for name, value in found.items() if value is not msgspec.UNSET}


def read_about(text: str) -> dict[str, Any]:
    """Read what a worker reports about itself. A worker in another language may not report JSON."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.MsgspecError:
        return {"words": text}


def _read_held(part: list[Any]) -> HeldJob:
    executor, id, attempt, queue, task, pid, claimed, heartbeat, stalled = part
    seen = utc(heartbeat) if heartbeat else None
    names = executor.decode(), id.decode(), attempt, queue.decode(), task.decode()
    return HeldJob(*names, pid, utc(claimed), seen, stalled == 1)


def deregister(worker: str) -> Command[None]:
    return Command("deregister", {"worker": worker}, lambda _: None)


def request(kind: str, *, inbox: str, worker: str | None = None, id: str | None = None) -> Command[tuple[str, bytes]]:
    """Send a request to a worker. Return its name, and the key of the list on which it answers."""
    args = omit_none(kind=kind, inbox=inbox, worker=worker, id=id)
    return Command("request", args, lambda reply: (reply[0].decode(), reply[1]))
