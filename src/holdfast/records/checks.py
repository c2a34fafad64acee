"""Checks of the store: what was found and repaired, and how much memory each kind of key takes."""

from __future__ import annotations

from holdfast.records.table import Table, Time, column, field, list_of
from holdfast.units import humanize_size

FINDINGS = Table(
    "finding",
    column("code", str, "what was found; see docs/fsck.md", whole=True),
    column("count", int, "how often", right=True),
    column("repaired", int, "how many of them were repaired", right=True),
    column("meaning", str, "what it means", wraps=True),
    column("repair", str, "what --repair does; empty: nothing can be done", wraps=True),
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
_MEMORY_BY_KIND = "memory of these keys; of each kind: kind, bytes, keys, measured"

CHECK = Table(
    "check",
    field("next", str | None, "cursor with which the check continues; null: it is over"),
    field("is_healthy", bool, "whether nothing was found so far, or everything was repaired"),
    field("keys", int, "number of keys that were checked so far"),
    field("entries", int, "number of entries of these keys"),
    field("seconds", float, "time that it took so far"),
    field(
        "findings", list_of(FINDINGS),
        "what was found so far; of each: code, count, repaired, meaning, repair, examples",
        lambda report: FINDINGS.records(report.findings),
    ),
    field("memory", list_of(MEMORY), _MEMORY_BY_KIND, lambda report: MEMORY.records(report.memory)),
    name="ConsistencyCheck",
)  # fmt: skip
MEMORY_MEASUREMENT = Table(
    "measurement",
    field("next", str | None, "cursor with which the measurement continues; null: it is over"),
    field("keys", int, "number of keys that were looked at so far"),
    field("memory", list_of(MEMORY), _MEMORY_BY_KIND, lambda report: MEMORY.records(report.memory)),
    name="MemoryMeasurement",
)
CHECK_HISTORY = Table(
    "history",
    field("passes", int, "how often upkeep has checked all keys"),
    field("began_at", Time | None, "when the last complete pass began"),
    field("finished_at", Time | None, "when it was complete"),
    field(
        "findings", list_of(HISTORY), "what was found; of each: code, count, repaired, last_at, meaning, example",
        lambda history: HISTORY.records(history.findings),
    ),
    name="CheckHistory",
)  # fmt: skip
