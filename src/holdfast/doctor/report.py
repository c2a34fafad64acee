"""The doctor: what a server's version and settings guarantee, and what to do about it. Pure: it goes by `Facts`.

    facts ──▶ one judgement per row of CHECKS ──▶ findings

Every check makes one finding, also if all is well, and also if the server does not tell: then its level is `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.doctor import checks
from holdfast.doctor.checks import QUESTIONS, Judgement, unknown
from holdfast.doctor.probe import Facts

LEVELS = ("ok", "note", "unknown", "warning", "danger")


@dataclass(frozen=True, slots=True)
class Finding:
    """A judgement, under the word that it is known by."""

    code: str
    level: str
    means: str
    advice: str


class Check(NamedTuple):
    """A row of the table: without the fact that it `needs`, what it is `about` cannot be known."""

    code: str
    judge: Callable[[Facts], Judgement]
    needs: str
    about: str


def examine(facts: Facts) -> list[Finding]:
    """Return a finding for each check, in the order of the table."""
    return [Finding(check.code, *_judge(check, facts)) for check in CHECKS]


def refusals(facts: Facts) -> list[Finding]:
    """Return what makes a worker refuse a server: it would lose jobs, not only in a disaster."""
    return [finding for finding in examine(facts) if finding.code in REFUSED and finding.level == "danger"]


def forgets(facts: Facts) -> Finding | None:
    """Return what is to be said of a server that writes nothing to disk; of any other, nothing."""
    found = (finding for finding in examine(facts) if finding.code == "persistence" and finding.level == "danger")
    return next(found, None)


def server_name(facts: Facts) -> str:
    """Return the kind and version of a server; '' if it does not tell."""
    if facts.info is None:
        return ""
    name, _, version = checks.flavour(facts.info)
    return f"{name} {version}"


def worst(findings: Iterable[Finding]) -> str:
    """Return the worst level. What could not be known is a warning if data depends on it, else a note."""
    return max((_weight(finding) for finding in findings), key=LEVELS.index, default="ok")


def _weight(finding: Finding) -> str:
    if finding.level != "unknown":
        return finding.level
    return "warning" if finding.code in ESSENTIAL else "note"


def _judge(check: Check, facts: Facts) -> Judgement:
    if getattr(facts, check.needs) is not None:
        return check.judge(facts)
    return unknown(check.about, *QUESTIONS[check.needs])


CHECKS = (
    Check("version", checks.version, "info", "Which version this is"),
    Check("role", checks.role, "info", "Whether this is a replica"),
    Check("cluster", checks.cluster, "info", "Whether this is a cluster"),
    Check("persistence", checks.persistence, "info", "What a power cut or a kill -9 loses"),
    Check("disk", checks.disk, "info", "Whether writes to disk failed"),
    Check("truncated", checks.truncated, "info", "What a torn file does at the next start"),
    Check("replicas", checks.replicas, "info", "What a failover loses"),
    Check("acl", checks.acl, "info", "Whether a restart loses what functions wrote"),
    Check("eviction", checks.eviction, "info", "Whether a full server evicts jobs"),
    Check("memory", checks.memory, "info", "How much memory is left"),
    Check("pages", checks.pages, "settings", "Whether the server uses huge pages"),
    Check("lazyfree", checks.lazyfree, "settings", "How large values are freed"),
    Check("clients", checks.clients, "info", "How many clients are connected"),
    Check("access", checks.access, "host", "Who gets in without a password"),
    Check("clock", checks.clock, "clock", "What time it is on the server"),
    Check("latency", checks.latency, "ping", "How long a call takes"),
    Check("libraries", checks.libraries, "libraries", "Whether there are function libraries of other releases"),
    Check("schema", checks.schema, "schema", "Whether this release can read the data"),
    Check("limits", checks.limits, "undefined_limits", "Whether jobs take part in limits that nobody has defined"),
)
REFUSED = frozenset({"version", "role", "eviction", "acl"})
ESSENTIAL = REFUSED | {"persistence", "disk", "schema"}
