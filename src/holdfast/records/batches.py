"""Batches: named groups of jobs, and how far they are."""

from __future__ import annotations

from operator import attrgetter

from holdfast.records.progress import bar
from holdfast.records.table import Output, Record, Table, Time, changed_column, column, done_column, field, list_of

_NAME = column("batch", str, "name of the batch", attrgetter("name"), whole=True)


def batch_progress(record: Record, output: Output) -> str:
    """Return the progress of a batch; on a terminal, with a bar."""
    return " ".join(bar(record["fraction"], output)) if record["total"] else ""


CALLBACKS = Table(
    "callback",
    field("on", str, "done, succeeded or failed"),
    field("id", str, "id of the job"),
    field("task", str, "name of the task"),
    name="BatchCallback",
)
BATCHES = Table(
    "batch",
    _NAME,
    column("state", str, "open (jobs can be added), closed or done", coloured=True, whole=True),
    column("fraction", float, "how much has ended, 0 to 1", title="PROGRESS", show=batch_progress),
    column("total", int, "number of jobs, including those whose records were removed", title="JOBS", right=True),
    column("pending", int, "jobs that have not ended", right=True),
    column("succeeded", int, "jobs that succeeded", right=True),
    column("failed", int, "jobs that failed", right=True),
    column("cancelled", int, "jobs that were cancelled", right=True),
    field("created_at", Time, "when it was opened first"),
    field("closed_at", Time | None, "when it was closed"),
    field("done_at", Time | None, "when it was closed and all its jobs had ended"),
    field("cancelled_at", Time | None, "when it was cancelled"),
    field("expires_at", Time | None, "when it is removed, once it is done"),
    column("since", Time, "when it entered its state", right=True, whole=True),
    field(
        "callbacks", list_of(CALLBACKS),
        "jobs that are enqueued when it is done; of each: on (done, succeeded or failed), id, task",
        lambda status: CALLBACKS.records(status.callbacks),
    ),
)  # fmt: skip
OPENED = Table(
    "batch", _NAME, field("created", bool, "whether it is new; false if it was open already"), name="OpenedBatch"
)
CLOSED = Table(
    "batch",
    _NAME,
    column("state", str, "closed or done", coloured=True),
    changed_column(),
    name="ClosedBatch",
)
CANCELLED = Table(
    "batch",
    _NAME,
    column("state", str, "closed or done", coloured=True),
    column("cancelled", int, "jobs that were cancelled", right=True),
    column("cancelling", int, "jobs that their workers are stopping", right=True),
    name="CancelledBatch",
)
DELETED = Table("batch", _NAME, done_column("deleted"), name="DeletedBatch")
