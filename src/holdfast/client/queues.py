"""Queues. Verbs of the client; see `verbs`.

How much work queues have, and how many jobs have to run at once for it: the signal for autoscaling. See `verbs`.
"""

from __future__ import annotations

import math

import msgspec

from holdfast.constants import MAX_DURATION
from holdfast.names import check_queue
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import LoadReply, LoadSample, Queue
from holdfast.units import Duration, milliseconds


def queues(_: Stores) -> Steps[list[Queue]]:
    """Return all queues with their numbers of jobs."""
    found: list[Queue] = yield commands.queues()
    return found


def pause(_: Stores, queue: str) -> Steps[bool]:
    """Start no more jobs of a queue; those that run go on. Returns whether that changed anything."""
    changed: bool = yield commands.pause(queue)
    return changed


def resume(_: Stores, queue: str) -> Steps[bool]:
    """Start jobs of a paused queue again. Returns whether that changed anything."""
    changed: bool = yield commands.resume(queue)
    return changed


def forget(_: Stores, queue: str) -> Steps[bool]:
    """Forget a queue that has no jobs: its name, its settings, that it is paused. Returns whether it was known.

    Raises:
        WrongState: it has jobs.
    """
    was_known: bool = yield commands.forget_queue(queue)
    return was_known


MOST_NEEDED = 1_000_000
AT_ONCE = 200  # queues in one call


class Load(msgspec.Struct, frozen=True):
    """The work of a queue: exact numbers of this moment, and rates of the last minutes. Times are in seconds.

    `needed` is how many jobs have to run at once so that what waits, and what will come, starts within the target. It
    is at least 1 while something of the queue is overdue: also without any worker, who would have moved it.
    """

    queue: str
    paused: bool
    workers: int  # live ones that serve it
    waiting: int
    running: int
    scheduled: int
    blocked: int
    throttled: int
    overdue: int  # what is due and nobody has moved: scheduled jobs; schedules, limits and deadlines of the queue
    oldest: float | None  # for how long the one that waits longest could have been claimed
    arriving: float  # jobs per second that could be claimed, retries included
    ending: float  # attempts per second that ended
    run_time: float | None  # how long an attempt took, on average; None: none has ended
    needed: int


Loads = list[Load]


def load(_: Stores, *queues: str, target: Duration = "1m") -> Steps[Loads]:
    """Return how much work queues have, all of them if none is named, and how many jobs have to run at once for it.

    [load] = jobs.load("video", target="5m")
    print(load.waiting, load.oldest, load.needed)
    """
    wait = milliseconds(target, what="target", least=1, most=MAX_DURATION) / 1000
    names = [check_queue(queue) for queue in queues] or (yield from _all_queues())
    found: list[Load] = []
    for first in range(0, len(names), AT_ONCE):  # nothing else is served meanwhile
        loaded: LoadReply = yield commands.load(names[first : first + AT_ONCE])
        found += [_read(row, wait) for row in loaded.samples]
    return found


def overdue(_: Stores) -> Steps[int]:
    """Return how much is due and nobody has moved: jobs, leases that ended, schedules, limits, deadlines.

    Where workers run it is about 0. If it stays above that, none do: start one, or `holdfast upkeep`.
    """
    loaded: LoadReply = yield commands.load([])
    return loaded.overdue


def _all_queues() -> Steps[list[str]]:
    """All queues, with those that have no jobs yet but a schedule that is due."""
    names: list[str] = yield commands.queue_names()
    loaded: LoadReply = yield commands.load([])
    return [*names, *sorted(set(loaded.about).difference(names))]


def _read(row: LoadSample, target: float) -> Load:
    period = row.period / 1000
    run_time = row.ran / row.ended / 1000 if row.ended else None
    arriving = row.came / period
    return Load(
        queue=row.queue,
        paused=row.paused,
        workers=row.workers,
        waiting=row.waiting,
        running=row.running,
        scheduled=row.scheduled,
        blocked=row.blocked,
        throttled=row.throttled,
        overdue=row.due + row.others,
        oldest=None if row.oldest < 0 else row.oldest / 1000,
        arriving=arriving,
        ending=row.ended / period,
        run_time=run_time,
        needed=row.running if row.paused else _needed(row, arriving, run_time, target),
    )


def _needed(row: LoadSample, arriving: float, run_time: float | None, target: float) -> int:
    """What is due counts as waiting: whoever comes makes it so."""
    jobs = needed(row.waiting + row.due, row.running, arriving, run_time, target)
    return max(jobs, 1 if row.others else 0)


def needed(waiting: int, running: int, arriving: float, run_time: float | None, target: float) -> int:
    """Return how many jobs have to run at once.

    Of c slots, c - running are free now, and c * target / run_time come free within the target. These have to be enough
    for all that waits and arrives within it; and in the long run there must be more of them than are busy on average.
    """
    if run_time is None:
        return running + waiting if running else min(waiting, 1)  # one has to run before anything is known
    busy = arriving * run_time
    soon = (waiting + arriving * target + running) / (1 + target / run_time) if run_time else 0.0
    least = 1 if waiting or running else 0
    return min(MOST_NEEDED, max(least, math.ceil(soon - 1e-9), _for_the_long_run(busy, run_time, target)))


def _for_the_long_run(busy: float, run_time: float, target: float) -> int:
    """The least number of slots with which jobs that come at random wait for no longer than the target, on average."""
    if busy >= MOST_NEEDED or busy == 0:
        return min(MOST_NEEDED, math.ceil(busy))
    slots, blocked = 0, 1.0  # Erlang's formulas: B by recursion, then C
    while True:
        slots += 1
        blocked = busy * blocked / (slots + busy * blocked)
        if slots > busy:
            waits = blocked / (1 - busy / slots * (1 - blocked))
            if waits * run_time / (slots - busy) <= target:
                return slots
