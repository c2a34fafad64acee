"""Operations: actions on all jobs that match filters."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.client.filters import FILTERS, Filter
from holdfast.client.operations import Operation
from holdfast.records.formatting import iso_time
from holdfast.records.table import Record, Table, Time, column, field
from holdfast.units import utc


def _given(operation: Operation) -> Record:
    """Return the filter of an operation with the names that users give, so that they can give it again."""
    return {
        each.name: _value(each, operation.filter[each.stored]) for each in FILTERS if each.stored in operation.filter
    }


def _value(each: Filter, stored: Any) -> Any:
    return utc(stored) if each.metavar == "TIME" else stored


def filter_text(filter: Record) -> str:
    """Return a filter as text: state=failed queue=mail."""
    return " ".join(f"{name}={_text(value)}" for name, value in sorted(filter.items()))


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return iso_time(value)
    return ",".join(value) if isinstance(value, list) else str(value)


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
    column("filter", dict[str, Any], "which jobs", _given, show=lambda record, _: filter_text(record["filter"])),
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
