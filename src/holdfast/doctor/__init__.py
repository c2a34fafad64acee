"""The doctor: probes a server and reports what its version and settings guarantee.

probe ──▶ ServerFacts ──▶ checks ──▶ findings
"""

from __future__ import annotations

from holdfast.doctor.checks import eviction
from holdfast.doctor.probe import ServerFacts, aprobe_server, probe_server
from holdfast.doctor.report import (
    LEVELS,
    Finding,
    missing_persistence,
    reasons_to_refuse,
    run_checks,
    server_name,
    worst_level,
)

__all__ = [
    "LEVELS",
    "Finding",
    "ServerFacts",
    "aprobe_server",
    "eviction",
    "missing_persistence",
    "probe_server",
    "reasons_to_refuse",
    "run_checks",
    "server_name",
    "worst_level",
]
