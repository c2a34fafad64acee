"""Workers under the test's clock: they claim and finish jobs on a real server, and time passes by moving the clock.

So what a plan predicts can be compared with what happens then, on a machine of any speed.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Any

from holdfast import Holdfast
from holdfast.job.outcome import Error, Outcome, Succeed
from holdfast.planning.plans import QueuePlan
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import keep, put

RunTime = Callable[[Random], float]
HEARTBEAT = 5.0  # seconds
POLL = 250  # milliseconds in which a free slot asks for jobs again
COUNTERS = count(1_000_000)


class Shop:
    """An app, its jobs, and workers with the same pool. `failing` has the fraction of attempts of a task that fail."""

    def __init__(self, jobs: Holdfast, store: Store, clock: TestClock) -> None:
        self.jobs, self.store, self.clock = jobs, store, clock
        self.run_times: Mapping[str, RunTime] = {}
        self.failing: Mapping[str, float] = {}
        self.processes, self.order = 1, "strict"
        self.queues: tuple[str, ...] = ("q",)
        self.lease: int | None = None  # milliseconds
        self.dice = Random(1)
        self.held: dict[str, dict[str, int]] = {}
        self.ends: list[tuple[int, str, str, int, Outcome]] = []
        self.beaten = 0

    def open(
        self, workers: int, processes: int, run_times: Mapping[str, RunTime], queues: tuple[str, ...] = ("q",)
    ) -> None:
        """Start workers."""
        self.run_times, self.processes, self.queues = run_times, processes, queues
        self.held = {f"node/w{place}.1": {} for place in range(workers)}
        self.beat()

    def put_all(self, numbers: Mapping[str, int], prefix: str = "b", **options: Any) -> None:
        """Enqueue so many jobs of each task, mixed."""
        tasks = [task for task, number in numbers.items() for _ in range(number)]
        Random(2).shuffle(tasks)
        for place, task in enumerate(tasks):
            put(self.store, f"{prefix}{place}", task=task, **options)

    def make_history(self, runs: int = 300, **options: Any) -> None:
        """Run jobs of each task, an hour ago."""
        self.put_all(dict.fromkeys(self.run_times, runs), "h", **options)
        self.drain()
        self.clock.advance(3600)
        self.beat()

    def plan(self, queue: str = "q", **options: Any) -> QueuePlan:
        [found] = self.jobs.plan(queue, **options).queues
        return found

    def beat(self) -> None:
        """Report each worker and renew its leases."""
        self.beaten = self.clock.now
        slots = {"processes": self.processes, "concurrency": 100}
        pools = [{"queues": dict.fromkeys(self.queues, 1), "order": self.order, **slots}]
        about = json.dumps({"pools": pools, "tasks": list(self.run_times), "in_process": []})
        for executor, held in self.held.items():
            leases = [Lease(executor, id, attempt) for id, attempt in held.items()]
            keep(self.store, *leases, executor=executor, queues=list(self.queues), about=about)

    def claim(self) -> None:
        for executor, held in self.held.items():
            free = self.processes - len(held)
            if free > 0:
                request = commands.claim_args(self.queues, counter=next(COUNTERS), limit=free, lease=self.lease)
                for job in self.store.run(commands.claim(executor, request)).jobs:
                    held[job.id] = job.attempt
                    ends = self.clock.now + round(1000 * self.run_times[job.task](self.dice))
                    fails = self.dice.random() < self.failing.get(job.task, 0.0)
                    outcome = Error(b"", "g") if fails else Succeed(b"")
                    heapq.heappush(self.ends, (ends, executor, job.id, job.attempt, outcome))

    def drain(self) -> float:
        """Work until all jobs of the queues have ended; return the seconds that took."""
        began = self.clock.now
        while self.pending():
            self.step(self.clock.now + round(1000 * HEARTBEAT))
        return (self.clock.now - began) / 1000

    def run_for(self, seconds: float) -> None:
        """Work for some time."""
        until = self.clock.now + round(1000 * seconds)
        while self.clock.now < until:
            self.step(until)

    def run_once(self) -> None:
        """Claim jobs once, and work until these attempts have ended."""
        self.claim()
        while self.ends:
            self.step(self.ends[0][0])

    def pending(self) -> int:
        page = self.store.run(commands.queues(list(self.queues)))
        return sum(queue.pending for queue in page.queues)

    def step(self, until: int) -> None:
        """Claim, and move the clock to the next end; by at most a quarter of a second while slots are free."""
        self.claim()
        if any(len(held) < self.processes for held in self.held.values()):
            until = min(until, self.clock.now + POLL)
        self.clock.now = max(self.clock.now, min([until, *(end[0] for end in self.ends[:1])]))
        while self.ends and self.ends[0][0] <= self.clock.now:
            _, executor, id, attempt, outcome = heapq.heappop(self.ends)
            del self.held[executor][id]
            self.store.run(commands.finish(executor, [Finish(id, attempt, outcome)]))
        if self.clock.now >= self.beaten + 1000 * HEARTBEAT:
            self.beat()
