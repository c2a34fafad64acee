"""Find things by name, and suggest similar names if nothing has the name that was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from holdfast.errors import Invalid, NotFound
from holdfast.job.job import PENDING, STATES
from holdfast.text import did_you_mean

T = TypeVar("T")

MAX_NAMES = 10  # of things that exist, in a message
STATE_NAMES = (*STATES, "pending")
FOREIGN_STATES = {  # of other queues, in lower case
    "queued": "waiting", "enqueued": "waiting", "ready": "waiting", "received": "waiting",
    "started": "running", "active": "running", "progress": "running", "processing": "running", "in_progress": "running",
    "success": "succeeded", "finished": "succeeded", "completed": "succeeded", "done": "succeeded",
    "failure": "failed", "error": "failed", "dead": "failed",
    "revoked": "cancelled", "canceled": "cancelled", "stopped": "cancelled", "aborted": "cancelled",
    "retry": "scheduled", "delayed": "scheduled", "deferred": "blocked",
}  # fmt: skip


def find(kind: str, known: Mapping[str, T], name: str) -> T:
    """Return the thing of this name.

    Raises:
        NotFound: nothing has it; the message suggests similar names.
    """
    if name in known:
        return known[name]
    existing = f"; existing {kind}s: {', '.join(sorted(known)[:MAX_NAMES])}" if known else f"; there are no {kind}s"
    raise NotFound(f"{kind} {name} does not exist{did_you_mean(name, known) or existing}")


def named_states(words: Sequence[str]) -> list[str]:
    """Return the states that words name: `a,b`, or `pending` for those before the end; all if there are no words."""
    wanted: set[str] = set()
    for word in (part.strip() for each in words for part in each.split(",")):
        if word not in STATE_NAMES:
            states = f"; expected {', '.join(STATES)}, or pending for the first five"
            known = FOREIGN_STATES.get(word.lower())
            hint = f"; did you mean {known}?" if known else did_you_mean(word, STATE_NAMES)
            raise Invalid(f"unknown state {word!r}{hint or states}")
        wanted.update(PENDING if word == "pending" else [word])
    return [state for state in STATES if state in wanted or not wanted]
