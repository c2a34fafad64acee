"""Invariants of batches: what `batches.lua` promises of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model import mark_invariants

if TYPE_CHECKING:
    from tests.model.invariants import Snapshot

FINAL = {"succeeded", "failed", "cancelled"}


def check(snapshot: Snapshot) -> None:
    """Open are the members that have not ended; and a batch is done once it is closed and has no such member."""
    records = snapshot.others("b")
    assert set(snapshot.batches) == set(records), "batches and their list differ"
    states = {name: fields["state"].decode() for name, fields in records.items()}
    assert set(snapshot.batches_done) == {name for name, state in states.items() if state == "done"}, "what is done"
    assert bool(snapshot.batches_ending) == ("ending" in snapshot.markers), "whether batches wait for their end"
    assert ("batches" in snapshot.markers) == bool(records), "whether there are batches"
    indexes, open_members = snapshot.others("batch"), snapshot.others("bo")
    assert set(indexes) | set(open_members) <= set(records), "members of a batch that does not exist"
    for name, state in states.items():
        members = indexes.get(name, {})
        for id, score in members.items():
            record = snapshot.jobs[id]
            assert mark_invariants.read_marks(snapshot, record).batch == name, f"{id} is not of batch {name}"
            assert score == record.created, f"{id}: its place in batch {name}"
        pending = {id for id in members if snapshot.jobs[id].state not in FINAL}
        assert open_members.get(name, set()) == pending, f"open members of {name}"
        assert state in ("open", "done") or pending or name in snapshot.batches_ending, (
            f"{name} is closed and has no open member, but is not done"
        )
        counts = [int(records[name].get(state, b"0")) for state in FINAL]
        assert all(count >= 0 for count in counts), f"{name} counts {counts}"
        ended = sum(snapshot.jobs[id].state in FINAL for id in members)
        assert sum(counts) >= ended, f"{name} counts {counts}, and {ended} ended members have a record"
