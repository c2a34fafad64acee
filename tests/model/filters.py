"""Filters, as a predicate in plain Python: the rules at the head of `filters.lua`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.model.job import Job

if TYPE_CHECKING:
    from tests.model.core import Core

Filter = dict[str, Any]
TIMED = ("running", "succeeded", "failed", "cancelled")  # states whose indexes have the time of the change


def absolute(filter: Filter, now: int) -> Filter:
    """Times that count from now, as times."""
    given = dict(filter)
    for name in ("since", "until"):
        if given.get(name, 0) < 0:
            given[name] += now
    return given


def matches(model: Core, job: Job, filter: Filter, now: int) -> bool:
    given = absolute(filter, now)
    tests: dict[str, Callable[[Any], bool]] = {
        "states": lambda states: job.state in states,
        "queues": lambda queues: job.new.queue in queues,
        "task": lambda task: job.new.task == task,
        "group": lambda group: job.group == group[:64],
        "since": lambda time: job.since >= time,
        "until": lambda time: job.since <= time,
        "id_prefix": job.id.startswith,
        "worker": lambda worker: job.state == "running" and job.run.executor in model.executors(worker),
    }
    return all(tests[name](value) for name, value in given.items())


def is_in_window(job: Job, given: Filter) -> bool:
    """Whether an index of its state that knows times has it among those that a filter can match."""
    if job.state not in TIMED:
        return True
    return bool(given.get("since", 0) <= job.since <= given.get("until", 2**52))
