"""Bulk methods: change all jobs that match a filter, in bounded steps and constant memory.

Each job is processed once; jobs that match only after the first step are left out. The result counts jobs by their new
state, and jobs that could not be changed by the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid
from holdfast.job.job import FINAL, PENDING
from holdfast.job.marks import check_tags
from holdfast.names import check_queue, check_task, check_text
from holdfast.store import Steps, Stores, commands
from holdfast.task.task import Task
from holdfast.units import Duration, milliseconds

Counts = dict[str, int]

JOBS_PER_CALL = 500  # that one call looks at
NOT_RUNNING = tuple(state for state in PENDING if state != "running")
WORK_WAS_DONE = "its work was done"  # such a job is retried only with `force`
_REASONS = {
    "OK": "deleted",
    "NOTFOUND": "gone",
    "STATE": "in another state",
    "BLOCKED": "has dependents",
    "DONE": WORK_WAS_DONE,
    "EXISTS": "another job has its unique key",
    "CYCLE": "it would wait for itself",
}


class JobFilter(TypedDict, total=False):
    """The jobs to change: those that match all given filters. At least one is required."""

    queue: str | Sequence[str] | None
    state: str | Sequence[str] | None  # by default all states in which it is possible; `pending` stands for five
    task: Task[..., Any] | str | None
    group: str | None  # of the failure
    fingerprint: str | None  # of the failure
    progress: Callable[[int], object] | None  # called with the number of jobs that each step has looked at


def cancel_all(_: Stores, *, reason: str = "", **filters: Unpack[JobFilter]) -> Steps[Counts]:
    """Cancel all matching jobs.

    jobs.cancel_all(queue="mail", task="remind")
    """
    return (yield from _act("cancel", PENDING, filters, reason=reason))


def retry_all(_: Stores, *, force: bool = False, **filters: Unpack[JobFilter]) -> Steps[Counts]:
    """Retry all matching jobs that failed; others only if a `state` is given.

    jobs.retry_all(queue="mail", group="smtplib.SMTPServerDisconnected")

    Jobs whose work was done are retried only with `force`; see `retry`.
    """
    return (yield from _act("retry", ("failed",), filters, force=force or None))


def delete_all(_: Stores, **filters: Unpack[JobFilter]) -> Steps[Counts]:
    """Delete all matching jobs that have ended."""
    return (yield from _act("delete", FINAL, filters))


def move_all(
    _: Stores,
    *,
    to: str | None = None,
    priority: int | None = None,
    tags: Sequence[str] | None = None,
    **filters: Unpack[JobFilter],
) -> Steps[Counts]:
    """Move all matching jobs that are not running to another queue, or change their priority.

    jobs.move_all(queue="mail", task="remind", to="slow")

    They keep their tags unless others are given.
    """
    new = None if tags is None else check_tags("tags", tags)
    return (yield from _act("move", NOT_RUNNING, filters, queue=to, priority=priority, tags=new))


def release_all(_: Stores, *, delay: Duration = 0, reason: str = "", **filters: Unpack[JobFilter]) -> Steps[Counts]:
    """Requeue all matching running jobs for other workers, without counting an attempt."""
    wait = milliseconds(delay, what="delay", maximum=MAX_DURATION)
    return (yield from _act("release", ("running",), filters, delay=wait, reason=reason))


def fail_all(
    _: Stores, *, with_group: str | None = None, reason: str = "", **filters: Unpack[JobFilter]
) -> Steps[Counts]:
    """Fail all matching jobs."""
    return (yield from _act("fail", PENDING, filters, group=with_group, reason=reason))


def _act(action: str, states: Sequence[str], filters: JobFilter, **arguments: Any) -> Steps[Counts]:
    counts: Counter[str] = Counter()
    progress = filters.get("progress") or (lambda _: None)
    selection = _selection(action, states, filters)
    given = {name: value for name, value in arguments.items() if value is not None}
    cursor = since = None
    while True:
        reply = yield commands.bulk(
            action, **selection, arguments=given, cursor=cursor, since=since, limit=JOBS_PER_CALL
        )
        counts.update(reply.answers)
        progress(reply.looked_at)
        cursor, since = reply.cursor, reply.since
        if cursor is None:
            return {_REASONS.get(answer, answer): count for answer, count in counts.items()}


def _selection(action: str, states: Sequence[str], filters: JobFilter) -> dict[str, Any]:
    if (
        unknown := filters.keys() - JobFilter.__annotations__.keys()
    ):  # ignoring a misspelt filter would select more jobs
        names = ", ".join(JobFilter.__annotations__)
        raise Invalid(f"{action}_all has no argument {', '.join(sorted(unknown))}; it takes {names}")
    if all(filters.get(name) is None for name in ("queue", "state", "task", "group", "fingerprint")):
        raise Invalid(f"{action}_all needs a filter: give queue, state, task, group or fingerprint")
    queue, state, task, group = filters.get("queue"), filters.get("state"), filters.get("task"), filters.get("group")
    fingerprint = filters.get("fingerprint")
    queues: list[Any] = list(queue) if isinstance(queue, list | tuple) else [queue]
    chosen = [state] if isinstance(state, str) else state
    return {
        "queues": None if queue is None else [check_queue(each) for each in queues],
        "states": list(states if chosen is None else PENDING if state == "pending" else chosen),
        "task": None if task is None else check_task(task.name if isinstance(task, Task) else task),
        "group": None if group is None else check_text(group, "group"),
        "fingerprint": None if fingerprint is None else check_text(fingerprint, "fingerprint"),
    }
