"""The report of the doctor: one finding per check, also if all is well, or if the facts are unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.doctor.checks import CHECKS, Check
from holdfast.doctor.probe import ServerFacts
from holdfast.doctor.result import Result, server_version, unknown

LEVELS = ("ok", "note", "unknown", "warning", "danger")
REFUSED = frozenset({"version", "role", "eviction", "acl"})  # a worker refuses a server that fails one of these
ESSENTIAL = REFUSED | {"persistence", "disk", "schema"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check, with its code."""

    code: str
    level: str
    means: str
    advice: str


def run_checks(facts: ServerFacts) -> list[Finding]:
    """Return the findings of all checks, in the order of the table."""
    return [Finding(check.code, *_run(check, facts)) for check in CHECKS]


def reasons_to_refuse(facts: ServerFacts) -> list[Finding]:
    """Return the findings for which a worker refuses a server: it loses jobs in normal operation."""
    return [finding for finding in run_checks(facts) if finding.code in REFUSED and finding.level == "danger"]


def missing_persistence(facts: ServerFacts) -> Finding | None:
    """Return the finding that a server writes nothing to disk; None if it does."""
    found = (finding for finding in run_checks(facts) if finding.code == "persistence" and finding.level == "danger")
    return next(found, None)


def server_name(facts: ServerFacts) -> str:
    """Return the name and version of a server; '' if they are unknown."""
    if facts.info is None:
        return ""
    name, _, version = server_version(facts.info)
    return f"{name} {version}"


def worst_level(findings: Iterable[Finding]) -> str:
    """Return the worst level. An unknown counts as a warning if data depends on it, else as a note."""
    return max((_effective_level(finding) for finding in findings), key=LEVELS.index, default="ok")


def _effective_level(finding: Finding) -> str:
    if finding.level != "unknown":
        return finding.level
    return "warning" if finding.code in ESSENTIAL else "note"


def _run(check: Check, facts: ServerFacts) -> Result:
    if getattr(facts, check.needs) is not None:
        return check.run(facts)
    return unknown(check.about, check.needs)
