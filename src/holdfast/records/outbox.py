"""The outbox: calls that wait on disk because the store was unreachable."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import Holdfast
from holdfast.outbox.entry import Entry
from holdfast.records.formatting import iso_time
from holdfast.records.table import Record, Table, Time, column, field
from holdfast.units import utc

OUTBOX = Table(
    "call",
    column("id", str, "id of the job that it will become", whole=True),
    column("task", str, "name of the task"),
    column("queue", str, "name of the queue"),
    column("stored_at", Time, "when it was written to disk", title="STORED"),
    column("due_at", Time | None, "when the job is due, if later", title="DUE"),
    column("refused", str | None, "why the store refused it, if it did"),
    name="OutboxCall",
)
SENT = Table(
    "call",
    field("sent", int, "number of calls that were sent and stored"),
    field("refused", int, "number of calls that the store refused"),
    name="SentCalls",
)


def outbox_records(app: Holdfast) -> list[Record]:
    """Return the calls in the order of sending; refused ones come last."""
    outbox = app.outage_policy.outbox
    waiting = [record for entry in outbox.entries() for record in _records(entry, None)]
    return waiting + [record for refused in outbox.refused() for record in _records(refused.entry, refused.reason)]


def _records(entry: Entry, refused: str | None) -> Iterator[Record]:
    """Yield the calls of one entry. Times are text, as ages would need the time of the store."""
    for id, batch in entry.calls:
        yield {
            "id": id,
            "task": batch["task"],
            "queue": batch["queue"],
            "stored_at": iso_time(utc(entry.at)),
            "due_at": iso_time(utc(batch["at"])) if "at" in batch else None,
            "refused": refused,
        }
