"""Random commands that read failures, and the comparison of what the store keeps of them with the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.job.failures import FailureGroup, FailuresBy
from holdfast.store import commands
from tests.model.attempt_rules import Asking
from tests.model.failures import KINDS
from tests.model.machine import same
from tests.model.strategies import QUEUES


class Failing(Asking):
    """Rules that ask for failures."""

    @rule(
        by=st.sampled_from(["group", "fingerprint", "task", "queue"]),
        queue=st.none() | st.sampled_from(QUEUES),
        limit=st.sampled_from([1, 2, 500]),
    )
    def list_failures(self, by: FailuresBy, queue: str | None, limit: int) -> None:
        chosen = None if by == "queue" else queue
        groups = self._read_failures(by, chosen, limit)
        rows = self.model.failures.rows(by, chosen)
        counts: dict[str, int] = {}
        for group in groups:
            counts[group.name] = counts.get(group.name, 0) + group.count
        same("failures", counts, {name: row[0] for name, row in rows.items()})
        if chosen is None:
            assert len(groups) == len(rows), f"a name twice: {groups}"
            self._check_groups(by, groups)

    def _read_failures(self, by: FailuresBy, queue: str | None, limit: int) -> list[FailureGroup]:
        found: list[FailureGroup] = []
        cursor: Sequence[str] | None = None
        while True:
            page = self.store.run(commands.failures(by, queue=queue, limit=limit, cursor=cursor))
            found += page.groups
            cursor = page.cursor
            if cursor is None:
                return found

    def _check_groups(self, by: FailuresBy, groups: list[FailureGroup]) -> None:
        rows = self.model.failures.rows(by)
        lasts = [rows[group.name][2] for group in groups]
        assert by == "queue" or lasts == sorted(lasts, reverse=True), f"the newest is not first: {groups}"
        for group in groups:
            _, first, last, examples = rows[group.name]
            assert group.example in examples, f"{group} is not of {examples}"
            known = self.model.failures.seen.get(group.name) if by == "fingerprint" else None
            wanted = (known.first, known.last) if known else (first, last)
            assert group.first_seen
            assert group.last_seen
            seen = round(group.first_seen.timestamp() * 1000), round(group.last_seen.timestamp() * 1000)
            assert seen == wanted, f"{group} was seen {wanted}"
            assert group.errors == (known.errors if known else 0), f"{group}"

    @rule(data=st.data())
    def look_at_a_fingerprint(self, data: st.DataObject) -> None:
        names = [*self.model.failures.seen, *self.model.failures.names("p"), "nobody"]
        name = data.draw(st.sampled_from(names), label="fingerprint")
        found = self.store.run(commands.failure(name))
        known, jobs = self.model.failures.seen.get(name), self.model.failures.names("p").get(name, {})
        assert (found is None) == (known is None and not jobs), name
        if found is None:
            return
        assert (found.count, found.errors) == (len(jobs), known.errors if known else 0)
        if known:
            assert found.traceback_of in {(each.job, each.attempt) for each in known.examples}
            assert found.traceback in {each.traceback for each in known.examples}

    def compare_keys(self, snapshot: Any) -> None:
        super().compare_keys(snapshot)
        for kind in KINDS:
            names = self.model.failures.names(kind)
            same(f"failed jobs by {kind}", snapshot.others(f"f{kind}"), names)
            newest = {name: max(jobs.values()) for name, jobs in names.items()}
            same(f"names of {kind}", snapshot.others("failed").get(kind, {}), newest)
        assert self.model.failures.capped() <= set(snapshot.markers.get("other", "")), "a name is `other` in secret"
        records = snapshot.others("fi")
        assert set(records) == set(self.model.failures.seen), "fingerprints differ"
        for name, record in records.items():
            self.model.failures.check_record(name, record)
        same("fingerprints by age", snapshot.fingerprints, self.model.failures.order)
