"""Selecting jobs by queue and state, in the order of their last change."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import Any

from holdfast import Holdfast
from holdfast.job.job import Job
from holdfast.store.commands import Queue

MAX_SORTED = 20_000  # jobs; longer lists are merged without sorting


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
