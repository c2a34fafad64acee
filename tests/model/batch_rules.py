"""Random commands on batches: jobs come and go, they are closed, cancelled, deleted, and opened again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from holdfast.constants import MAX_BATCH
from holdfast.store import commands
from holdfast.store.commands import Callback
from tests.model import strategies
from tests.model.composition_rules import Composition
from tests.model.job import FINAL, STATES
from tests.model.machine import same
from tests.support.new_job import NewJob

CALLBACK_IDS = ["call-1", "call-2", "call-3", "call-4"]
VERBS = ["open", "open", "close", "close", "close", "cancel", "delete", "delete", "wait"]
BATCHES = strategies.BATCHES
names = st.sampled_from(BATCHES)
callbacks = st.builds(
    lambda on, id, queue, options, payload: Callback(on, id, {"queue": queue, "task": "report", **options}, payload),
    st.sampled_from(["done", "done", "succeeded", "failed"]),
    st.sampled_from([*CALLBACK_IDS, "a"]),
    strategies.queue_names,
    st.fixed_dictionaries(
        {},
        optional={
            "priority": st.just(-1),
            "delay": st.just(1000),
            "keep": st.sampled_from([False, 1000]),
            "limits": st.just(["api"]),
        },
    ),
    strategies.blobs,
)
some_callbacks = st.lists(callbacks, min_size=1, max_size=3, unique_by=lambda each: each.on)
some_states = st.lists(st.sampled_from(STATES), max_size=3)


class BatchRules(Composition):
    """One rule has all verbs: Hypothesis switches rules off at random, and each of these needs the others."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = self.model.batches
        self.known_ids |= {*CALLBACK_IDS}

    def takers(self) -> list[str]:
        """Batches that may take jobs: mostly open ones, from everyone."""
        times = {"open": 4, "closed": 3, "done": 1}
        return [name for name, batch in self.batches.all.items() for _ in range(times[batch.state])]

    def send_enqueue(self, jobs: Sequence[NewJob], on_exists: str, fault: str, *, fresh: bool = False) -> None:
        """Jobs of all kinds belong to batches, if there are some; running ones add to their own."""
        names, adder = self.takers(), None
        if names and self.compared % 3:
            chosen = [names[(self.compared + place) % len(names)] for place in range(len(jobs))]
            jobs = [msgspec.structs.replace(job, in_batch=name) for job, name in zip(jobs, chosen, strict=True)]
            running = [job.id for job in self.model.jobs.values() if job.state == "running"]
            adder = ["nobody", *running, *running][self.compared % (2 * len(running) + 1)]
        command = commands.enqueue(jobs, on_exists=on_exists, fresh=fresh, adder=adder)
        expected = lambda: self.model.enqueue(jobs, on_exists, self.now, fresh=fresh, adder=adder)  # noqa: E731
        self.send(command, expected, tuple, fault)

    @initialize(name=names, given=some_callbacks)
    def begin(self, name: str, given: list[Callback]) -> None:
        self.open_batch(name, None, given, "none")

    @rule(data=st.data(), verb=st.sampled_from(VERBS), fault=strategies.faults)
    def change_batches(self, data: st.DataObject, verb: str, fault: str) -> None:
        name = data.draw(st.sampled_from([*self.fitting(verb) * 8, *BATCHES]), label="name")
        if verb == "open":
            keep = data.draw(st.sampled_from([None, 1000, 60_000]), label="keep")
            self.open_batch(name, keep, data.draw(some_callbacks, label="callbacks"), fault)
        elif verb == "close":
            self.send(commands.close_batch(name), lambda: self.batches.close(name, self.now), bool, fault)
        elif verb == "cancel":
            reason = data.draw(strategies.reasons, label="reason")
            command = commands.cancel_batch(name, reason=reason, limit=MAX_BATCH)  # all at once
            self.send(command, lambda: self.batches.cancel(name, reason, self.now), lambda reply: reply, fault)
        elif verb == "delete":
            self.send(commands.delete_batch(name), lambda: self.batches.delete(name), lambda reply: reply, "none")
        else:
            inbox = data.draw(st.sampled_from(["me", "you"]), label="inbox")
            waiting = commands.wait_for_batch(name, inbox)
            self.send(waiting, lambda: self.batches.wait(name, inbox), lambda reply: reply, "none")

    def fitting(self, verb: str) -> list[str]:
        """Batches in a state that a verb is for; some close without members, and are done at once."""
        states = {"open": ["none"], "close": ["open"], "delete": ["done"]}.get(verb, ["open", "closed"])
        found = [name for name in BATCHES if name in self.batches.all and self.batches.all[name].state in states]
        filled = [name for name in found if self.batches.members(self.batches.all[name])]
        return [*found, *filled * 4, *(name for name in BATCHES if verb == "open" and name not in self.batches.all)]

    def open_batch(self, name: str, keep: int | None, given: list[Callback], fault: str) -> None:
        command = commands.open_batch(name, keep=keep, callbacks=given)
        self.send(command, lambda: self.batches.open(name, keep, given, self.now), bool, fault)

    @precondition(lambda self: any(job.new.in_batch for job in self.model.jobs.values()))
    @rule(data=st.data(), retry=st.sampled_from([True, True, False]), fault=strategies.faults)
    def retry_or_delete_members(self, data: st.DataObject, retry: bool, fault: str) -> None:
        """Also of batches that are done, or gone."""
        members = [job for job in self.model.jobs.values() if job.new.in_batch]
        ended = [job.id for job in members if job.state in FINAL]
        id = data.draw(st.sampled_from([*ended * 5, *[job.id for job in members]]), label="id")
        if retry:
            command = commands.retry([id], force=True)
            self.send(command, lambda: self.model.retry([id], self.now, force=True), list, fault)
        else:
            self.send(commands.delete([id]), lambda: self.model.delete([id]), list, "none")

    def compare_rows(self) -> None:
        super().compare_rows()
        found = [each for each in self.store.run(commands.get_batches(BATCHES)) if each]
        wanted = {name: self.batches.describe(batch) for name, batch in self.batches.all.items()}
        same("batches", {each["name"]: each for each in found}, wanted)
        page = self.store.run(commands.list_batches()).batches
        order = sorted(self.batches.all.values(), key=lambda batch: (batch.created, batch.name.encode()), reverse=True)
        assert [each["name"] for each in page] == [batch.name for batch in order]
