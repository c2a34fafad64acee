"""The order in which an executor turns to its queues, and how many jobs it would take of each.

    strict        as they are named: a queue is turned to when those before it are empty
    round-robin   each as often as any other
    weighted      each as often as its weight says

For the last two, each queue has a position on one line, and a job that is taken moves its queue on by a step, short if
its weight is great. Whoever is last is next. So the numbers are right over any stretch of time, also when jobs are
claimed one at a time, and no queue waits for ever. What counts is what was taken: the turn of a queue that had nothing
goes to the others, and it does not save up turns for later. Queues come and go: those that stay keep their positions.

Which queues an executor names in a claim: they may change, and be more than one claim can name.

Where all fit into a claim it is as their order says. Of more than that each claim names some, in that order: those that
had jobs of late, half of it at most, and then the next ones of all in turn. So all are come to, and an executor is idle
only after it has asked for all and found nothing.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.worker.settings import MAX_QUEUES, Order

MAX_OFFSET = 10_000  # jobs, of the position in the cycle at which an executor starts


class Turn(NamedTuple):
    """For one claim: the queues in their order and, unless the first may have all, how many of each are planned."""

    queues: list[str]
    planned: list[int] | None

    @property
    def shares(self) -> list[int] | None:
        """How many to take of each queue in a first round, until the claim has all that it may.

        Of queues that are not planned, which come last, it is one: they are come to if others have less than planned.
        """
        return self.planned and [max(1, count) for count in self.planned]


class Strict:
    """The queues as they are named."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._queues = list(queues)

    def change(self, weights: dict[str, int]) -> None:
        self._queues = list(weights)

    def turn(self, _: int) -> Turn:
        return Turn(self._queues, None)

    def took(self, turn: Turn, queues: Iterable[str]) -> None:
        """Nothing follows from what was taken."""


class Weighted:
    """The queues by their weights. Begins after so many jobs, as if all queues had always had some."""

    def __init__(self, weights: dict[str, int], *, after: int = 0) -> None:
        self._line = 1
        self._position: dict[str, int] = {}
        self.change(weights)
        self._plan(self._position, after)

    def change(self, weights: dict[str, int]) -> None:
        """Serve other queues from now on. One that is new begins with those that are last."""
        line = 2 * math.lcm(*weights.values())
        kept = {queue: at * line // self._line for queue, at in self._position.items() if queue in weights}
        least = min(kept.values(), default=0)
        self._line = line
        self._step = {queue: line // weight for queue, weight in weights.items()}
        self._position = {queue: kept.get(queue, least + step // 2) for queue, step in self._step.items()}
        self._number = {queue: number for number, queue in enumerate(weights)}

    def turn(self, limit: int) -> Turn:
        """Say how to claim up to so many jobs."""
        planned = self._plan(dict(self._position), limit)
        last = sorted((queue for queue in self._position if queue not in planned), key=self._place)
        queues = [*planned, *last]
        return Turn(queues, [planned[queue] for queue in queues])

    def took(self, turn: Turn, queues: Iterable[str]) -> None:
        """Hear of which queues the jobs were that a claim brought. Some may not be served any more."""
        taken = Counter(queue for queue in queues if queue in self._position)
        if not taken:
            return
        pairs = zip(turn.queues, turn.planned or (), strict=True)
        planned = {queue: count for queue, count in pairs if queue in self._position}
        for queue, count in taken.items():
            self._position[queue] += count * self._step[queue]
        # A repeated claim brings what an earlier turn has asked for: of what was not planned, there was more.
        had_more = [queue for queue in taken if taken[queue] >= planned.get(queue, 0)]
        last = min(self._position[queue] - self._step[queue] for queue in had_more or taken)
        for queue, count in planned.items():
            if taken[queue] < count:
                self._position[queue] = max(self._position[queue], last)
        self._begin_at_zero()

    def _plan(self, position: dict[str, int], count: int) -> Counter[str]:
        """Move queues on by so many jobs in all. Returns how many of each, in the order of their first."""
        planned: Counter[str] = Counter()
        line = sorted((*self._place(queue), queue) for queue in position)
        for _ in range(count):
            at, number, queue = line[0]
            planned[queue] += 1
            position[queue] = at + self._step[queue]
            heapq.heapreplace(line, (position[queue], number, queue))
        return planned

    def _place(self, queue: str) -> tuple[int, int]:
        return self._position[queue], self._number[queue]

    def _begin_at_zero(self) -> None:
        """Keep the numbers small."""
        least = min(self._position.values())
        for queue in self._position:
            self._position[queue] -= least


def weights_of(order: Order, queues: Mapping[str, int]) -> dict[str, int]:
    """Return the weights of queues, where an order has any."""
    return dict(queues) if order == "weighted" else dict.fromkeys(queues, 1)


def new_order(order: Order, queues: Mapping[str, int]) -> Strict | Weighted:
    """Return the order of an executor.

    It begins somewhere in the cycle: executors that end after a few jobs would else take them all of the same queue.
    """
    if order == "strict":
        return Strict(queues)
    weights = weights_of(order, queues)
    cycle = min(sum(weights.values()), MAX_OFFSET)
    return Weighted(weights, after=random.randrange(cycle) if cycle else 0)  # noqa: S311, only spreads turns


class Rotation:
    """The queues of one executor, in turn."""

    def __init__(self, order: Order, queues: Mapping[str, int], *, most: int = MAX_QUEUES) -> None:
        self._kind: Order = order
        self._most = most
        self._queues = list(queues)
        self._order = new_order(order, queues)
        self._busy: dict[str, None] = {}  # the latest last
        self._at = 0  # in the queues: who is next
        self._asked = 0  # of the queues, by the claim that is on its way
        self._in_vain = 0  # of the queues, since a job was found

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def is_whole(self) -> bool:
        """Whether one claim asks for all."""
        return 0 < len(self._queues) <= self._most

    @property
    def is_half_way(self) -> bool:
        """Whether nothing was found so far, and there are queues that were not asked for."""
        return 0 < self._in_vain < len(self._queues)

    def serve(self, queues: Mapping[str, int]) -> None:
        """Turn to other queues from now on. Those that stay keep their positions."""
        if self._queues:
            self._order.change(weights_of(self._kind, queues))
        else:
            self._order = new_order(self._kind, queues)
        self._queues = list(queues)
        self._busy = {queue: None for queue in self._busy if queue in queues}
        self._in_vain = 0

    def turn(self, limit: int) -> Turn:
        """Say how to claim up to so many jobs."""
        whole = self._order.turn(limit)
        if len(self._queues) <= self._most:
            self._asked = len(self._queues)
            return whole
        named = {*self._busy, *self._next(self._most - len(self._busy))}
        places = [place for place, queue in enumerate(whole.queues) if queue in named]
        planned = whole.planned
        return Turn([whole.queues[place] for place in places], planned and [planned[place] for place in places])

    def took(self, turn: Turn, queues: Iterable[str]) -> None:
        """Hear of which queues the jobs were that a claim brought."""
        taken = list(queues)
        self._order.took(turn, taken)
        if taken:
            self._in_vain = 0
            self._note_busy(taken)
        else:
            self._in_vain = (self._in_vain if self.is_half_way else 0) + self._asked
            self._busy.clear()

    def _next(self, count: int) -> list[str]:
        """The queues whose turn it is, and go on to those behind them."""
        doubled = self._queues[self._at :] + self._queues[: self._at]
        self._asked = count
        self._at = (self._at + count) % len(self._queues)
        return doubled[:count]

    def _note_busy(self, taken: list[str]) -> None:
        """If there are too many, the oldest wait for their turn as others do."""
        for queue in dict.fromkeys(taken):
            self._busy.pop(queue, None)
            self._busy[queue] = None
        for queue in list(self._busy)[: -(self._most // 2)]:
            del self._busy[queue]
