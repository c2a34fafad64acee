"""What the statistics of a queue say: how long its tasks run, how often attempts are retried, how fast jobs arrive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from statistics import median
from typing import NamedTuple

from holdfast.client.queries import App
from holdfast.client.statistics import Point, Statistics, Times, stats, stats_series, stats_tasks
from holdfast.planning.model import RunTimes
from holdfast.store import Steps

MAX_TASKS = 50  # of a queue, whose statistics are read
ENOUGH_RUNS = 20  # on one day; with fewer, the last week counts
WEEK = timedelta(days=7)
MINUTES = 60  # whose arrivals count
MIN_MINUTES = 3  # with arrivals: fewer are a burst, and no rate
BURST = 3  # times the usual: arrivals of a minute beyond that do not count


class TaskRates(NamedTuple):
    """What is known about a task in a queue. `share` is its part of the jobs that ended."""

    run: RunTimes | None
    retried: float
    share: float


class QueueRates(NamedTuple):
    """Jobs that arrive per second, without retries, and the tasks."""

    arriving: float
    tasks: dict[str, TaskRates]


def read_rates(self: App, queue: str, tasks: Sequence[str]) -> Steps[QueueRates]:
    """Read the statistics of these tasks, and of others that the queue had in the last week."""
    week = yield from stats_tasks(self, queue, since=WEEK)
    names = list(dict.fromkeys([*tasks, *week]))[:MAX_TASKS]
    found: dict[str, Statistics] = {}
    for name in names:
        found[name] = yield from _read_task(self, queue, name)
    jobs = {name: each.ended - each.retries for name, each in found.items()}
    total = sum(jobs.values())
    rates = {
        name: TaskRates(
            run_times(each.run), each.retries / each.ended if each.ended else 0.0, jobs[name] / total if total else 0.0
        )
        for name, each in found.items()
    }
    return QueueRates(arrival_rate((yield from stats_series(self, queue))), rates)


def _read_task(self: App, queue: str, task: str) -> Steps[Statistics]:
    today = yield from stats(self, queue, task=task)
    if today.run.count >= ENOUGH_RUNS:
        return today
    return (yield from stats(self, queue, task=task, since=WEEK))


def run_times(times: Times) -> RunTimes | None:
    """Convert statistics; None if there are none."""
    if times.mean is None:
        return None
    buckets = tuple(
        (each.lower, 2 * each.lower if each.upper is None else each.upper, each.count) for each in times.histogram
    )
    return RunTimes(times.count, times.mean, times.stdev or 0.0, buckets)


def arrival_rate(points: Sequence[Point]) -> float:
    """Return how many jobs arrive per second, from the minutes of the last hour that are over.

    A backlog that was enqueued at once is a burst, which says nothing about the next hour: arrivals of a minute count
    up to a few times the usual. Retries are no arrivals.
    """
    minutes = [point.arrivals or 0 for point in points[:-1]]
    first = next((number for number, arrivals in enumerate(minutes) if arrivals), len(minutes))
    known = minutes[max(first, len(minutes) - MINUTES) :]
    busy = [arrivals for arrivals in known if arrivals]
    if len(busy) < MIN_MINUTES:
        return 0.0
    usual = BURST * median(busy)
    retries = sum(point.retries for point in points[-len(known) - 1 : -1])
    return sum(min(arrivals, usual) for arrivals in known) * max(0.0, 1 - retries / sum(known)) / (60 * len(known))
