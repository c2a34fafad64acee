"""Findings of the doctor: what the server guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Holdfast
from holdfast.records.table import Table, column

if TYPE_CHECKING:
    from holdfast.doctor import Finding

FINDINGS = Table(
    "finding",
    column("level", str, "ok, note, unknown, warning or danger"),
    column("code", str, "what was checked; see docs/doctor.md"),
    column("means", str, "what it means"),
    column("advice", str, "what to do"),
    name="DoctorFinding",
)


def find_worst_first(app: Holdfast) -> list[Finding]:
    """Examine the server, and return the findings."""
    from holdfast.doctor import LEVELS, probe_server, run_checks

    return sorted(run_checks(probe_server(app.store)), key=lambda finding: -LEVELS.index(finding.level))
