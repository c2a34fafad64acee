"""Findings of the doctor: what the server guarantees."""

from __future__ import annotations

from holdfast.records.table import Table, column

FINDINGS = Table(
    "finding",
    column("level", str, "ok, note, unknown, warning or danger"),
    column("code", str, "what was checked; see docs/doctor.md"),
    column("means", str, "what it means"),
    column("advice", str, "what to do"),
    name="DoctorFinding",
)
