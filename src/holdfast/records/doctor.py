"""Findings of the doctor: what the server guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Holdfast
from holdfast.records.table import Table, column

if TYPE_CHECKING:
    from holdfast.doctor import Finding, ServerFacts

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
    from holdfast.doctor import probe_server

    return worst_first(probe_server(app.store))


async def afind_worst_first(app: Holdfast) -> list[Finding]:
    from holdfast.doctor import aprobe_server

    return worst_first(await aprobe_server(app.async_store))


def worst_first(facts: ServerFacts) -> list[Finding]:
    from holdfast.doctor import LEVELS, run_checks

    return sorted(run_checks(facts), key=lambda finding: -LEVELS.index(finding.level))
