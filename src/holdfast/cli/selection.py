"""Selecting jobs by queue and state, in the order of their last change."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import Any

from holdfast import Holdfast
from holdfast.errors import Invalid
from holdfast.job.job import PENDING, STATES, Job
from holdfast.store.commands import Queue
from holdfast.text import did_you_mean

STATE_NAMES = (*STATES, "pending")
FOREIGN_STATES = {  # of other queues, in lower case
    "queued": "waiting", "enqueued": "waiting", "ready": "waiting", "received": "waiting",
    "started": "running", "active": "running", "progress": "running", "processing": "running", "in_progress": "running",
    "success": "succeeded", "finished": "succeeded", "completed": "succeeded", "done": "succeeded",
    "failure": "failed", "error": "failed", "dead": "failed",
    "revoked": "cancelled", "canceled": "cancelled", "stopped": "cancelled", "aborted": "cancelled",
    "retry": "scheduled", "delayed": "scheduled", "deferred": "blocked",
}  # fmt: skip
MAX_SORTED = 20_000  # jobs; longer lists are merged without sorting


def read_states(words: Sequence[str]) -> list[str]:
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


def count_jobs(queues: Sequence[Queue], states: Sequence[str]) -> int:
    return sum(queue.counts[state] for queue in queues for state in states)


def select_jobs(
    app: Holdfast, queues: Sequence[Queue], states: Sequence[str], *, newest: bool, limit: int | None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Job[Any]]:  # fmt: skip
    """Return the jobs of some queues in some states that match `more` filters, ordered by their last change.

    The store lists each queue and state separately, some by other times, so the lists are sorted here. Long lists are
    merged as they arrive; then the order is approximate.
    """
    pairs = [(queue.name, state) for queue in queues for state in states if queue.counts[state]]
    lists = [app.list(queue=name, state=state, newest=newest, limit=limit, **more) for name, state in pairs]
    if len(lists) == 1:
        return lists[0]
    if limit is not None or count_jobs(queues, states) <= MAX_SORTED:
        return iter(sorted(chain(*lists), key=_since, reverse=newest)[:limit])
    return heapq.merge(*lists, key=_since, reverse=newest)


def _since(job: Job[Any]) -> datetime:
    return job.since
