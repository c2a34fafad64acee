"""One reading of everything that metrics show, in a bounded number of calls.

Counters are those of the current day of UTC: they start again at midnight, as the counters of a process do when it
starts. `rate` and `increase` expect that, and any process that reads the store sees the same numbers. Sums over the
days that the store keeps would fall whenever a day is dropped, and that looks like a restart with large numbers.

`increase` ignores the first value of a series. So a task that has run in the last days begins the day with zeros, or
its first failure of each day would never be counted.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast import client, errors
from holdfast.client.queues import Load
from holdfast.doctor.result import server_version
from holdfast.planning.fleet import shape_of
from holdfast.store import Action, Steps, Stores, commands
from holdfast.store.commands import (
    MAX_STATS_QUEUES,
    OverdueReply,
    Period,
    Queue,
    StatsReply,
    TimesReply,
    Worker,
)  # fmt: skip

MAX_QUEUES = 1000  # with labels of their own; further ones count together
MAX_TASKS = 500  # of all queues together; further ones count together in their queue
OTHER = "other"  # their label
TODAY = Period()
RECENT = Period(ago=7 * 86_400_000)  # in which a task ran that has zeros while it does nothing


class TaskTimes(NamedTuple):
    """The attempts of a task in a queue, today."""

    queue: str
    task: str
    ended: int
    failures: int
    retries: int
    wait: TimesReply
    run: TimesReply

    def plus(self, parts: Iterable[TaskTimes]) -> TaskTimes:
        """Return the sum with others."""
        return self._combined(parts, operator.add)

    def less(self, parts: Sequence[TaskTimes]) -> TaskTimes:
        """Return what is left without some tasks."""
        return self._combined(parts, lambda whole, part: max(0, whole - part))

    def at_least(self, before: TaskTimes) -> TaskTimes:
        """Return the larger of all numbers: what is left over does not fall when other tasks are read a bit later."""
        return self._combined([before], max)

    def _combined(self, others: Iterable[TaskTimes], combine: Any) -> TaskTimes:
        ended, failures, retries, wait, run = self[2:]
        for each in others:
            ended, failures = combine(ended, each.ended), combine(failures, each.failures)
            retries = combine(retries, each.retries)
            wait, run = _combined(wait, each.wait, combine), _combined(run, each.run, combine)
        return TaskTimes(self.queue, self.task, ended, failures, retries, wait, run)


_NO_TIMES = TimesReply(0, 0, 0.0, [])


def _nothing(queue: str, task: str) -> TaskTimes:
    return TaskTimes(queue, task, 0, 0, 0, _NO_TIMES, _NO_TIMES)


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
    labelled: frozenset[str]  # queues that have labels of their own
    tasks: list[TaskTimes]
    workers: list[Worker]
    overdue: int
    server: Server
    seconds: float  # that it took

    def label_of(self, queue: str) -> str:
        return queue if queue in self.labelled else OTHER

    @property
    def slots(self) -> tuple[int, int]:
        """Slots of live workers: processes, and places for coroutines and threads."""
        pools = [pool for worker in self.workers if worker.is_live for pool in shape_of(worker).pools]
        return sum(pool.processes for pool in pools), sum(pool.concurrency for pool in pools)


class Memory:
    """What one reading leaves to the next: what has labels today, and statistics that have not changed."""

    def __init__(self) -> None:
        self._day = 0
        self._begin(0)

    def _begin(self, day: int) -> None:
        self._day = day
        self._queues = set[str]()
        self._labelled = set[tuple[str, str]]()
        self._known: dict[str, tuple[StatsReply, list[TaskTimes]]] = {}  # by queue: its total, its tasks
        self._recent: dict[str, list[str]] = {}  # by queue: tasks of the last days
        self._rest: TaskTimes | None = None  # queues without labels

    def begin(self, day: int) -> None:
        """Forget what was of another day."""
        if day != self._day:
            self._begin(day)

    def label_queues(self, names: Iterable[str]) -> frozenset[str]:
        """Return the queues that have labels. One that has a label keeps it for the day."""
        for name in names:
            if len(self._queues) < MAX_QUEUES and name != OTHER:
                self._queues.add(name)
        return frozenset(self._queues)

    def label_tasks(self, queue: str, names: Sequence[str]) -> list[str]:
        """Return those tasks that have labels. One that has a label keeps it for the day."""
        for name in names:
            if len(self._labelled) < MAX_TASKS and name != OTHER:
                self._labelled.add((queue, name))
        return [name for name in names if (queue, name) in self._labelled]

    def known(self, queue: str, total: StatsReply) -> list[TaskTimes] | None:
        before = self._known.get(queue)
        return before[1] if before and before[0] == total else None

    def keep(self, queue: str, total: StatsReply, tasks: list[TaskTimes]) -> None:
        self._known[queue] = (total, tasks)

    def rest_of(self, queue: str) -> TaskTimes | None:
        """Return what was left over before."""
        return next((each for each in self._known.get(queue, (None, ()))[1] if each.task == OTHER), None)

    def knows_recent(self, queue: str) -> bool:
        return queue in self._recent

    def keep_recent(self, queue: str, names: list[str]) -> None:
        self._recent[queue] = names

    def idle(self) -> list[TaskTimes]:
        """Return zeros for recent tasks that have done nothing today, as long as there are labels left."""
        tasks = [(queue, name) for queue, names in self._recent.items() for name in names if name != OTHER]
        idle = [each for each in tasks if each not in self._labelled]
        return [_nothing(*each) for each in idle[: MAX_TASKS - len(self._labelled)]]

    def rest(self, totals: Iterable[TaskTimes]) -> TaskTimes:
        """Add up queues without labels."""
        rest = _nothing(OTHER, OTHER).plus(totals)
        self._rest = rest if self._rest is None else rest.at_least(self._rest)
        return self._rest


def read_store(stores: Stores, memory: Memory) -> Steps[Reading]:
    """Read the store."""
    began = time.monotonic()
    server = yield from _read_server(stores)
    overdue: OverdueReply = yield commands.overdue()
    queues = yield from client.queues.queues(stores)
    loads = yield from client.queues.load(stores)
    workers = yield from client.workers.workers(stores)
    names = sorted({*(queue.name for queue in queues), *(load.queue for load in loads)})
    totals, day = yield from _read_totals(names)
    memory.begin(day.since or 0)
    labelled = memory.label_queues(names)
    tasks: list[TaskTimes] = []
    for name in names:
        if name in labelled:
            tasks += yield from _read_tasks(name, totals[name], day, memory)
    tasks += memory.idle()
    if len(names) > len(labelled.intersection(names)):
        tasks.append(memory.rest(_times(OTHER, OTHER, totals[name]) for name in names if name not in labelled))
    return Reading(queues, loads, labelled, tasks, workers, overdue.timers, server, time.monotonic() - began)


def _read_server(stores: Stores) -> Steps[Server]:
    """Ask the server; a user who may not ask learns nothing."""
    try:
        info = yield Action(lambda: stores.store.execute("INFO"), lambda: stores.async_store.execute("INFO"))
        return Server.read(info)
    except errors.StoreUnavailable:
        raise
    except (errors.HoldfastError, LookupError, TypeError, ValueError):
        return Server()


def _read_totals(queues: Sequence[str]) -> Steps[tuple[dict[str, StatsReply], Period]]:
    """Read the statistics of queues, by queue, and return their day: all are those of one day, also at midnight."""
    totals, day = dict[str, StatsReply](), TODAY
    for first in range(0, len(queues), MAX_STATS_QUEUES):
        some = queues[first : first + MAX_STATS_QUEUES]
        replies: list[StatsReply] = yield commands.stats_of_queues(some, day)
        totals.update(zip(some, replies, strict=True))
        day = Period(replies[0].since, replies[0].until)
    return totals, day


def _read_tasks(queue: str, total: StatsReply, day: Period, memory: Memory) -> Steps[list[TaskTimes]]:
    """Read the statistics of a queue, by task; those of a queue where nothing has happened since take no call."""
    if not memory.knows_recent(queue):
        recent = yield from _task_names(queue, RECENT)
        memory.keep_recent(queue, recent)
    if not (total.ended or total.wait.number or total.failures):
        return []
    if (known := memory.known(queue, total)) is not None:
        return known
    names = yield from _task_names(queue, day)
    labelled = memory.label_tasks(queue, names)
    tasks: list[TaskTimes] = []
    for name in labelled:
        reply = yield commands.stats(queue, day, name)
        tasks.append(_times(queue, name, reply))
    if len(labelled) < len(names):
        rest, before = _times(queue, OTHER, total).less(tasks), memory.rest_of(queue)
        tasks.append(rest if before is None else rest.at_least(before))
    memory.keep(queue, total, tasks)
    return tasks


def _task_names(queue: str, period: Period) -> Steps[list[str]]:
    names = set[str]()
    while True:
        found: commands.TasksReply = yield commands.stats_tasks(queue, period)
        names.update(found.tasks)
        if found.until is None:
            return sorted(names)
        period = period._replace(until=found.until)


def _times(queue: str, task: str, reply: StatsReply) -> TaskTimes:
    return TaskTimes(queue, task, reply.ended, reply.failures, reply.retries, reply.wait, reply.run)
