"""What actions on jobs answer."""

from __future__ import annotations

from typing import Any

from holdfast.records.table import Table, column, field

_ID = column("id", str, "id of the job", whole=True)

ENQUEUED = Table(
    "job",
    column("id", str, "id of the job"),
    field("created", bool, "whether it was stored now; false if a job with this id existed"),
    name="EnqueuedJob",
)
FORKED = Table(
    "job",
    column("id", str, "id of the new job", whole=True),
    column("state", str, "its state", coloured=True, whole=True),
    field("forked_from", str, "id of the job that it was forked from"),
    field("created", bool, "whether it was stored now; false if this fork existed"),
    name="ForkedJob",
)
CHANGED_JOBS = Table(
    "job",
    _ID,
    column("state", str, "its new state, or deleted; refusals are printed to standard error", coloured=True),
    name="ChangedJob",
)
ENDED_JOBS = Table(
    "job",
    _ID,
    column("state", str, "succeeded, failed or cancelled", coloured=True),
    name="EndedJob",
)
ATTACHED = Table(
    "job",
    field("id", str, "id of the job"),
    field("fields", dict[str, str], "all fields attached to it, by name"),
    name="AttachedFields",
)
NOTED = Table("job", _ID, column("note", str, "text of the note"), name="AddedNote")
STACK = Table(
    "job",
    field("id", str, "id of the job"),
    field("stack", str, "its stacks, as text of several lines"),
    name="JobStack",
)
CALLED = Table("call", field("value", Any, "what the function returned"), name="CalledFunction")
