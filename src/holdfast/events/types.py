"""Every type of event, declared once: the Lua library, the reader of the stream and the documentation follow it.

The texts of an event's `details` are stored by position, so new ones are added at the end.
"""

from __future__ import annotations

from typing import NamedTuple


class EventType(NamedTuple):
    """A type of event: its name, what it is about, what it means, and the names of its details."""

    name: str
    about: str  # `job`, or what the names in `jobs` stand for
    meaning: str
    details: tuple[str, ...] = ()


GAP = "gap"  # made by readers: the stream no longer has the events between the last one read and the next

TYPES = (
    EventType("enqueued", "job", "a job was stored"),
    EventType("claimed", "job", "an executor leased a job and starts an attempt"),
    EventType("saved", "job", "a running job saved a checkpoint, progress, notes or fields"),
    EventType("succeeded", "job", "a job ended with a result"),
    EventType("failed", "job", "a job ended as failed", ("group", "why")),
    EventType("cancelled", "job", "a job ended as cancelled", ("by", "reason")),
    EventType("cancelling", "job", "a running job was requested to stop", ("reason",)),
    EventType("retried", "job", "a job runs again: after an error, or because somebody asked for it"),
    EventType("released", "job", "an attempt ended without a charge, and its job was requeued"),
    EventType("timeout", "job", "an attempt ran longer than the job's `timeout`, and was stopped"),
    EventType("stalled", "job", "an attempt made no progress for longer than the job's `stalled`, and was stopped"),
    EventType("crashed", "job", "the process of an attempt died"),
    EventType("lost", "job", "the lease of an attempt expired, or its worker died"),
    EventType("moved", "job", "a job has another queue or priority", ("from", "to", "priority")),
    EventType("advanced", "job", "a job goes on as another call", ("from", "to", "from_task", "to_task")),
    EventType("forked", "job", "a new job starts from what this one has saved", ("into",)),
    EventType("unblocked", "job", "the dependencies of a job are met"),
    EventType("tracked", "job", "somebody tracks a job"),
    EventType("untracked", "job", "a job is no longer tracked"),
    EventType("batch_done", "batch", "a batch is closed and all its jobs have ended"),
    EventType("deleted", "job", "an ended job was deleted, or a job was replaced"),
    EventType("fired", "schedule", "a schedule enqueued jobs"),
    EventType(
        "paused", "queue, schedule or subscription", "a queue, a schedule or a subscription was paused", ("what",)
    ),
    EventType("resumed", "queue, schedule or subscription", "it was resumed", ("what",)),
    EventType(
        "configured",
        "queue, limit, schedule or subscription",
        "a setting, a share, a limit, a schedule or a subscription was changed; `*` stands for all queues",
        ("what", "option", "value"),
    ),
    EventType("rewound", "worker", "the server lost its last writes, as a worker noticed"),
)
BY_NAME = {each.name: each for each in TYPES}


def as_lua() -> str:
    """Return the number of details of each type as a Lua table."""
    return f"local event_types = {{ {', '.join(f'{each.name} = {len(each.details)}' for each in TYPES)} }}"
