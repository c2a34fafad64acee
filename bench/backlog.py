"""Measure what enqueue, claim and finish cost the server with a given backlog: `python -m bench.backlog 1000 1000000`.

Each depth has a server of its own, so that a small one is not measured among the keys of a large one, and all are
measured in turn. The calls are those of the client and of the worker, made here one after the other so that the time
of each verb can be told apart: microseconds in FCALL, by the server's own count. As many jobs are enqueued as are
claimed, so that the depth stays. Batches are of 100 jobs, as a busy worker's; `one` is a job in each call.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Any

from bench.children import wait_until
from bench.server import Server, serving
from holdfast import Holdfast
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import ClaimedJob, Finish

ROUNDS = 50
SETTLING = 2.0  # seconds
BATCH = 100
VERBS = ("enqueue", "claim", "finish")


class Place:
    """A server with a backlog, and an executor that claims as many jobs as are enqueued."""

    def __init__(self, server: Server, depth: int) -> None:
        self.depth = depth
        self.server = server
        self._app = Holdfast(server.url)
        self._task = self._app.task(name="nothing")(_nothing)
        self._counter = 0
        for first in range(0, depth, 50_000):
            numbers = range(first, min(depth, first + 50_000))
            self._app.enqueue_many([self._task.bind(number) for number in numbers], fresh=True)

    def close(self) -> None:
        self._app.close()

    def round(self, size: int) -> dict[str, float]:
        """Microseconds of server time per job for each verb, in calls of `size` jobs, on 100 jobs."""
        claimed: list[ClaimedJob] = []
        spent = {"enqueue": self._timed(lambda: self._enqueue(size))}
        spent["claim"] = self._timed(lambda: claimed.extend(self._claim(size)))
        spent["finish"] = self._timed(lambda: self._finish(claimed, size))
        assert len(claimed) == BATCH
        return {verb: microseconds / BATCH for verb, microseconds in spent.items()}

    def _timed(self, work: Any) -> float:
        before = self._spent()
        work()
        return self._spent() - before

    def _spent(self) -> float:
        return float(self.server.client.info("commandstats")["cmdstat_fcall"]["usec"])

    def _enqueue(self, size: int) -> None:
        for first in range(0, BATCH, size):
            self._app.enqueue_many([self._task.bind(number) for number in range(first, first + size)])

    def _claim(self, size: int) -> list[ClaimedJob]:
        jobs: list[ClaimedJob] = []
        for _ in range(0, BATCH, size):
            self._counter += 1
            request = commands.claim_args(["default"], counter=self._counter, limit=size, pid=1)
            jobs += self._app.store.run(commands.claim("node/worker.1", request)).jobs
        return jobs

    def _finish(self, jobs: list[ClaimedJob], size: int) -> None:
        for first in range(0, BATCH, size):
            items = [
                Finish(job.id, job.attempt, Succeed(b"1"), pid=1, started=0, created=job.created)
                for job in jobs[first : first + size]
            ]
            self._app.store.run(commands.finish("node/worker.1", items))


def _nothing(number: int) -> int:
    return number


def measure(depths: list[int]) -> dict[str, Any]:
    figures: dict[str, float] = {}
    with ExitStack() as stack:
        places = [Place(stack.enter_context(serving()), depth) for depth in depths]
        for place in places:
            stack.callback(place.close)
        wait_until(lambda: not any(place.server.is_rehashing for place in places), timeout=30, every=0.2)
        time.sleep(SETTLING)
        rounds: dict[tuple[int, int], list[dict[str, float]]] = {}
        for number in range(ROUNDS + 1):
            for place in places:
                for size in (BATCH, 1):
                    spent = place.round(size)
                    if number:  # the first is to warm up
                        rounds.setdefault((place.depth, size), []).append(spent)
    for (depth, size), taken in rounds.items():
        for verb in VERBS:
            name = verb if size == BATCH else f"{verb} one"
            figures[f"{name}, {depth:,} waiting"] = statistics.median(row[verb] for row in taken)
    return {"figures": figures, "details": {"rounds": ROUNDS, "batch": BATCH}}


if __name__ == "__main__":
    print(json.dumps(measure([int(depth) for depth in sys.argv[1:]])))
