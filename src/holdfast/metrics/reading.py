"""One reading of everything that metrics show, in a bounded number of calls.

Counters are those of the current day of UTC: they start again at midnight, as the counters of a process do when it
starts. `rate` and `increase` expect that, and any process that reads the store sees the same numbers. Sums over the
days that the store keeps would fall whenever a day is dropped, and that looks like a restart with large numbers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast import client, errors
from holdfast.client.queues import Load
from holdfast.doctor.result import server_version
from holdfast.planning.fleet import shape_of
from holdfast.store import Action, Steps, Stores, commands
from holdfast.store.commands import OverdueReply, Period, Queue, StatsReply, TimesReply, Worker

MAX_QUEUES = 1000  # with labels of their own; further ones count together
MAX_TASKS = 500  # of all queues together; further ones count together in their queue
OTHER = "other"  # their label
TODAY = Period()


class TaskTimes(NamedTuple):
    """The attempts of a task in a queue, today."""

    queue: str
    task: str
    ended: int
    failures: int
    retries: int
    wait: TimesReply
    run: TimesReply

    def less(self, parts: Sequence[TaskTimes]) -> TaskTimes:
        """Return what is left without some tasks."""
        return self._combined(parts, lambda whole, part: max(0, whole - part))

    def at_least(self, before: TaskTimes) -> TaskTimes:
        """Return the larger of all numbers: what is left over does not fall when other tasks are read a bit later."""
        return self._combined([before], max)

    def _combined(self, others: Sequence[TaskTimes], combine: Any) -> TaskTimes:
        ended, failures, retries, wait, run = self[2:]
        for each in others:
            ended, failures = combine(ended, each.ended), combine(failures, each.failures)
            retries = combine(retries, each.retries)
            wait, run = _combined(wait, each.wait, combine), _combined(run, each.run, combine)
        return TaskTimes(self.queue, self.task, ended, failures, retries, wait, run)


def _combined(one: TimesReply, other: TimesReply, combine: Any) -> TimesReply:
    counts = {lower: (upper, count) for lower, upper, count in one.buckets}
    theirs = {lower: (upper, count) for lower, upper, count in other.buckets}
    buckets = []
    for lower in sorted(counts | theirs):
        upper, count = counts.get(lower) or (theirs[lower][0], 0)
        buckets.append((lower, upper, combine(count, theirs.get(lower, (None, 0))[1])))
    return TimesReply(combine(one.number, other.number), combine(one.total, other.total), 0.0, buckets)


class Server(NamedTuple):
    """What the server says about itself; all of it unknown if this user may not ask."""

    name: str = ""
    version: str = ""
    memory: int | None = None  # bytes
    max_memory: int | None = None  # 0: no limit

    @classmethod
    def read(cls, info: Mapping[str, Any]) -> Server:
        name, _, version = server_version(info)
        return cls(name, version, int(info["used_memory"]), int(info["maxmemory"]))


class Reading(NamedTuple):
    """What was read."""

    queues: list[Queue]
    loads: list[Load]
    tasks: list[TaskTimes]
    workers: list[Worker]
    overdue: int
    server: Server
    seconds: float  # that it took

    @property
    def slots(self) -> tuple[int, int]:
        """Slots of live workers: processes, and places for coroutines and threads."""
        pools = [pool for worker in self.workers if worker.is_live for pool in shape_of(worker).pools]
        return sum(pool.processes for pool in pools), sum(pool.concurrency for pool in pools)


class Memory:
    """What one reading leaves to the next: the tasks that have labels, and statistics that have not changed."""

    def __init__(self) -> None:
        self._day = 0
        self._labelled: set[tuple[str, str]] = set()
        self._known: dict[str, tuple[StatsReply, list[TaskTimes]]] = {}  # by queue: its total, its tasks

    def begin(self, day: int) -> None:
        """Forget what was of another day."""
        if day != self._day:
            self._day, self._labelled, self._known = day, set(), {}

    def known(self, queue: str, total: StatsReply) -> list[TaskTimes] | None:
        before = self._known.get(queue)
        return before[1] if before and before[0] == total else None

    def keep(self, queue: str, total: StatsReply, tasks: list[TaskTimes]) -> None:
        self._known[queue] = (total, tasks)

    def rest_of(self, queue: str) -> TaskTimes | None:
        """Return what was left over before."""
        return next((each for each in self._known.get(queue, (None, ()))[1] if each.task == OTHER), None)

    def labelled(self, queue: str, names: Sequence[str]) -> list[str]:
        """Return those tasks that have labels. A task that has one keeps it for the day."""
        for name in names:
            if len(self._labelled) < MAX_TASKS and name != OTHER:
                self._labelled.add((queue, name))
        return [name for name in names if (queue, name) in self._labelled]


def read_store(stores: Stores, memory: Memory) -> Steps[Reading]:
    """Read the store."""
    began = time.monotonic()
    server = yield from _read_server(stores)
    overdue: OverdueReply = yield commands.overdue()
    queues = yield from client.queues.queues(stores)
    loads = yield from client.queues.load(stores)
    workers = yield from client.workers.workers(stores)
    tasks: list[TaskTimes] = []
    for queue in queues[:MAX_QUEUES]:
        tasks += yield from _read_tasks(queue.name, memory)
    return Reading(queues, loads, tasks, workers, overdue.timers, server, time.monotonic() - began)


def _read_server(stores: Stores) -> Steps[Server]:
    """Ask the server; a user who may not ask learns nothing."""
    try:
        info = yield Action(lambda: stores.store.execute("INFO"), lambda: stores.async_store.execute("INFO"))
        return Server.read(info)
    except errors.StoreUnavailable:
        raise
    except (errors.HoldfastError, LookupError, TypeError, ValueError):
        return Server()


def _read_tasks(queue: str, memory: Memory) -> Steps[list[TaskTimes]]:
    """Read the statistics of a queue, by task; those of a queue where nothing has happened take one call."""
    total: StatsReply = yield commands.stats(queue, TODAY)
    memory.begin(total.since)
    if not (total.ended or total.wait.number or total.failures):
        return []
    if (known := memory.known(queue, total)) is not None:
        return known
    names = yield from _task_names(queue)
    labelled = memory.labelled(queue, names)
    tasks: list[TaskTimes] = []
    for name in labelled:
        reply = yield commands.stats(queue, TODAY, name)
        tasks.append(_times(queue, name, reply))
    if len(labelled) < len(names):
        rest, before = _times(queue, OTHER, total).less(tasks), memory.rest_of(queue)
        tasks.append(rest if before is None else rest.at_least(before))
    memory.keep(queue, total, tasks)
    return tasks


def _task_names(queue: str) -> Steps[list[str]]:
    names, period = set[str](), TODAY
    while True:
        found: commands.TasksReply = yield commands.stats_tasks(queue, period)
        names.update(found.tasks)
        if found.until is None:
            return sorted(names)
        period = period._replace(until=found.until)


def _times(queue: str, task: str, reply: StatsReply) -> TaskTimes:
    return TaskTimes(queue, task, reply.ended, reply.failures, reply.retries, reply.wait, reply.run)
