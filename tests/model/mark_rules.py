"""Random commands on tags, scopes and tracked jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.constants import MAX_BATCH
from holdfast.job.outcome import Advanced
from holdfast.store import commands
from holdfast.store.commands import CountsReply, Finish, Lease
from tests.model import strategies
from tests.model.job import STATES
from tests.model.job_rules import Rules
from tests.support.new_job import NewJob


class Marking(Rules):
    @rule(data=st.data(), tags=strategies.tags, fault=strategies.faults)
    def tag_or_untag(self, data: st.DataObject, tags: list[str], fault: str) -> None:
        ids, marks = self.draw_ids(data, STATES), self.model.marks
        if data.draw(st.booleans(), label="tag"):
            self.send(commands.tag(ids, tags), lambda: [marks.tag(id, tags, self.now) for id in ids], list, fault)
        else:
            self.send(commands.untag(ids, tags), lambda: [marks.untag(id, tags) for id in ids], list, fault)

    @rule(data=st.data(), fault=strategies.faults)
    def track_or_untrack(self, data: st.DataObject, fault: str) -> None:
        ids, marks = self.draw_ids(data, STATES), self.model.marks
        if data.draw(st.booleans(), label="track"):
            self.send(commands.track(ids), lambda: [marks.track(id, self.now) for id in ids], list, fault)
        else:
            ids += sorted(marks.deleted)[:2]
            self.send(commands.untrack(ids), lambda: [marks.untrack(id) for id in ids], list, fault)

    @precondition(lambda self: self.is_busy)
    @rule(data=st.data(), tags=strategies.tags | st.just([]), remove=strategies.tags | st.just([]))
    def tag_from_inside(self, data: st.DataObject, tags: list[str], remove: list[str]) -> None:
        executor = self.draw_executor(data)
        held = Lease(executor, *self.draw_leases(data, executor)[0])
        said: dict[str, Any] = {"remove": remove, "created": self.draw_created(data, held.id)}
        marks = self.model.marks
        self.send(
            commands.tag_held(held, tags, **said),
            lambda: marks.tag_held(held, tags, now=self.now, **said),
            tuple,
            "none",
        )

    @rule(
        data=st.data(),
        jobs=st.lists(strategies.plain_jobs, min_size=1, max_size=3, unique_by=lambda job: job.id),
        tags=strategies.tags,
        stage=strategies.stages,
    )
    def mark_and_continue(
        self, data: st.DataObject, jobs: list[NewJob], tags: list[str], stage: dict[str, Any]
    ) -> None:
        """Jobs are tagged and tracked; then they are replaced, or go on as another call."""
        marked = [msgspec.structs.replace(job, tags=tuple(tags)) for job in jobs]
        self.send_enqueue(marked, "replace", "none")
        ids, marks = [job.id for job in jobs], self.model.marks
        self.send(commands.track(ids), lambda: [marks.track(id, self.now) for id in ids], list, "none")
        if data.draw(st.booleans(), label="replace"):
            self.send_enqueue(jobs, "replace", "none")
            return
        executor = data.draw(st.sampled_from(strategies.EXECUTORS), label="executor")
        self.send_claim(executor, self.next_request(data, executor), "none")
        stage = {"tags": data.draw(strategies.tags, label="tags"), **stage}
        items = [Finish(job.id, job.attempt, Advanced("next", stage, b"")) for job in self.model.held(executor)[:5]]
        self.send_finish(executor, items, None, "none")

    @rule(least=st.integers(1, 3), limit=st.integers(1, 4))
    def read_tags(self, least: int, limit: int) -> None:
        """The most used ones, page by page, and what is asked for by name."""
        counts = {tag: len(jobs) for tag, jobs in self.model.marks.by_tag().items()}
        wanted = {tag: jobs for tag, jobs in counts.items() if jobs >= least}
        found: list[tuple[str, int]] = []
        while page := self.store.run(commands.tags(min=least, limit=limit, skip=len(found))).jobs:
            found += page.items()
        assert Counter(found) == Counter(wanted.items()), f"tags are {found}, not {wanted}"
        assert [jobs for _, jobs in found] == sorted(wanted.values(), reverse=True), "the most used come first"
        named = self.store.run(commands.tag_counts([*strategies.TAGS, "none"]))
        assert named == [*(counts.get(tag, 0) for tag in strategies.TAGS), 0]

    @rule(scope=st.sampled_from([None, *strategies.SCOPES, "/none"]))
    def read_scopes(self, scope: str | None) -> None:
        found: CountsReply = self.store.run(commands.scopes(scope))
        assert found == self.model.marks.scopes(scope)

    @rule()
    def read_tracked(self) -> None:
        total, ids, deleted = self.store.run(commands.tracked(limit=MAX_BATCH))
        wanted = self.model.marks.tracked()
        assert (total, set(ids), set(deleted)) == (len(wanted), set(wanted), self.model.marks.deleted)
        assert [wanted[id] for id in ids] == sorted(wanted.values(), reverse=True)
