"""Invariants of failures, checked on the keys alone: see `invariants.py`.

Each failed job is listed once by group, by fingerprint and by task, under the name that its record has or under
`other`; nobody else is. A name has jobs, and is known by the newest of them. The errors of a job are those of attempts.
"""

from __future__ import annotations

import re
import struct
from typing import Any

OTHER = "other"
FIELDS = {
    "type", "place", "task", "revision", "first", "last", "errors", "job", "attempt", "at", "description", "traceback",
}  # fmt: skip


def check(snapshot: Any) -> None:
    _check_lists(snapshot)
    _check_names(snapshot)
    for name, record in snapshot.others("fi").items():
        assert re.fullmatch(r"[\w.-]{1,32}", name), f"fingerprint {name!r}"
        assert set(record) == FIELDS, f"fingerprint {name}: {set(record) ^ FIELDS}"
        assert name in snapshot.fingerprints, f"nobody will forget fingerprint {name}"


def _check_lists(snapshot: Any) -> None:
    for kind in "gpt":
        found = sorted((id, score) for jobs in snapshot.others(f"f{kind}").values() for id, score in jobs.items())
        failed = [record for record in snapshot.jobs.values() if record.state == "failed"]
        assert found == sorted((record.id, record.since) for record in failed), f"failed jobs are not listed by {kind}"
        for name, jobs in snapshot.others(f"f{kind}").items():
            for id in jobs:
                own = _names(snapshot.jobs[id])[kind]
                assert name in (own, OTHER), f"{id} is listed under {name}, not {own}"
                assert name == own or kind in snapshot.markers.get("other", ""), f"{id}: nobody looks at {name}"


def _names(record: Any) -> dict[str, str]:
    task = record.fields["h"][7:].split(b"\0")[1]
    return {"g": record.fields["g"].decode(), "p": record.fields["v"].decode(), "t": task.decode()}


def _check_names(snapshot: Any) -> None:
    for kind in "gpt":
        newest = {name: max(jobs.values()) for name, jobs in snapshot.others(f"f{kind}").items()}
        assert snapshot.others("failed").get(kind, {}) == newest, f"names of {kind} are not those of their jobs"


def check_errors(snapshot: Any, id: str, kept: set[str]) -> None:
    """Errors are in order, of attempts that are kept in part at least, and no two in a row are the same."""
    before: tuple[int, bytes] = 0, b""
    for entry in snapshot.errors.get(id, []):
        first, last = struct.unpack(">II", entry[:8])
        fingerprint = entry[8:].partition(b"\0")[0].decode()
        assert re.fullmatch(r"[\w.-]{1,32}", fingerprint), f"{id}: fingerprint {fingerprint!r}"
        assert before[0] < first <= last, f"{id}: errors are not in order"
        assert str(last) in kept, f"{id}: an error of an attempt that is forgotten"
        assert first > before[0] + 1 or entry[8:] != before[1], f"{id}: the same error twice"
        before = last, entry[8:]
