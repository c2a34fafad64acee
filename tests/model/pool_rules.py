"""Random commands around pools: plain jobs in a few queues, which are paused, full or empty between the claims."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish
from tests.model import strategies
from tests.model.composition_rules import Composition
from tests.model.strategies import EXECUTORS, QUEUES
from tests.support.new_job import NewJob

steps = st.lists(
    st.sampled_from(["claim", "claim", "claim", "end", "enqueue", "pause", "resume", "concurrency"]),
    min_size=3,
    max_size=8,
)


class PoolRules(Composition):
    @rule(
        data=st.data(),
        jobs=st.lists(strategies.plain_jobs, min_size=3, max_size=6, unique_by=lambda job: job.id),
        pool=st.sampled_from(strategies.POOLS),
        steps=steps,
    )
    def work_in_a_pool(self, data: st.DataObject, jobs: list[NewJob], pool: str, steps: list[str]) -> None:
        """Executors share one pool, so what one claim leaves is what the next one finds."""
        jobs = [msgspec.structs.replace(job, share=None) for job in jobs]
        for step in ["claim", *steps, "claim"]:
            queue = data.draw(st.sampled_from(QUEUES), label="queue")
            if step == "claim":
                self.claim_from_pool(data, pool)
            elif step == "end":
                self.end_some(data)
            elif step == "enqueue" and jobs:
                self.send_enqueue([msgspec.structs.replace(jobs.pop(), queue=queue)], "replace", "none")
            elif step == "concurrency":
                self.send_configure(queue, {"concurrency": data.draw(st.integers(0, 2), label="jobs")}, [], "none")
            elif step in ("pause", "resume"):
                self.send_pause(step, queue)

    def send_pause(self, step: str, queue: str) -> None:
        command: commands.Command[Any] = getattr(commands, step)(queue)
        self.send(command, lambda: getattr(self.model, step)(queue), bool, "none")

    def claim_from_pool(self, data: st.DataObject, pool: str) -> None:
        executor = data.draw(st.sampled_from(EXECUTORS), label="executor")
        counter = self.requests.get(executor, {"counter": 0})["counter"] + 1
        limit = data.draw(st.sampled_from([1, 1, 2, 5]), label="limit")
        request = self.requests[executor] = commands.claim_args(pool=pool, counter=counter, limit=limit)
        self.send_claim(executor, request, "none")

    def end_some(self, data: st.DataObject) -> None:
        executor = self.draw_executor(data)
        items = [Finish(job.id, job.attempt, Succeed(b"1")) for job in self.model.held(executor)[:2]]
        if items:
            self.send_finish(executor, items, None, "none")
