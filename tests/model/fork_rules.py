"""Random forks, and retries from the start: the new job must go on where the other one was, or begin anew."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.store import commands
from tests.model import strategies
from tests.model.composition_rules import Composition
from tests.model.job import FINAL, STATES
from tests.model.strategies import IDS
from tests.support.new_job import NewJob

FORKS = ["fork-1", "fork-2", "fork~3"]
no_options: dict[str, Any] = {}
options = st.just(no_options) | st.fixed_dictionaries(
    {},
    optional={
        "queue": strategies.queue_names,
        "priority": st.sampled_from([-1, 1]),
        "delay": st.sampled_from([0, 1000]),
        "retries": st.just(0),
        "limits": st.sampled_from([[], ["api"], ["db", "api:x"]]),
        "share": st.sampled_from(strategies.SHARES),
        "after": st.lists(strategies.ids, max_size=2, unique=True),
        "on_failed": strategies.policies,
        "deadline": st.sampled_from([500, 60_000]),
        "at_most_once": st.booleans(),
        "keep": st.sampled_from([True, False, 1000]),
        "run": st.sampled_from(["", "{}", "x" * 100]),
        "fields": st.sampled_from([{}, {"owner": "next"}]),
        "tags": st.lists(st.sampled_from(strategies.TAGS), max_size=2, unique=True),
        "scope": st.sampled_from(strategies.SCOPES),
        "in_batch": st.sampled_from(strategies.BATCHES),
    },
)


class ForkRules(Composition):
    @rule(
        data=st.data(),
        given=options,
        how=st.sampled_from([{}, {}, {}, {"from_start": True}, {"run": ""}, {"run": "{}"}]),
        fault=strategies.faults,
    )
    def fork(self, data: st.DataObject, given: dict[str, Any], how: dict[str, Any], fault: str) -> None:
        """Of a job that saved something, mostly."""
        saved = [job.id for job in self.model.jobs.values() if job.checkpoint or job.steps]
        id = data.draw(st.sampled_from([*saved * 5, *self.model.jobs, *IDS]), label="id")
        new = data.draw(st.sampled_from([*FORKS * 4, *IDS]), label="new")
        self.send_fork(id, new, given, fault, **how)

    def send_fork(
        self, id: str, new: str, given: dict[str, Any], fault: str, *, from_start: bool = False, run: str | None = None
    ) -> None:
        self.known_ids.add(new)
        set = {"batch" if name == "in_batch" else name: value for name, value in given.items()}
        self.send(
            commands.fork(id, new, from_start=from_start, set=set, run=run),
            lambda: self.model.forks.fork(id, new, given, self.now, from_start=from_start, run=run),
            lambda reply: reply.created,
            fault,
        )

    @rule(data=st.data(), job=strategies.new_jobs, step=st.booleans(), checkpoint=st.none() | strategies.blobs)
    def save_fork_and_work(self, data: st.DataObject, job: NewJob, step: bool, checkpoint: bytes | None) -> None:
        """A job saves something and ends; a fork of it runs."""
        self.send_enqueue([job], "return", "none")
        self.work_off(data)
        running = [each for each in self.model.jobs.values() if each.state == "running"]
        for each in running[:2]:
            lease = self.model.lease(each)
            if checkpoint is not None:
                expected = partial(self.model.save, lease, checkpoint, self.now)
                self.send(commands.save(lease, checkpoint), expected, bool, "none")
            if step:
                paid = partial(self.runs.once, lease, "charge-card", b"paid", None)
                self.send(commands.once(lease, "charge-card", b"paid"), paid, lambda reply: reply, "none")
        for each in running[:1]:
            self.send_fork(each.id, data.draw(st.sampled_from(FORKS), label="new"), {}, "none")
        self.work_off(data)

    @precondition(lambda self: any(job.state in FINAL for job in self.model.jobs.values()))
    @rule(data=st.data(), force=st.booleans(), fault=strategies.faults)
    def retry_from_the_start(self, data: st.DataObject, force: bool, fault: str) -> None:
        ids = self.draw_ids(data, STATES[5:])
        command = commands.retry(ids, force=force, from_start=True)
        self.send(command, lambda: self.model.retry(ids, self.now, force=force, from_start=True), list, fault)
