"""Explanations: why jobs are not running."""

from __future__ import annotations

from typing import Any

from holdfast.job.explanation import Explanation
from holdfast.records.table import Record, Table, Time, column, field, list_of

REASONS = Table(
    "reason",
    field("code", str, "the reason; see docs/why.md"),
    field("text", str, "why the job is not running, as a sentence"),
    field("facts", dict[str, Any], "the facts of the reason, by name"),
    field("until", Time | None, "when it ends, if it is known"),
    field("hint", str, "the command that would help, if any"),
)
EXPLANATIONS = Table(
    "job",
    column("id", str, "id of the job", whole=True),
    column("state", str, "state of the job", coloured=True, whole=True),
    column("text", str, "why it is not running, as a sentence", title="WHY", wraps=True, volatile=True),
    column("hint", str, "the command that would help, if any", title="DO", wraps=True),
    field("code", str, "the reason that matters most; see docs/why.md"),
    field("facts", dict[str, Any], "the facts of that reason, by name", volatile=True),
    field("since", Time | None, "when the job entered its state"),
    field("until", Time | None, "when that reason ends, if it is known", volatile=True),
    field("queue", str, "name of its queue"),
    field("task", str, "name of its task"),
    field("ready", bool, "whether the next claim of a suitable worker takes it"),
    field("ahead", int, "number of jobs of its queue that start before it"),
    field(
        "also", list_of(REASONS), "further reasons; of each: code, text, facts, until, hint",
        lambda found: REASONS.records(found.also),
    ),
    name="Explanation",
)  # fmt: skip


def explanation_record(found: Explanation | None) -> Record | None:
    return None if found is None else EXPLANATIONS.record(found)
