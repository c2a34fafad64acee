"""The jobs of a run, and which of them have ended. Ended jobs are replaced, so that the load is constant."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from chaos.app import TASKS, Plan
from holdfast import Holdfast, HoldfastError, Job
from holdfast.task.task import BoundCall

KINDS = {  # how many of each there are among 50
    "fork": 15,
    "process": 5,
    "spawn": 2,
    "exclusive-fork": 8,
    "exclusive-process": 3,
    "exclusive-spawn": 1,
    "thread": 7,
    "async": 9,
}
ORDER = [kind for kind, count in KINDS.items() for _ in range(count)]
AT_ONCE = 500  # jobs that are asked for
ITEM = (0.1, 0.4)  # seconds
SHORT = (8.0, 20.0)  # seconds of work of a job
LONG_EVERY, LONG_PART = 5, 0.6  # every fifth of the first jobs has work for this part of the whole time


class JobPool:
    """So many jobs at a time, in all runners; a long run has long ones, and short ones that follow each other."""

    def __init__(self, app: Holdfast, size: int, seconds: float, chance: random.Random) -> None:
        self._app = app
        self._size = size
        self._seconds = seconds
        self._chance = chance
        self._unsent: list[BoundCall[Any]] = []
        self.plans: dict[str, Plan] = {}
        self.ended: dict[str, Job[Any]] = {}

    def pending(self) -> list[str]:
        return [id for id in list(self.plans) if id not in self.ended]

    def fill(self) -> None:
        """Enqueue as many as are missing. If that fails it is unknown what was stored: the same ids again, later."""
        missing = self._size - len(self.pending())
        self._unsent += [self._draw() for _ in range(missing)]
        try:
            if self._unsent:
                self._app.enqueue_many(self._unsent)
            self._unsent = []
        except HoldfastError:
            return

    def _draw(self) -> BoundCall[Any]:
        number, chance = len(self.plans), self._chance
        kind = ORDER[number * 7 % len(ORDER)]
        pause = chance.uniform(*ITEM)
        is_long = number < self._size and number % LONG_EVERY == 0
        work = LONG_PART * self._seconds if is_long else chance.uniform(*SHORT)
        items = max(5, int(work / pause))
        plan = self.plans[f"{kind}-{number}"] = Plan(
            items=items,
            pause=pause,
            step_every=max(3, items // 300),
            flush_every=chance.choice([0, 1, 4]),
            loops=number % 4 == 3,
            programs=kind not in ("thread", "async") and number % 3 == 0,
        )
        call: BoundCall[Any] = TASKS[kind].bind(plan).options(id=f"{kind}-{number}")
        return call

    def look(self) -> None:
        """See which have ended."""
        try:
            found = self._app.get_many(self.pending())
        except HoldfastError:  # the server was killed, or stands still
            return
        self.ended |= {job.id: job for job in found if job and job.is_final}

    def all(self) -> Iterator[Job[Any]]:
        """All jobs as they are now; a long run has more than one call can ask for."""
        ids = list(self.plans)
        for first in range(0, len(ids), AT_ONCE):
            yield from filter(None, self._app.get_many(ids[first : first + AT_ONCE]))

    def work_left(self) -> float:
        """Seconds of work that a job may have left at most."""
        return max((self.plans[id].items * self.plans[id].pause for id in self.pending()), default=0.0)
