"""The families of metrics: each is declared once, with its meaning and how its samples are made from a reading.

The text, the tables of docs/metrics.md and the names that the Grafana board may use follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Literal, NamedTuple

from holdfast.job.job import STATES
from holdfast.metrics.reading import OTHER, Reading, TaskTimes
from holdfast.store.commands import TimesReply
from holdfast.version import __version__

Kind = Literal["gauge", "counter", "histogram", "info"]
# Upper bounds of the buckets of histograms, in seconds; each is a bound of the buckets in the store.
BOUNDS = (0.004, 0.016, 0.064, 0.256, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0)
OUTCOMES = ("completed", "retried", "other")


class Sample(NamedTuple):
    """A value with the values of its labels.

    `queue` says whose it is, for users who may not see all queues; None: of several queues, or of none.
    """

    labels: tuple[str, ...]
    value: float | TimesReply
    queue: str | None = None


class Family(NamedTuple):
    """Metrics of one name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    read: Callable[[Reading], Iterable[Sample]]


def _of_namespace(value: Callable[[Reading], float | None]) -> Callable[[Reading], Iterator[Sample]]:
    """Read one number of the whole namespace; None: unknown."""

    def read(reading: Reading) -> Iterator[Sample]:
        found = value(reading)
        if found is not None:
            yield Sample((), found)

    return read


def _add_up(
    reading: Reading, rows: Iterable[tuple[str, tuple[str, ...], float]], combine: Callable[[float, float], float]
) -> list[Sample]:
    """Make samples of rows of queue, further labels and value; queues without labels become one."""
    found: dict[tuple[str, ...], float] = {}
    for queue, more, value in rows:
        key = (reading.label_of(queue), *more)
        found[key] = combine(found[key], value) if key in found else value
    return [Sample(labels, value, _owner(labels[0])) for labels, value in found.items()]


def _owner(label: str) -> str | None:
    """Return the queue of a label; None: several queues."""
    return None if label == OTHER else label


def _plus(one: float, other: float) -> float:
    return one + other


def _jobs(reading: Reading) -> list[Sample]:
    rows = ((queue.name, (state,), queue.counts[state]) for queue in reading.queues for state in STATES)
    return _add_up(reading, rows, _plus)


def _of_load(name: str, combine: Callable[[float, float], float] = _plus) -> Callable[[Reading], list[Sample]]:
    """Read a number of the load of each queue; none counts as 0."""
    return lambda reading: _add_up(
        reading, ((load.queue, (), getattr(load, name) or 0) for load in reading.loads), combine
    )


def _attempts(reading: Reading) -> Iterator[Sample]:
    for each in reading.tasks:
        rest = max(0, each.ended - each.run.number - each.retries)
        for outcome, count in zip(OUTCOMES, (each.run.number, each.retries, rest), strict=True):
            yield Sample((each.queue, each.task, outcome), count, _owner(each.queue))


def _of_tasks(value: Callable[[TaskTimes], float | TimesReply]) -> Callable[[Reading], Iterator[Sample]]:
    return lambda reading: (Sample((each.queue, each.task), value(each), _owner(each.queue)) for each in reading.tasks)


def _workers(reading: Reading) -> Iterator[Sample]:
    live = [worker for worker in reading.workers if worker.is_live]
    draining = sum(worker.is_draining for worker in live)
    yield Sample(("live",), len(live) - draining)
    yield Sample(("draining",), draining)
    yield Sample(("silent",), len(reading.workers) - len(live))


def _slots(reading: Reading) -> Iterator[Sample]:
    processes, concurrency = reading.slots
    yield Sample(("process",), processes)
    yield Sample(("concurrent",), concurrency)


def _store_info(reading: Reading) -> Iterator[Sample]:
    if reading.server.name:
        yield Sample((reading.server.name, reading.server.version), 1)


QUEUE, TASK = ("queue",), ("queue", "task")
UP = Family("holdfast_store_up", "gauge", "Whether the store answered: 1 or 0.", (), lambda _: [Sample((), 1)])
FAMILIES = (
    UP,
    Family("holdfast_info", "info", "The version of Holdfast that reads the store.", ("version",),
           lambda _: [Sample((__version__,), 1)]),
    Family("holdfast_store_info", "info", "The server.", ("server", "version"), _store_info),
    Family("holdfast_store_memory_bytes", "gauge", "Memory that the server uses.", (),
           _of_namespace(lambda reading: reading.server.memory)),
    Family("holdfast_store_max_memory_bytes", "gauge", "Memory that the server may use; 0: no limit.", (),
           _of_namespace(lambda reading: reading.server.max_memory)),
    Family("holdfast_reading_seconds", "gauge", "How long it took to read these metrics from the store.", (),
           _of_namespace(lambda reading: reading.seconds)),
    Family("holdfast_jobs", "gauge",
           "Jobs in each state; those that have ended are counted while their records are kept.",
           ("queue", "state"), _jobs),
    Family("holdfast_oldest_seconds", "gauge", "How long the oldest waiting job has been waiting; 0: none waits.",
           QUEUE, _of_load("oldest", max)),
    Family("holdfast_needed", "gauge", "Jobs that have to run at once for waiting jobs to start within a minute.",
           QUEUE, _of_load("needed")),
    Family("holdfast_queue_paused", "gauge", "Whether the queue is paused: 1 or 0.", QUEUE, _of_load("paused", max)),
    Family("holdfast_queue_workers", "gauge", "Live workers that serve the queue.", QUEUE, _of_load("workers", max)),
    Family("holdfast_overdue", "gauge",
           "Jobs, leases, schedules, limits and deadlines that are due and not processed.", (),
           _of_namespace(lambda reading: reading.overdue)),
    Family("holdfast_attempts_total", "counter",
           "Attempts that ended today (UTC): completed; retried, after an error, a crash or a lost lease; or other.",
           (*TASK, "outcome"), _attempts),
    Family("holdfast_failures_total", "counter", "How often a job failed for good, today (UTC).", TASK,
           _of_tasks(lambda each: each.failures)),
    Family("holdfast_wait_seconds", "histogram",
           "Time from when a job could be claimed until its claim, today (UTC).", TASK,
           _of_tasks(lambda each: each.wait)),
    Family("holdfast_run_seconds", "histogram",
           "Time from the claim to the end of attempts that completed, today (UTC).", TASK,
           _of_tasks(lambda each: each.run)),
    Family("holdfast_workers", "gauge", "Workers; a silent one sends no heartbeat.", ("state",), _workers),
    Family("holdfast_slots", "gauge", "Jobs that live workers can run at once, in processes, and concurrently in one.",
           ("kind",), _slots),
    Family("holdfast_workers_memory_bytes", "gauge", "Memory of all processes of live workers.", (),
           _of_namespace(lambda reading: sum(each.memory for each in reading.workers if each.is_live))),
    Family("holdfast_stalled_jobs", "gauge", "Jobs whose leases have ended, and that no worker has requeued yet.", (),
           _of_namespace(lambda reading: sum(len(each.stalled) for each in reading.workers))),
)  # fmt: skip


def cumulative(times: TimesReply) -> list[tuple[float, int]]:
    """Return the number of times below each bound, in seconds; the last is infinite, and has all of them."""
    bounds, counts = (*BOUNDS, float("inf")), [0] * (len(BOUNDS) + 1)
    for _, upper, count in times.buckets:
        end = float("inf") if upper is None else upper / 1000
        counts[next(place for place, bound in enumerate(bounds) if end <= bound)] += count
    below = [min(count, times.number) for count in accumulate(counts)]
    return list(zip(bounds, [*below[:-1], times.number], strict=True))
