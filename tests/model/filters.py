"""Filters, as a predicate in plain Python: the rules at the head of `filters.lua`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.model.failures import KINDS, clean
from tests.model.job import Job
from tests.model.mark_invariants import paths_of

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
        "group": lambda group: job.group == clean(group),
        "fingerprint": lambda fingerprint: job.fingerprint == fingerprint,
        "tag": lambda tag: tag in job.found_by.tags,
        "scope": lambda scope: scope in paths_of(job.found_by.scope),
        "batch": lambda name: job.batch is not None and job.batch is model.batches.all.get(name),
        "waits_for": lambda id: job.state == "blocked" and job.id in model.dependencies.lines.get(id, {}),
        "since": lambda time: job.since >= time,
        "until": lambda time: job.since <= time,
        "id_prefix": job.id.startswith,
        "stalled": lambda wanted: (job.state == "running" and job.timer <= now) == wanted,
        "worker": lambda worker: job.state == "running" and job.run.executor in model.executors(worker),
    }
    return all(tests[name](value) for name, value in given.items())


def is_in_window(job: Job, given: Filter) -> bool:
    """Whether an index of its state that knows times has it among those that a filter can match."""
    if job.state not in TIMED:
        return True
    return bool(given.get("since", 0) <= job.since <= given.get("until", 2**52))


# Sorted sets, besides the indexes by queue and state: of a tag, scope or batch; of failed jobs by their names.

SetOrder = tuple[float, str]
MARKS = ("tag", "scope", "batch", "waits_for")


def sets(model: Core, filter: Filter) -> dict[str, list[Job]]:
    """Return the sets that a walk may use, each in its order; not those that may lack jobs."""
    states = filter.get("states")
    failed = {"fingerprint": "p", "group": "g"} if states is None or "failed" in states else {}
    failed |= {"task": "t"} if states is not None and set(states) == {"failed"} else {}
    capped = {filter for kind in KINDS for filter, own in failed.items() if own == kind in model.failures.capped()}
    found: dict[str, list[Job]] = {}
    for name in (
        "fingerprint",
        "group",
        "task",
        "tag",
        "scope",
        "batch",
        "waits_for",
    ):  # in this order, if they are equally large
        if name in filter and name not in capped and (name in failed or name in MARKS):
            found[name] = members(model, name, filter)
    if filter.get("stalled"):
        running = (job for job in model.jobs.values() if job.state == "running")
        found["stalled"] = sorted(running, key=lambda job: (job.timer, job.id))
    return found


def members(model: Core, name: str, filter: Filter) -> list[Job]:
    """Return the jobs in the set of a filter."""
    value, jobs = filter[name], model.jobs.values()
    if name in MARKS:
        found = (job for job in jobs if matches(model, job, {name: value}, 0))
        return sorted(found, key=lambda job: place_in(model, job, filter, name))
    kind, value = {"group": "g", "fingerprint": "p", "task": "t"}[name], clean(value) if name == "group" else value
    failed = (job for job in model.failures.failed() if job.listed[kind] == value and is_in_window(job, filter))
    return sorted(failed, key=lambda job: place_in(model, job, filter, name))


def place_in(model: Core, job: Job, filter: Filter, name: str) -> SetOrder:
    """Return where a job stands in the set of a filter."""
    if name == "tag":
        return job.found_by.tags.get(filter["tag"], 0), job.id
    if name == "waits_for":
        return model.dependencies.lines.get(filter["waits_for"], {}).get(job.id, 0), job.id
    return (job.created if name in MARKS else job.since), job.id
