"""No wake-up is lost: when all executors that were woken have done their work, none is idle beside a job of its own.

Executors are their calls: an idle one claims only when it is woken, so a lost wake-up leaves a job waiting for good.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.constants import MIN_IDLE_WAIT
from holdfast.job.outcome import Release, Succeed
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.commands import ClaimedJob, ClaimReply, Finish
from holdfast.store.store import Address, Store
from tests.conftest import TestClock
from tests.model import invariants
from tests.model.pools import Pool
from tests.support.new_job import NewJob

QUEUES = ["a", "b", "c", "d"]
SERVED: list[dict[str, Any]] = [
    {"queues": ["a"]},
    {"queues": ["a", "b"]},
    {"queues": ["b", "c"], "shares": [1, 1]},
    {"queues": ["c", "b", "a"], "weights": [1, 2, 1]},
    {"pool": "strict *"},
    {"pool": "strict c* *"},
    {"pool": "round-robin * !a"},
    {"pool": "weighted d=3 *"},
    {"pool": "fair *"},
]


@dataclass
class Executor:
    name: str
    served: dict[str, Any]
    limit: int
    counter: int = 0
    is_idle: bool = False
    is_restless: bool = True  # it claims without being woken
    held: tuple[ClaimedJob, ...] = ()

    def serves(self, queue: str) -> bool:
        pool = self.served.get("pool")
        return Pool(pool, 0).entry(queue) is not None if pool else queue in self.served["queues"]


class Scene:
    def __init__(self, url: str) -> None:
        self.namespace = new_id()
        self.client = redis.Redis.from_url(url)
        self.clock = TestClock()
        self.store = Store(Address.find(url, namespace=self.namespace), clock=self.clock)
        self.numbers = itertools.count()

    def close(self) -> None:
        invariants.check(self.client, self.namespace)
        self.store.close()
        self.client.close()

    def put(self, queue: str, count: int) -> None:
        jobs = [NewJob(id=f"{queue}{next(self.numbers)}", payload=b"", queue=queue, task="t") for _ in range(count)]
        self.store.run(commands.enqueue(jobs))

    def may_go_on(self, executor: Executor) -> bool:
        return bool(executor.held) or executor.is_restless or bool(self.client.llen(self._wake_key(executor)))

    def go_on(self, executor: Executor, *, releases: bool = False) -> None:
        """Finish what it holds, and claim; if it is idle, only if it was woken."""
        if not self.may_go_on(executor):
            return
        if executor.is_idle:
            self.client.lpop(self._wake_key(executor))
        self.clock.now += 1
        executor.counter += 1
        request = {**executor.served, "counter": executor.counter, "limit": executor.limit}
        request |= {"idle": True} if executor.is_idle else {}
        outcome = Release() if releases else Succeed(b"")
        items = [Finish(job.id, job.attempt, outcome) for job in executor.held]
        finished = self.store.run(commands.finish(executor.name, items, request=request))
        self._remember(executor, finished.claim)

    def _remember(self, executor: Executor, claim: ClaimReply) -> None:
        executor.held = tuple(claim.jobs)
        executor.is_idle = not claim.jobs
        executor.is_restless = bool(claim.jobs) or claim.wait == MIN_IDLE_WAIT

    def _wake_key(self, executor: Executor) -> str:
        return f"hf:{{{self.namespace}}}:wake:{executor.name}"


steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(QUEUES), st.integers(1, 3)),
    st.tuples(st.just("go"), st.integers(0, 4), st.sampled_from([False, False, False, True])),
    st.tuples(st.sampled_from(["pause", "resume"]), st.sampled_from(QUEUES), st.none()),
    st.tuples(st.just("concurrency"), st.sampled_from(QUEUES), st.integers(0, 2)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    served=st.lists(st.tuples(st.sampled_from(SERVED), st.integers(1, 3)), min_size=1, max_size=5),
    script=st.lists(steps, min_size=3, max_size=30),
)
def test_no_job_waits_beside_an_idle_executor(
    server_url: str, served: list[tuple[dict[str, Any], int]], script: list[tuple[str, Any, Any]]
) -> None:
    scene = Scene(server_url)
    executors = [Executor(f"n/w{n}.0", what, limit) for n, (what, limit) in enumerate(served)]
    for executor in executors:
        scene.go_on(executor)
    for step, what, how in script:
        if step == "put":
            scene.put(what, how)
        elif step == "go":
            scene.go_on(executors[what % len(executors)], releases=how)
        elif step == "concurrency":
            scene.store.run(commands.configure(what, set={"concurrency": how}))
        else:
            scene.store.run(getattr(commands, step)(what))
    for queue in QUEUES:
        scene.store.run(commands.resume(queue))
    for queue in sorted({what for step, what, _ in script if step == "concurrency"}):
        scene.store.run(commands.configure(queue, reset=["concurrency"]))
        scene.put(queue, 1)  # a change of settings wakes nobody
    for _ in range(500):
        for executor in executors:
            scene.go_on(executor)
    assert not any(scene.may_go_on(executor) for executor in executors)
    for found in scene.store.run(commands.queues(QUEUES)).queues:
        if any(executor.serves(found.name) for executor in executors):
            assert found.counts["waiting"] == 0, f"{found.counts} in {found.name}"
    scene.close()
