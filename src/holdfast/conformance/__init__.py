"""The protocol as data: cases and encodings in JSON files, and a small client that runs the cases on a server.

cases ──▶ runner ──▶ session ──▶ connection        values and state: how a case writes replies, and what is stored
"""

from __future__ import annotations

from holdfast.conformance.cases import Area, Case, find_cases, load_areas, load_vectors
from holdfast.conformance.connection import Connection, Refusal, open_connection
from holdfast.conformance.runner import Result, Run
from holdfast.conformance.session import Session

__all__ = [
    "Area", "Case", "Connection", "Refusal", "Result", "Run", "Session", "find_cases", "load_areas", "load_vectors",
    "open_connection",
]  # fmt: skip
