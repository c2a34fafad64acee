"""The model of shares: the rules at the head of `shares.lua`."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

from tests.model.job import Job

if TYPE_CHECKING:
    from tests.model.core import Core

TURN = 100


class Shares:
    """Virtual times. A job with a key begins when the last one of its key ends, but not before the queue's time."""

    def __init__(self, model: Core) -> None:
        self.model = model
        self.times: dict[tuple[str, int], int] = {}  # of a queue and priority
        self.ends: dict[
            tuple[str, int], dict[str, float]
        ] = {}  # of the last job of each key, as long as they lie ahead
        self.weights: dict[tuple[str, str], int] = {}  # of a queue and key
        self.any = False  # there was a share

    def is_fair(self, queue: str) -> bool:
        return self.any and any(where[0] == queue for where in [*self.times, *self.weights])

    def begin(self, job: Job, key: str) -> int:
        """The virtual time at which a new job of a key begins."""
        queue, where = job.new.queue, (job.new.queue, job.priority)
        ends = self.ends.setdefault(where, {})
        start = max(self.times.get(where, self.model.arrivals), ends.get(key, 0))
        ends[key] = start + TURN / self.weights.get((queue, key), 1)
        self.times.setdefault(where, floor(start))
        self.any = True
        return floor(start)

    def claimed(self, job: Job) -> None:
        """Virtual time moves on. Of a key whose last job ended before nothing has to be known."""
        where = job.new.queue, job.priority
        if job.arrival > self.times.get(where, 0):
            self.times[where] = job.arrival
            ends = self.ends.get(where, {})
            self.ends[where] = {key: end for key, end in ends.items() if end > job.arrival}

    def weigh(self, queue: str, key: str, weight: int) -> bool:
        if self.weights.get((queue, key), 1) == weight:
            return False
        if weight == 1:
            del self.weights[queue, key]
        else:
            self.weights[queue, key] = weight
            self.model.know_queue(queue)
        details = {"what": "share", "option": key, "value": str(weight)}
        self.model.events.about("configured", queue, details, queue=queue)
        return True

    def prune(self, queue: str) -> None:
        """Begin anew when no job has a place."""
        if not any(self.model.index(queue, state) for state in ("waiting", "throttled", "running")):
            for where in [where for where in self.times if where[0] == queue]:
                del self.times[where]
                self.ends.pop(where, None)

    def forget(self, queue: str) -> None:
        self.prune(queue)
        self.weights = {where: weight for where, weight in self.weights.items() if where[0] != queue}

    def fields(self) -> dict[str, dict[str, int]]:
        """As they are stored, by queue."""
        fields: dict[str, dict[str, int]] = {}
        for (queue, priority), time in self.times.items():
            fields.setdefault(queue, {})[f"v{priority}"] = time
        for (queue, key), weight in self.weights.items():
            fields.setdefault(queue, {})[f"w{key}"] = weight
        return fields

    def stored_ends(self) -> dict[str, dict[str, float]]:
        return {f"{queue}:{priority}": ends for (queue, priority), ends in self.ends.items() if ends}
