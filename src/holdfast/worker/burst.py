"""The end of a burst: a worker that is to end when nothing waits in its queues, and nothing of it runs.

    all are idle ──▶ look at the queues, and all look once more ──▶ all are idle, nobody has claimed since ──▶ leave

Once is not enough: the last job may have enqueued something for an executor that was idle already, or made a queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.worker.place import Place
from holdfast.worker.processes import ExecutorProcess
from holdfast.worker.served import Served


class Burst:
    """Sees to it that the executors of a worker leave when there is nothing more to do."""

    def __init__(self, places: Sequence[Place], executors: Mapping[str, ExecutorProcess], served: Served) -> None:
        self._places = places
        self._executors = executors
        self._served = served
        self._is_sure = False  # all were asked to look once more, and nobody has claimed anything since

    def go_on(self) -> None:
        """There is something to do."""
        self._is_sure = False

    def leave_if_idle(self) -> None:
        if not self._has_nothing_to_do():
            return
        if not self._is_sure:
            self._served.look(then=self._look_once_more)
            return
        for executor in self._executors.values():
            executor.tell("leave")

    def _look_once_more(self) -> None:
        if self._has_nothing_to_do():
            for executor in self._executors.values():
                executor.is_idle = False
                executor.tell("look")
            self._is_sure = True

    def _has_nothing_to_do(self) -> bool:
        """Whether every executor has found its queues empty, and nothing runs."""
        kept = [place for place in self._places if not place.is_over]
        executors = [place.current for place in kept if place.current and len(place.followed) == 1]
        return len(executors) == len(kept) and all(executor.is_idle for executor in executors)
