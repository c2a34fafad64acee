"""Operations: actions on all jobs that match filters."""

from __future__ import annotations

from typing import Any

from holdfast.records.table import Record, Table, Time, column, field


def filter_text(filter: Record) -> str:
    """Return a stored filter as text: states=failed queues=mail."""
    texts = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in filter.items()}
    return " ".join(f"{name}={text}" for name, text in sorted(texts.items()))


OPERATIONS = Table(
    "operation",
    column("id", str, "id of the operation", whole=True),
    column("action", str, "cancel, retry, delete, move, release, fail, tag, untag, track or untrack"),
    column("state", str, "running, done or stopped", coloured=True, whole=True),
    column("jobs", int, "number of jobs that it has acted on", lambda operation: operation.acted_on, right=True),
    column("looked_at", int, "number of jobs that it has looked at", right=True),
    column("total", int | None, "number of jobs to look at, estimated at the start", right=True),
    column("started_at", Time, "when it started", title="STARTED", right=True),
    field("updated_at", Time, "when its last step was done"),
    column("who", str, "who started it"),
    column("filter", dict[str, Any], "which jobs", show=lambda record, _: filter_text(record["filter"])),
    field("arguments", dict[str, Any], "arguments of the action"),
    field("counts", dict[str, int], "jobs by their new state, or by why they could not be changed"),
)
COUNTED_STATES = Table(
    "job",
    column("state", str, "new state, or what was done", coloured=True, whole=True),
    column("jobs", int, "number of jobs", right=True, whole=True),
    name="CountedState",
)


def counted_records(counts: dict[str, int]) -> list[Record]:
    return [{"state": state, "jobs": count} for state, count in counts.items()]
