"""What a simulation starts from: kinds of jobs, groups of slots, limits. Times are in seconds. No I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Later = tuple[tuple[float, float], ...]  # jobs that are due later: in how many seconds, and how many


@dataclass(frozen=True, slots=True)
class RunTimes:
    """How long the attempts of a task take: mean, standard deviation, and a histogram for the shape."""

    count: int
    mean: float
    stdev: float
    buckets: tuple[tuple[float, float, int], ...] = ()  # lower and upper bound, count

    @property
    def error(self) -> float:
        """The standard error of the mean; with a single run the mean itself, because the deviation is unknown."""
        return self.stdev / math.sqrt(self.count) if self.count > 1 else self.mean


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of one queue that are alike: same task, priority and limits."""

    queue: str
    task: str
    priority: int = 0
    limits: tuple[str, ...] = ()
    in_process: bool = False  # takes a slot of `concurrency` instead of one of `processes`
    is_known: bool = True  # whether a worker that serves the queue has the task
    run: RunTimes | None = None  # None: nothing is known
    waiting: float = 0  # jobs that could start now, but for slots and limits
    sampled: int = 0  # from how many jobs of a sample `waiting` was estimated; 0: it was counted
    retrying: Later = ()  # jobs of the backlog that wait for their next attempt
    delayed: Later = ()  # jobs that were enqueued for later
    arriving: float = 0.0  # jobs per second
    retried: float = 0.0  # the fraction of attempts that are followed by a retry
    retries: int = 0  # the maximum, of each job
    waits: tuple[float, ...] = (0.0,)  # before the first retry, the second ...; the last one repeats


@dataclass(frozen=True, slots=True)
class PoolGroup:
    """The slots of all pools that serve the same queues in the same order."""

    queues: tuple[tuple[str, int], ...]  # and their weights
    order: str
    processes: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit, with its key: `slots` jobs at once or, if `per` is not 0, starts in each period."""

    name: str
    slots: int
    per: float = 0.0
    opens_after: float = 0.0  # with a period whose starts are used up: in how many seconds the next jobs may start


@dataclass(frozen=True, slots=True)
class Running:
    """A running job: which of the kinds, and for how long. `takes_slot` is false if its worker claims no more jobs."""

    kind: int
    elapsed: float
    takes_slot: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The store at one moment, as far as a simulation needs it."""

    kinds: tuple[Kind, ...]
    groups: tuple[PoolGroup, ...]
    limits: tuple[LimitState, ...] = ()
    running: tuple[Running, ...] = ()
    paused: frozenset[str] = frozenset()
    concurrency: Mapping[str, int] = field(default_factory=dict)  # of queues that have a maximum of running jobs
