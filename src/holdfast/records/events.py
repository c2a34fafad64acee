"""Events: what happened to jobs, queues and workers."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.events.event import Event, Marks
from holdfast.records.formatting import iso_time
from holdfast.records.table import Output, Record, Table, Time, column, field


def _distinct(event: Event) -> list[str]:
    return list(dict.fromkeys(queue for queue in event.queues if queue))


def _details_text(record: Record, _: Output) -> str:
    """Return the details that all jobs share, or those of the first and how many others there are."""
    found = list(dict.fromkeys(" ".join(f"{key}={value}" for key, value in each.items()) for each in record["details"]))
    return f"{found[0]} ..." if len(found) > 1 else "".join(found)


def _marks(event: Event) -> list[Any]:
    return [msgspec.to_builtins(marks) for marks in event.marks]


EVENTS = Table(
    "event",
    field("event", str, "id of the event; what happened later is read after it", lambda event: event.id),
    column("at", Time, "when it happened", show=lambda record, _: iso_time(record["at"])),
    column("type", str, "what happened", coloured=True),
    column("who", str, "worker, executor or client that caused it"),
    column("queues", list[str], "queues of the jobs, each once", _distinct),
    column("jobs", list[str], "ids of the jobs, or names of what the event is about"),
    column("details", list[dict[str, str]], "details of each job, by name; see docs/events.md", show=_details_text),
    field("marks", list[Marks], "tags, scope, batch and tracked of each job, if any has some", _marks),
)
