"""Invariants of the keys of operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.model.invariants import Snapshot


def check(snapshot: Snapshot) -> None:
    """Each is listed; those that run are continued; the marker says whether any does; nothing is left of the others."""
    stored = snapshot.others("op")
    assert set(stored) == set(snapshot.operations), "operations and their list differ"
    running = {id for id, fields in stored.items() if fields["state"] == b"running"}
    assert running == set(snapshot.operating), "not those operations are continued that run"
    assert bool(running) == ("operations" in snapshot.markers), "the marker of operations is wrong"
    for id in snapshot.others("acted"):
        assert stored[id]["state"] != b"done", f"{id} is done, and something is left of it"


def rows(snapshot: Snapshot) -> dict[str, tuple[Any, ...]]:
    """What is stored of each operation."""
    return {
        id: (
            fields["state"].decode(),
            int(fields["steps"]),
            int(fields["looked"]),
            {name[2:]: int(count) for name, count in fields.items() if name.startswith("n:")},
            snapshot.others("acted").get(id, set()),
            snapshot.operating.get(id),
        )
        for id, fields in snapshot.others("op").items()
    }
