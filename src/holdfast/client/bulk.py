"""Doing the same to all jobs of a kind, however many: in bounded steps, in constant space. Verbs of the client.

A job is met once: those that come to be of the kind after the first step are not. What comes of it is counted by
answer, the state that a job has now; those that could not be changed are counted too, by the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid
from holdfast.job.job import FINAL, PENDING
from holdfast.names import check_queue, check_task, check_text
from holdfast.store import Steps, Stores, commands
from holdfast.task.task import Task
from holdfast.units import Duration, milliseconds

Counts = dict[str, int]

AT_ONCE = 500  # jobs that are looked at in one call
NOT_RUNNING = tuple(state for state in PENDING if state != "running")
WORK_WAS_DONE = "its work was done"  # of a job that is retried by force only
_WORDS = {
    "OK": "deleted",
    "NOTFOUND": "gone",
    "STATE": "in another state",
    "BLOCKED": "others wait for it",
    "DONE": WORK_WAS_DONE,
    "EXISTS": "another job has its unique key",
    "CYCLE": "it would wait for itself",
}


class Kind(TypedDict, total=False):
    """Which jobs. All that is given must be so; something has to be."""

    queue: str | Sequence[str] | None
    state: str | Sequence[str] | None  # else all states in which that can be done; `pending` is five of them
    task: Task[..., Any] | str | None
    group: str | None  # of the failure
    progress: Callable[[int], object] | None  # is told how many more jobs were looked at


def cancel_all(_: Stores, *, reason: str = "", **kind: Unpack[Kind]) -> Steps[Counts]:
    """Cancel all jobs of a kind.

    jobs.cancel_all(queue="mail", task="remind")
    """
    return (yield from _act("cancel", PENDING, kind, reason=reason))


def retry_all(_: Stores, *, force: bool = False, **kind: Unpack[Kind]) -> Steps[Counts]:
    """Run all jobs of a kind once more: those that failed, unless a `state` is given.

    jobs.retry_all(queue="mail", group="smtplib.SMTPServerDisconnected")

    Those whose work was done, see `retry`, only with `force`.
    """
    return (yield from _act("retry", ("failed",), kind, force=force or None))


def delete_all(_: Stores, **kind: Unpack[Kind]) -> Steps[Counts]:
    """Remove all jobs of a kind that have ended."""
    return (yield from _act("delete", FINAL, kind))


def move_all(_: Stores, *, to: str | None = None, priority: int | None = None, **kind: Unpack[Kind]) -> Steps[Counts]:
    """Move all jobs of a kind that do not run to another queue, or give them another priority.

    jobs.move_all(queue="mail", task="remind", to="slow")
    """
    return (yield from _act("move", NOT_RUNNING, kind, queue=to, priority=priority))


def release_all(_: Stores, *, delay: Duration = 0, reason: str = "", **kind: Unpack[Kind]) -> Steps[Counts]:
    """Take all running jobs of a kind from their workers, uncharged, for others to run."""
    wait = milliseconds(delay, what="delay", most=MAX_DURATION)
    return (yield from _act("release", ("running",), kind, delay=wait, reason=reason))


def fail_all(_: Stores, *, with_group: str | None = None, reason: str = "", **kind: Unpack[Kind]) -> Steps[Counts]:
    """End all jobs of a kind as failed."""
    return (yield from _act("fail", PENDING, kind, group=with_group, reason=reason))


def _act(action: str, states: Sequence[str], kind: Kind, **arguments: Any) -> Steps[Counts]:
    counts: Counter[str] = Counter()
    progress = kind.get("progress") or (lambda _: None)
    which = _which(action, states, kind)
    given = {name: value for name, value in arguments.items() if value is not None}
    cursor = since = None
    while True:
        acted = yield commands.bulk(action, **which, arguments=given, cursor=cursor, since=since, limit=AT_ONCE)
        counts.update(acted.answers)
        progress(acted.looked_at)
        cursor, since = acted.cursor, acted.since
        if cursor is None:
            return {_WORDS.get(answer, answer): count for answer, count in counts.items()}


def _which(action: str, states: Sequence[str], kind: Kind) -> dict[str, Any]:
    if unknown := kind.keys() - Kind.__annotations__.keys():  # without it, more jobs would be meant
        raise Invalid(f"{action}_all knows no {', '.join(sorted(unknown))}; it takes {', '.join(Kind.__annotations__)}")
    if all(kind.get(name) is None for name in ("queue", "state", "task", "group")):
        raise Invalid(f"{action}_all has to be told of which jobs: give queue, state, task or group")
    queue, state, task, group = kind.get("queue"), kind.get("state"), kind.get("task"), kind.get("group")
    queues: list[Any] = list(queue) if isinstance(queue, list | tuple) else [queue]
    chosen = [state] if isinstance(state, str) else state
    return {
        "queues": None if queue is None else [check_queue(each) for each in queues],
        "states": list(states if chosen is None else PENDING if state == "pending" else chosen),
        "task": None if task is None else check_task(task.name if isinstance(task, Task) else task),
        "group": None if group is None else check_text(group, "group"),
    }
