"""Invariants of tags, scopes and tracked jobs: what `marks.lua` promises of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.model.invariants import Record, Snapshot

INDEXED = 8192


class Marks(NamedTuple):
    """What the record of a job says that it is found by."""

    tags: tuple[str, ...]
    scope: str
    batch: str
    tracked: bool


def read_marks(snapshot: Snapshot, record: Record) -> Marks:
    text = record.fields.get("t", b"")
    lines = (snapshot.blobs["m", record.id] if text == b">" else text).decode().split("\n")
    tags = tuple(line[1:] for line in lines if line.startswith("#"))
    scope, batch = ("".join(line for line in lines if line.startswith(letter)) for letter in "/=")
    return Marks(tags, scope, batch[1:], "!" in lines)


def paths_of(scope: str) -> list[str]:
    """Return the paths that a scope is indexed under."""
    parts = scope.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts) + 1)]


def check(snapshot: Snapshot) -> None:
    """Each index has the jobs whose records say so, and each catalogue the size of each index."""
    tags: dict[str, set[str]] = {}
    scopes: dict[str, set[str]] = {}
    tracked = set()
    for id, record in snapshot.jobs.items():
        assert ("t" in record.fields) == bool(record.flags & INDEXED), f"{id}: marks"
        marks = read_marks(snapshot, record)
        assert len(set(marks.tags)) == len(marks.tags) <= 32, f"{id}: tags"
        for tag in marks.tags:
            tags.setdefault(tag, set()).add(id)
        for path in paths_of(marks.scope):
            scopes.setdefault(path, set()).add(id)
        if marks.tracked:
            tracked.add(id)
    assert _ids(snapshot, "tag") == tags, "indexes of tags differ from the records"
    assert _ids(snapshot, "scope") == scopes, "indexes of scopes differ from the records"
    assert set(snapshot.tracked) == tracked, "other jobs are tracked than the records say"
    assert not set(snapshot.untracked) & tracked, "a tracked job is called gone"
    assert len(snapshot.untracked) <= 1000, "too many jobs that were tracked"
    assert snapshot.tags == {tag: len(ids) for tag, ids in tags.items()}, "sizes of tags"
    found = {f"{parent}/{part}": size for parent, parts in _catalogues(snapshot) for part, size in parts.items()}
    assert found == {path: len(ids) for path, ids in scopes.items()}, "sizes of scopes"
    for path, members in snapshot.others("scope").items():
        for id, score in members.items():
            assert score == snapshot.jobs[id].created, f"{id}: its place in scope {path}"


def _ids(snapshot: Snapshot, family: str) -> dict[str, set[str]]:
    return {name: set(members) for name, members in snapshot.others(family).items()}


def _catalogues(snapshot: Snapshot) -> list[tuple[str, dict[str, float]]]:
    return [("", snapshot.scopes), *snapshot.others("scopes").items()]
