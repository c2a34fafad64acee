"""Cases of the protocol, and whether a server behaves as they say."""

from __future__ import annotations

from holdfast.records.table import Table, column, field

RESULTS = Table(
    "case",
    column("status", str, "passed, failed or skipped", coloured=True),
    column("case", str, "area and name of the case", lambda result: result.case.path, whole=True),
    column("why", str, "the first difference; why it was skipped", wraps=True),
    field("shows", str, "what the case shows", lambda result: result.case.shows),
    name="CaseResult",
)
CASES = Table(
    "case",
    column("case", str, "area and name of the case", lambda case: case.path, whole=True),
    column("shows", str, "what the case shows", wraps=True),
)
