"""Upkeep: due timers that were processed."""

from __future__ import annotations

from holdfast.records.table import Table, column, field

UPKEEP = Table(
    "timer",
    column(
        "processed", int, "number of due jobs, schedules, deadlines, leases and limits that were processed", right=True
    ),
    field("overdue", int, "number that could not be processed"),
    name="Upkeep",
)
