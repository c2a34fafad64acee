"""What needs attention: sentences, each with what it is about and the command that would help."""

from __future__ import annotations

from typing import Any

from holdfast.records.table import Table, Time, column, field

ATTENTION = Table(
    "matter",
    column("level", str, "danger, warning or note", coloured=True),
    column("text", str, "what is wrong, as a sentence", wraps=True),
    column("detail", str, "more about it", wraps=True),
    field("code", str, "failing, unserved, behind, paused, silent, stalled, overdue, or server"),
    field("kind", str, "what it is about: queue, failure, worker, server, or all"),
    field("name", str, "name of the queue or worker, fingerprint, or code of a finding"),
    field("queue", str | None, "queue that it concerns, if it is one"),
    field("since", Time | None, "since when, if that is known"),
    field("command", str, "the command that helps, or that shows more"),
    field("facts", dict[str, Any], "the facts of the sentence, by name"),
    name="Attention",
)
