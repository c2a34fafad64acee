"""The random commands of the model test about what jobs have to do with each other."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast import commands
from holdfast.commands import NewJob
from tests import drawn
from tests.drawn import IDS
from tests.model_job import STATES
from tests.model_rules import Rules


class Composition(Rules):
    def draw_some(self, data: st.DataObject, states: tuple[str, ...], *, most: int = 3) -> list[str]:
        """Draw ids without repetition, mostly; of jobs in these states, mostly."""
        fitting = [job.id for job in self.model.jobs.values() if job.state in states] or IDS
        one = st.sampled_from(fitting * 3 + IDS) if len(fitting) < len(IDS) else st.sampled_from(fitting)
        return data.draw(st.lists(one, max_size=most, unique=True) | st.lists(one, max_size=most), label="ids")

    @rule(
        data=st.data(),
        jobs=st.lists(drawn.new_jobs, min_size=1, max_size=4, unique_by=lambda job: job.id),
        exists=st.sampled_from(["return", "return", "return", "replace"]),
        fault=drawn.faults,
    )
    def enqueue_linked(self, data: st.DataObject, jobs: list[NewJob], exists: str, fault: str) -> None:
        """Jobs that wait for each other, and for others."""
        linked = [msgspec.structs.replace(job, **self.draw_links(data, jobs[:place])) for place, job in enumerate(jobs)]
        self.send_enqueue(linked[:: data.draw(st.sampled_from([1, -1]), label="order")], exists, fault)

    def draw_links(self, data: st.DataObject, before: list[NewJob]) -> dict[str, Any]:
        """Draw those that a job waits for: mostly such that are there and do not wait for it, seldom any."""
        known = [*self.model.jobs, *[job.id for job in before] * 3] or IDS
        one = st.sampled_from([known] * 9 + [IDS]).flatmap(st.sampled_from)
        after = data.draw(st.lists(one, max_size=3, unique=True), label="after")
        return {"after": tuple(after) or None, "on_failed": data.draw(st.none() | drawn.policies, label="on_failed")}

    @rule(data=st.data(), on_failed=st.none() | drawn.policies, fault=drawn.faults)
    def depend(self, data: st.DataObject, on_failed: str | None, fault: str) -> None:
        [id, *_] = self.draw_ids(data, STATES[:4])
        add, remove = self.draw_some(data, STATES), self.draw_some(data, STATES, most=2)
        self.send(
            commands.depend(id, add=add, remove=remove, on_failed=on_failed),
            lambda: self.model.after.depend(id, add, remove, on_failed, self.now),
            tuple,
            fault,
        )

    @rule(data=st.data(), reason=drawn.reasons, fault=drawn.faults)
    def cancel_with_dependents(self, data: st.DataObject, reason: str, fault: str) -> None:
        ids = self.draw_ids(data, STATES)
        command = commands.cancel(ids, reason=reason, dependents=True)
        self.send(command, lambda: self.model.cancel(ids, reason, self.now, dependents=True), list, fault)
