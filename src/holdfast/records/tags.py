"""Tags, scopes and tracked jobs."""

from __future__ import annotations

from holdfast.client.tags import TrackedJobs
from holdfast.records.table import Record, Table, Time, column

_JOBS = column("jobs", int, "number of jobs whose records are kept, in any state", right=True, whole=True)
TAGS = Table("tag", column("tag", str, "the tag", whole=True), _JOBS)
SCOPES = Table("scope", column("scope", str, "path of the scope", whole=True), _JOBS)
MARKED = Table(
    "job",
    column("id", str, "id of the job", whole=True),
    column("done", str, "tagged, untagged, tracked, untracked or unchanged; refusals are printed to standard error"),
    name="MarkedJob",
)
TRACKED = Table(
    "job",
    column("id", str, "id of the job", whole=True),
    column("task", str | None, "name of the task"),
    column("queue", str | None, "name of the queue"),
    column(
        "state", str, "its state; deleted if its record is gone, and then all other fields are null", coloured=True,
        whole=True,
    ),
    column("since", Time | None, "when it entered its state", right=True, whole=True),
    column("tags", list[str] | None, "its tags", show=lambda record, _: ", ".join(record["tags"] or ())),
    name="TrackedJob",
)  # fmt: skip


def tag_records(counts: dict[str, int]) -> list[Record]:
    return [{"tag": tag, "jobs": jobs} for tag, jobs in counts.items()]


def scope_records(counts: dict[str, int]) -> list[Record]:
    return [{"scope": path, "jobs": jobs} for path, jobs in counts.items()]


def tracked_records(found: TrackedJobs) -> list[Record]:
    """Return the tracked jobs, then those that were deleted."""
    return [*TRACKED.records(found.jobs), *map(_deleted, found.deleted)]


def _deleted(id: str) -> Record:
    return {**dict.fromkeys(TRACKED.help), "id": id, "state": "deleted"}
