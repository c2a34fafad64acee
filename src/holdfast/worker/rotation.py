"""Which queues an executor names in a claim: they may change, and be more than one claim can name.

Where all fit into a claim it is as their order says. Of more than that each claim names some, in that order: those that
had jobs of late, half of it at most, and then the next ones of all in turn. So all are come to, and an executor is idle
only after it has asked for all and found nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.worker.order import Order, Turn, new_order, weights_of

MOST_QUEUES = 1000  # that the store hears of in one call


class Rotation:
    """The queues of one executor, in turn."""

    def __init__(self, order: Order, queues: Mapping[str, int], *, most: int = MOST_QUEUES) -> None:
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
