"""Queues: list, pause and forget them; their load, and the concurrency it needs, for autoscaling."""

from __future__ import annotations

import math

import msgspec

from holdfast.client.paging import read_pages
from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid
from holdfast.names import check_queue
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import LoadPage, LoadSample, NamePage, OverdueReply, Queue, QueuePage
from holdfast.units import Duration, milliseconds


def queues(_: Stores) -> Steps[list[Queue]]:
    """Return all queues, with the number of jobs in each state."""
    pages = yield from read_pages(commands.queues)
    return [queue for page in pages for queue in page.queues]


def one_queue(name: str) -> Steps[Queue | None]:
    """Return a queue; None if there is none of this name. Names are in order, so few of them are read."""
    try:
        cursor = check_queue(name)[:-1]
    except Invalid:
        return None
    while True:
        page: NamePage = yield commands.queue_names(cursor=cursor or None)
        if name in page.names:
            found: QueuePage = yield commands.queues([name])
            return found.queues[0]
        cursor = page.cursor
        if not cursor or cursor > name:
            return None


def queue_names() -> Steps[list[str]]:
    """Return the names of all queues."""
    pages = yield from read_pages(commands.queue_names)
    return [name for page in pages for name in page.names]


def pause(_: Stores, queue: str) -> Steps[bool]:
    """Pause a queue: no more of its jobs start; running jobs continue. Return whether it changed anything.

    A queue that does not exist yet is created, so that it can be paused before its first job.
    """
    changed: bool = yield commands.pause(queue)
    return changed


def resume(_: Stores, queue: str) -> Steps[bool]:
    """Resume a paused queue. Return whether it changed anything."""
    changed: bool = yield commands.resume(queue)
    return changed


def forget(_: Stores, queue: str) -> Steps[bool]:
    """Forget a queue without jobs: its name, its settings, whether it is paused. Return whether it was known.

    Raises:
        WrongState: it has jobs.
    """
    was_known: bool = yield commands.forget_queue(queue)
    return was_known


MAX_NEEDED = 1_000_000
QUEUES_PER_CALL = 150  # the server does nothing else during a call


class Load(msgspec.Struct, frozen=True):
    """The load of a queue: current counts, and rates of the last minutes. Times are in seconds.

    `needed` is the concurrency with which waiting and arriving jobs start within the target. It is at least 1 while
    anything in the queue is overdue, even if no worker is live to notice.
    """

    queue: str
    paused: bool
    workers: int  # live workers that serve it
    waiting: int
    running: int
    scheduled: int
    blocked: int
    throttled: int
    overdue: int  # due but not processed: scheduled jobs, schedules, limits and deadlines
    oldest: float | None  # seconds since the oldest waiting job became claimable
    arriving: float  # jobs per second that became claimable, including retries
    ending: float  # attempts per second that ended
    run_time: float | None  # average duration of an attempt; None if none has ended
    needed: int


Loads = list[Load]


def load(_: Stores, *queues: str, target: Duration = "1m") -> Steps[Loads]:
    """Return the load of queues, all of them unless some are named, and the concurrency it needs.

    [load] = jobs.load("video", target="5m")
    print(load.waiting, load.oldest, load.needed)
    """
    wait = milliseconds(target, what="target", minimum=1, maximum=MAX_DURATION) / 1000
    names = [check_queue(queue) for queue in queues]
    due: OverdueReply = yield commands.overdue()
    pages: list[LoadPage] = [] if names else (yield from read_pages(commands.load))
    if not names:  # the queue of a schedule that is due may not exist yet
        names = sorted(due.by_queue.keys() - {sample.queue for page in pages for sample in page.samples})
    for first in range(0, len(names), QUEUES_PER_CALL):
        page: LoadPage = yield commands.load(names[first : first + QUEUES_PER_CALL])
        pages.append(page)
    return [_read(sample, due.by_queue.get(sample.queue, 0), wait) for page in pages for sample in page.samples]


def overdue(_: Stores) -> Steps[int]:
    """Return how many jobs, leases, schedules, limits and deadlines are due but were not processed.

    About 0 while workers run. If it stays above that, no worker is live: start one, or `holdfast upkeep`.
    """
    reply: OverdueReply = yield commands.overdue()
    return reply.timers


def _read(row: LoadSample, timers: int, target: float) -> Load:
    """Compute a load; `timers` are the overdue schedules, limits and deadlines that affect the queue."""
    period = row.period / 1000
    run_time = row.run_time / row.ended / 1000 if row.ended else None
    arriving = row.arrived / period
    return Load(
        queue=row.queue,
        paused=row.paused,
        workers=row.workers,
        waiting=row.waiting,
        running=row.running,
        scheduled=row.scheduled,
        blocked=row.blocked,
        throttled=row.throttled,
        overdue=row.due + row.unfinished + timers,
        oldest=None if row.oldest < 0 else row.oldest / 1000,
        arriving=arriving,
        ending=row.ended / period,
        run_time=run_time,
        needed=row.running if row.paused else _needed(row, row.unfinished + timers, arriving, run_time, target),
    )


def _needed(row: LoadSample, other_overdue: int, arriving: float, run_time: float | None, target: float) -> int:
    """Count due jobs as waiting: the next claim makes them so."""
    jobs = needed(row.waiting + row.due, row.running, arriving, run_time, target)
    return max(jobs, 1 if other_overdue else 0)


def needed(waiting: int, running: int, arriving: float, run_time: float | None, target: float) -> int:
    """Return the concurrency that a queue needs.

    Of c slots, c - running are free now, and c * target / run_time become free within the target. Together they must
    suffice for all jobs that wait, or arrive within it; and in the long run there must be more slots than are busy on
    average.
    """
    if run_time is None:
        return running + waiting if running else min(waiting, 1)  # the first job shows how long they take
    busy = arriving * run_time
    soon = (waiting + arriving * target + running) / (1 + target / run_time) if run_time else 0.0
    least = 1 if waiting or running else 0
    return min(MAX_NEEDED, max(least, math.ceil(soon - 1e-9), _steady_slots(busy, run_time, target)))


def _steady_slots(busy: float, run_time: float, target: float) -> int:
    """Return the smallest number of slots with which randomly arriving jobs wait for the target or less, on average."""
    if busy >= MAX_NEEDED or busy == 0:
        return min(MAX_NEEDED, math.ceil(busy))
    slots, blocked = 0, 1.0  # Erlang's formulas: B by recursion, then C
    while True:
        slots += 1
        blocked = busy * blocked / (slots + busy * blocked)
        if slots > busy:
            waits = blocked / (1 - busy / slots * (1 - blocked))
            if waits * run_time / (slots - busy) <= target:
                return slots
