"""The order in which an executor claims from its queues, and how many jobs it plans to take from each.

    strict        in the given order: a queue is served when those before it are empty
    round-robin   all queues equally often
    weighted      each queue in proportion to its weight
    fair          so that each queue has running jobs in proportion to its weight, counted over all workers

The store decides for `fair`: it counts the running jobs of each queue when it is asked for more. Among queues with
equally many, the order is that of `weighted`.

For round-robin and weighted, each queue has a position, and each job taken advances its queue by a step: the greater
the weight, the shorter the step. The queue that is furthest behind is next. So the proportions hold over any period,
also when jobs are claimed one at a time, and no queue starves. Only jobs that were taken count: the turn of an empty
queue goes to the others, and it does not save up turns. When the set of queues changes, those that stay keep their
positions.

If there are patterns, or more than a few queues, the store keeps the order instead, for all executors of such a pool
together: it knows in which queues jobs wait (`store/lua/pools.lua`).
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.client.queue_patterns import is_pattern
from holdfast.worker.settings import WEIGHTED, Order

MAX_NAMED = 20  # queues that each claim names
MAX_OFFSET = 10_000  # maximum random starting position in the cycle, in jobs


class ClaimPlan(NamedTuple):
    """The queues of one claim in order, and the number of jobs planned from each; None: take from the first.

    With weights, the store plans: it takes each job from the queue that has the fewest running jobs for its weight.
    With a pool, the store knows the queues as well.
    """

    queues: list[str]
    planned: list[int] | None
    weights: list[int] | None = None
    pool: str | None = None

    @property
    def shares(self) -> list[int] | None:
        """How many jobs to take from each queue in a first round.

        One from queues that are not planned, which come last: they are reached if others have fewer jobs than planned.
        """
        return None if self.weights else self.planned and [max(1, count) for count in self.planned]


class Strict:
    """The queues in the given order."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._queues = list(queues)

    def plan(self, _: int) -> ClaimPlan:
        return ClaimPlan(self._queues, None)

    def record(self, plan: ClaimPlan, queues: Iterable[str]) -> None:
        """Do nothing: the order does not depend on the jobs that were taken."""


class Weighted:
    """The queues by their weights. Starts as if `after` jobs had been taken and no queue had been empty."""

    def __init__(self, weights: dict[str, int], *, after: int = 0) -> None:
        scale = 2 * math.lcm(*weights.values())
        self._weights = dict(weights)
        self._step = {queue: scale // weight for queue, weight in weights.items()}
        self._position = {queue: step // 2 for queue, step in self._step.items()}
        self._number = {queue: number for number, queue in enumerate(weights)}
        self._advance(self._position, after)

    def plan(self, limit: int) -> ClaimPlan:
        """Plan a claim of up to `limit` jobs."""
        planned = self._advance(dict(self._position), limit)
        last = sorted((queue for queue in self._position if queue not in planned), key=self._rank)
        queues = [*planned, *last]
        return ClaimPlan(queues, [planned[queue] for queue in queues])

    def record(self, plan: ClaimPlan, queues: Iterable[str]) -> None:
        """Record the queues of the jobs that a claim returned. Some may not be served any more."""
        taken = Counter(queue for queue in queues if queue in self._position)
        if not taken:
            return
        pairs = zip(plan.queues, plan.planned or (), strict=True)
        planned = {queue: count for queue, count in pairs if queue in self._position}
        for queue, count in taken.items():
            self._position[queue] += count * self._step[queue]
        # A repeated claim returns what an earlier plan asked for: a queue that was not planned had more jobs.
        had_more = [queue for queue in taken if taken[queue] >= planned.get(queue, 0)]
        last = min(self._position[queue] - self._step[queue] for queue in had_more or taken)
        for queue, count in planned.items():
            if taken[queue] < count:
                self._position[queue] = max(self._position[queue], last)
        self._normalize()

    def _advance(self, position: dict[str, int], count: int) -> Counter[str]:
        """Advance queues by `count` jobs in total. Return the number of each, in the order of their first."""
        planned: Counter[str] = Counter()
        heap = sorted((*self._rank(queue), queue) for queue in position)
        for _ in range(count):
            at, number, queue = heap[0]
            planned[queue] += 1
            position[queue] = at + self._step[queue]
            heapq.heapreplace(heap, (position[queue], number, queue))
        return planned

    def _rank(self, queue: str) -> tuple[int, int]:
        return self._position[queue], self._number[queue]

    def _normalize(self) -> None:
        """Keep positions small: the lowest becomes 0."""
        least = min(self._position.values())
        for queue in self._position:
            self._position[queue] -= least


class Fair(Weighted):
    """The queues by their running jobs, which the store counts; the order of `Weighted` decides among equals."""

    def plan(self, limit: int) -> ClaimPlan:
        plan = super().plan(limit)
        return plan._replace(weights=[self._weights[queue] for queue in plan.queues])


class KeptByStore:
    """The queues of a pool, whose order the store keeps."""

    def __init__(self, order: Order, queues: Mapping[str, int]) -> None:
        has_weights = order in WEIGHTED
        entries = (f"{queue}={weight}" if has_weights and weight > 1 else queue for queue, weight in queues.items())
        self._pool = " ".join((order, *entries))

    def plan(self, _: int) -> ClaimPlan:
        return ClaimPlan([], None, pool=self._pool)

    def record(self, plan: ClaimPlan, queues: Iterable[str]) -> None:
        """Do nothing: the store records what was taken."""


def weights_of(order: Order, queues: Mapping[str, int]) -> dict[str, int]:
    """Return the weights of queues: 1 each, unless the order has weights."""
    return dict(queues) if order in WEIGHTED else dict.fromkeys(queues, 1)


def new_order(order: Order, queues: Mapping[str, int]) -> Strict | Weighted | KeptByStore:
    """Return the order of an executor.

    One of few queues starts at a random point of the cycle: else executors that end after a few jobs would all serve
    the same queue.
    """
    if len(queues) > MAX_NAMED or any(is_pattern(queue) for queue in queues):
        return KeptByStore(order, queues)
    if order == "strict":
        return Strict(queues)
    weights = weights_of(order, queues)
    cycle = min(sum(weights.values()), MAX_OFFSET)
    kind = Fair if order == "fair" else Weighted
    return kind(weights, after=random.randrange(cycle) if cycle else 0)  # noqa: S311, only spreads turns
