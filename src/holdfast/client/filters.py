"""Filters: which jobs `list`, `count`, `export`, `page` and the bulk methods are about.

`FILTERS` declares each filter once. The arguments of the methods, the options of the command line, the arguments of the
store and the table in docs/queries.md follow from it or are compared with it. `store/lua/filters.lua` tests jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

from holdfast.constants import MAX_ID
from holdfast.errors import Invalid
from holdfast.job.job import PENDING, STATES
from holdfast.names import check_batch, check_id, check_queue, check_scope, check_tag, check_task, check_text
from holdfast.task.task import Task
from holdfast.text import did_you_mean, suggestion
from holdfast.units import Duration, milliseconds, moment

MAX_WORKER = 37  # characters: <node>/<worker>


class Filter(NamedTuple):
    """A filter: its name in Python and on the command line, and in the store."""

    name: str
    stored: str
    help: str  # of a job that matches
    read: Callable[[Any], Any]  # checks a value, and returns what the store takes
    metavar: str  # "" for a flag
    indexed_by: str  # for the documentation: which index finds matching jobs; "": each job is looked at


class JobFilter(TypedDict, total=False):
    """The jobs that match all given filters."""

    queue: str | Sequence[str] | None
    state: str | Sequence[str] | None  # `pending` stands for the five states before the end
    task: Task[..., Any] | str | None
    group: str | None  # of the failure
    fingerprint: str | None  # of the failure
    tag: str | None
    scope: str | None  # and everything below it
    batch: str | None
    waits_for: str | None  # the id of a job: it is blocked until that one has ended
    worker: str | None  # on which it is running
    stalled: bool | None  # its lease has ended, and no worker has requeued it yet
    since: Duration | datetime | None  # it entered its state then or later; "1h": in the last hour
    until: Duration | datetime | None  # it entered its state then or earlier; "1h": at least an hour ago
    id_prefix: str | None  # how its id begins


def _names(value: str | Sequence[str], check: Callable[[str], str]) -> list[str]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, Sequence):
        raise Invalid(f"expected a name, or a list of names, got {value!r}")
    return [check(each) for each in given]


def _check_state(state: str) -> str:
    if state not in STATES:
        hint = did_you_mean(str(state), (*STATES, "pending")) or f"; expected {', '.join(STATES)}, or pending"
        raise Invalid(f"unknown state {state!r}{hint}")
    return state


def read_states(value: str | Sequence[str]) -> list[str]:
    """Return the states that are named, in the order of a job's life; `pending` stands for five."""
    given = [value] if isinstance(value, str) else value
    named = {state for each in given for state in (PENDING if each == "pending" else [_check_state(each)])}
    return [state for state in STATES if state in named]


def _read_time(value: Duration | datetime, what: str) -> int:
    """Return epoch milliseconds; a duration counts back from the server's time, as a negative number."""
    if isinstance(value, datetime):
        return moment(value, what)
    return -max(1, milliseconds(value, what=what))


def _read_task(value: Task[..., Any] | str) -> str:
    return check_task(value.name if isinstance(value, Task) else value)


def _read_worker(value: str) -> str:
    if "/" not in check_text(value, "worker") or len(value) > MAX_WORKER:
        raise Invalid(f"expected a worker as <node>/<name>, got {value[:60]!r}; `holdfast workers` lists them")
    return value


def _read_flag(value: bool) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"stalled must be True or False, not {value!r:.60}")
    return value


def _read_prefix(value: str) -> str:
    if not check_text(value, "id_prefix"):
        raise Invalid("id_prefix is empty; all ids begin with it")
    if len(value) > MAX_ID:
        raise Invalid(f"id_prefix has {len(value)} characters; ids have up to {MAX_ID}")
    return value


FILTERS = (
    Filter("queue", "queues", "of this queue", lambda value: _names(value, check_queue), "QUEUE", "queue and state"),
    Filter("state", "states", "in this state", read_states, "STATE", "queue and state"),
    Filter("task", "task", "of this task", _read_task, "TASK", "task, of failed jobs"),
    Filter(
        "group", "group", "whose failure has this group", lambda value: check_text(value, "group"), "GROUP", "group"
    ),
    Filter(
        "fingerprint", "fingerprint", "whose failure has this fingerprint",
        lambda value: check_text(value, "fingerprint"), "FINGERPRINT", "fingerprint",
    ),
    Filter("tag", "tag", "with this tag", check_tag, "TAG", "tag"),
    Filter("scope", "scope", "in this scope, or below it", check_scope, "PATH", "scope"),
    Filter("batch", "batch", "of this batch", check_batch, "BATCH", "batch"),
    Filter("waits_for", "waits_for", "that wait for this job to end", check_id, "ID", "dependents of that job"),
    Filter(
        "stalled", "stalled", "whose lease has ended, and that no worker has requeued yet", _read_flag, "",
        "ends of leases",
    ),
    Filter("worker", "worker", "that are running on this worker", _read_worker, "WORKER", "what each executor holds"),
    Filter(
        "since", "since", "that entered their state at this time or later; 1h: in the last hour",
        lambda value: _read_time(value, "since"), "TIME", "queue and state, of running and ended jobs",
    ),
    Filter(
        "until", "until", "that entered their state at this time or earlier; 1h: at least an hour ago",
        lambda value: _read_time(value, "until"), "TIME", "queue and state, of running and ended jobs",
    ),
    Filter("id_prefix", "id_prefix", "whose id begins with this", _read_prefix, "TEXT", ""),
)  # fmt: skip
NAMES = tuple(each.name for each in FILTERS)


def read_filter(given: Mapping[str, Any], *, method: str) -> dict[str, Any]:
    """Return filters as the store takes them; a misspelt one is refused, as it would select more jobs."""
    for name in given:
        if name not in NAMES:
            raise Invalid(f"{method} has no filter {name!r}{suggestion(name, NAMES)}")
    filter = {each.stored: each.read(given[each.name]) for each in FILTERS if given.get(each.name) is not None}
    since, until = filter.get("since", 0), filter.get("until", 0)
    if since * until > 0 and since > until:  # both are times, or both count from now
        raise Invalid(
            'since is later than until, so no job matches; since="2h", until="1h" is the hour before the last'
        )
    return filter
