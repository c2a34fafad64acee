"""Checks of the store: what was found and repaired, and how much memory each kind of key takes."""

from __future__ import annotations

from holdfast.records.table import Table, Time, column, field
from holdfast.units import humanize_size

FINDINGS = Table(
    "finding",
    column("code", str, "what was found; see docs/fsck.md", whole=True),
    column("count", int, "how often", right=True),
    column("repaired", int, "how many of them were repaired", right=True),
    column("meaning", str, "what it means", wraps=True),
    column("repair", str, "what a repair does; empty: nothing can be done", wraps=True),
    column("examples", list[str], "up to 5 jobs or keys", wraps=True),
    name="CheckFinding",
)
MEMORY = Table(
    "kind of key",
    column("kind", str, "what the keys contain", lambda use: use.name, whole=True),
    column(
        "bytes", int, "estimated bytes of memory", lambda use: use.estimate, right=True,
        show=lambda row, output: humanize_size(row["bytes"]) if output.on_terminal else row["bytes"],
    ),
    column("keys", int, "number of keys", right=True),
    field("measured", int, "how many of the keys were measured"),
    name="MemoryUse",
)  # fmt: skip
HISTORY = Table(
    "finding",
    column("code", str, "what was found; see docs/fsck.md", whole=True),
    column("count", int, "how often", right=True),
    column("repaired", int, "how many of them were repaired", right=True),
    column("last_at", Time, "when it was found last", title="LAST"),
    column("meaning", str, "what it means", wraps=True),
    column("example", str, "the job or key that was found last", wraps=True),
    name="PastFinding",
)
