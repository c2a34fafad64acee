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

A Rotation handles more queues than one claim can name. Each claim then covers some of them, in the order above: those
that recently had jobs, up to half of the claim, and then the next ones of all queues in rotation. So every queue is
reached, and an executor is idle only after it has found all of them empty.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from holdfast.worker.settings import MAX_QUEUES, WEIGHTED, Order

MAX_OFFSET = 10_000  # maximum random starting position in the cycle, in jobs


class ClaimPlan(NamedTuple):
    """The queues of one claim in order, and the number of jobs planned from each; None: take from the first.

    With weights, the store plans: it takes each job from the queue that has the fewest running jobs for its weight.
    """

    queues: list[str]
    planned: list[int] | None
    weights: list[int] | None = None

    @property
    def shares(self) -> list[int] | None:
        """How many jobs to take from each queue in a first round.

        One from queues that are not planned, which come last: they are reached if others have fewer jobs than planned.
        """
        return None if self.weights else self.planned and [max(1, count) for count in self.planned]

    def only(self, named: Collection[str]) -> ClaimPlan:
        """Return the part of the plan that is about some of its queues."""
        indexes = [index for index, queue in enumerate(self.queues) if queue in named]

        def chosen(numbers: list[int] | None) -> list[int] | None:
            return numbers and [numbers[index] for index in indexes]

        return ClaimPlan([self.queues[index] for index in indexes], chosen(self.planned), chosen(self.weights))


class Strict:
    """The queues in the given order."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._queues = list(queues)

    def change(self, weights: dict[str, int]) -> None:
        self._queues = list(weights)

    def plan(self, _: int) -> ClaimPlan:
        return ClaimPlan(self._queues, None)

    def record(self, plan: ClaimPlan, queues: Iterable[str]) -> None:
        """Do nothing: the order does not depend on the jobs that were taken."""


class Weighted:
    """The queues by their weights. Starts as if `after` jobs had been taken and no queue had been empty."""

    def __init__(self, weights: dict[str, int], *, after: int = 0) -> None:
        self._scale = 1
        self._position: dict[str, int] = {}
        self.change(weights)
        self._advance(self._position, after)

    def change(self, weights: dict[str, int]) -> None:
        """Serve other queues from now on. A new queue starts beside the one that is furthest behind."""
        scale = 2 * math.lcm(*weights.values())
        kept = {queue: at * scale // self._scale for queue, at in self._position.items() if queue in weights}
        least = min(kept.values(), default=0)
        self._scale = scale
        self._weights = dict(weights)
        self._step = {queue: scale // weight for queue, weight in weights.items()}
        self._position = {queue: kept.get(queue, least + step // 2) for queue, step in self._step.items()}
        self._number = {queue: number for number, queue in enumerate(weights)}

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


def weights_of(order: Order, queues: Mapping[str, int]) -> dict[str, int]:
    """Return the weights of queues: 1 each, unless the order has weights."""
    return dict(queues) if order in WEIGHTED else dict.fromkeys(queues, 1)


def new_order(order: Order, queues: Mapping[str, int]) -> Strict | Weighted:
    """Return the order of an executor.

    It starts at a random point of the cycle: else executors that end after a few jobs would all serve the same queue.
    """
    if order == "strict":
        return Strict(queues)
    weights = weights_of(order, queues)
    cycle = min(sum(weights.values()), MAX_OFFSET)
    kind = Fair if order == "fair" else Weighted
    return kind(weights, after=random.randrange(cycle) if cycle else 0)  # noqa: S311, only spreads turns


class Rotation:
    """The queues of one executor, which may be more than one claim can name."""

    def __init__(self, order: Order, queues: Mapping[str, int], *, max_queues: int = MAX_QUEUES) -> None:
        self._order_name: Order = order
        self._max_queues = max_queues
        self._queues = list(queues)
        self._order = new_order(order, queues)
        self._busy: dict[str, None] = {}  # queues that recently had jobs, the latest last
        self._next_index = 0  # in the queues
        self._asked = 0  # number of queues in the current claim
        self._found_empty = 0  # number of queues since a job was found

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def fits_one_claim(self) -> bool:
        """Whether one claim covers all queues."""
        return 0 < len(self._queues) <= self._max_queues

    @property
    def is_partial(self) -> bool:
        """Whether no job was found so far, and some queues are still to be asked."""
        return 0 < self._found_empty < len(self._queues)

    def serve(self, queues: Mapping[str, int]) -> None:
        """Serve other queues from now on. Those that stay keep their positions."""
        if self._queues:
            self._order.change(weights_of(self._order_name, queues))
        else:
            self._order = new_order(self._order_name, queues)
        self._queues = list(queues)
        self._busy = {queue: None for queue in self._busy if queue in queues}
        self._found_empty = 0

    def plan(self, limit: int) -> ClaimPlan:
        """Plan a claim of up to `limit` jobs."""
        whole = self._order.plan(limit)
        if len(self._queues) <= self._max_queues:
            self._asked = len(self._queues)
            return whole
        named = {*self._busy, *self._next(self._max_queues - len(self._busy))}
        return whole.only(named)

    def record(self, plan: ClaimPlan, queues: Iterable[str]) -> None:
        """Record the queues of the jobs that a claim returned."""
        taken = list(queues)
        self._order.record(plan, taken)
        if taken:
            self._found_empty = 0
            self._note_busy(taken)
        else:
            self._found_empty = (self._found_empty if self.is_partial else 0) + self._asked
            self._busy.clear()

    def _next(self, count: int) -> list[str]:
        """Return the next queues in rotation, and advance."""
        rotated = self._queues[self._next_index :] + self._queues[: self._next_index]
        self._asked = count
        self._next_index = (self._next_index + count) % len(self._queues)
        return rotated[:count]

    def _note_busy(self, taken: list[str]) -> None:
        """Note queues that had jobs. If there are too many, the oldest wait for their turn as others do."""
        for queue in dict.fromkeys(taken):
            self._busy.pop(queue, None)
            self._busy[queue] = None
        for queue in list(self._busy)[: -(self._max_queues // 2)]:
            del self._busy[queue]
