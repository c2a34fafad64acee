"""Storing bound calls: what is sent of a call, and the snapshot of the job that came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast import errors
from holdfast.job.job import App, Job, read_job
from holdfast.store import commands
from holdfast.store.commands import Command, EnqueueReply
from holdfast.store.deadline import Deadline
from holdfast.store.steps import Steps
from holdfast.task.context import carried_by, with_carried
from holdfast.task.task import BoundCall, Task
from holdfast.units import utc

R = TypeVar("R")
Calls = Sequence[BoundCall[Any]]

ATTEMPTS = 5


class Part(msgspec.Struct, frozen=True, eq=False):
    """Calls that are stored together or not at all: up to 1,000. Their tasks, and the command that stores them."""

    calls: Calls
    tasks: set[Task[..., Any]]
    command: Command[EnqueueReply]

    @classmethod
    def of(cls, calls: Calls, app: App, *, fresh: bool = False) -> Part:
        """Make a part of calls, and of what they carry."""
        tasks, carried = tasks_of(calls), carried_by(app)
        jobs = calls if carried is None else _carrying(calls, tasks, carried)
        return cls(calls, tasks, commands.enqueue(jobs, on_exists=_on_exists(tasks), fresh=fresh))


def tasks_of(calls: Sequence[Any]) -> set[Task[..., Any]]:
    """Return the tasks that are called.

    Raises:
        Invalid: one of them is no call.
    """
    tasks = set()
    for call in calls:
        if not isinstance(call, BoundCall):
            raise errors.Invalid(
                f"{call!r} is no call that can be stored; bind a task to its arguments: task.bind(...)"
            )
        tasks.add(call.variant)
    return tasks


class _Carrying(NamedTuple):
    """A call, and what the store is told of it and of what it carries."""

    id: str
    payload: bytes
    batch: dict[str, Any]


def _carrying(calls: Calls, tasks: set[Task[..., Any]], carried: dict[str, Any]) -> list[_Carrying]:
    told = {task: with_carried(task.batch, task.chosen.run, carried) for task in tasks}
    return [_Carrying(call.id, call.payload, told[call.variant]) for call in calls]


def store_part(part: Part, app: App, deadline: Deadline, *, fresh: bool = False) -> Steps[Iterable[Job[Any]]]:
    """Store calls. Of those that are there, return the job that is there. It may go just then: so try again.

    Jobs that are all new are made as they are asked for: the server may work on another part by then.
    """
    jobs: dict[str, Job[Any]] = {}  # by the id of the call
    left, is_answered = part, False
    try:
        for _ in range(ATTEMPTS):
            stored = yield left.command.within(deadline)
            is_answered = True
            if left is part and _are_all_new(part, stored):
                return _new_jobs(part, stored, app)
            if there := _take_new(jobs, left, stored, app):
                for fields in filter(None, (yield commands.get(list(there), brief=True).within(deadline))):
                    call, created = there[fields["id"]]
                    jobs[call.id] = replace(_existing_job(call, fields, app), created=created)
            if len(jobs) == len(part.calls):
                return [jobs[call.id] for call in part.calls]
            left = Part.of([call for call in part.calls if call.id not in jobs], app, fresh=fresh)
    except errors.StoreUnavailable as error:
        error.maybe_done = error.maybe_done or is_answered
        raise
    raise errors.JobExists(f"{_whose(left.calls[0])}: it was done before, and its job is not there any more")


def _are_all_new(part: Part, stored: EnqueueReply) -> bool:
    return all(stored.created) and not any(task.chosen.after for task in part.tasks)


def _new_jobs(part: Part, stored: EnqueueReply, app: App) -> Iterator[Job[Any]]:
    """The jobs of calls as they are if they are new, and wait for no other."""
    made = {task: stored_job(task, stored.now, app) for task in part.tasks}
    for call, id in zip(part.calls, stored.ids, strict=True):
        yield with_call(made[call.variant], id, call)


def _take_new(
    jobs: dict[str, Job[Any]], part: Part, stored: EnqueueReply, app: App
) -> dict[str, tuple[BoundCall[Any], bool]]:
    """Add the jobs that are new. Return the other calls, by the ids of their jobs, and whether those are new.

    They were there, or only the store knows whether they have to wait.
    """
    there = {}
    for call, created, job in zip(part.calls, stored.created, _new_jobs(part, stored, app), strict=True):
        if created and not call.variant.chosen.after:
            jobs[call.id] = job
        else:
            there[job.id] = call, created
    return there


def _existing_job(call: BoundCall[R], fields: dict[str, Any], app: App) -> Job[R]:
    """The snapshot of a job that was there. One of another task would have a result of another type."""
    if fields["task"] != call.name:
        raise errors.JobExists(f"job {fields['id']} is there already, and is one of task {fields['task']}")
    return read_job(fields, app, call.variant.signature.result)


def _whose(call: BoundCall[Any]) -> str:
    return f"unique key {call.chosen.unique}" if call.chosen.unique else f"job {call.id}"


def _on_exists(tasks: Iterable[Task[..., Any]]) -> str:
    choices = {"replace" if task.chosen.debounce is not None else task.chosen.on_exists or "return" for task in tasks}
    if len(choices) > 1:
        raise errors.Invalid(
            f"calls that are enqueued together must agree on on_exists, not {', '.join(sorted(choices))}"
        )
    return choices.pop()


def stored_job(task: Task[..., R], now: int, app: App) -> Job[R]:
    """The snapshot of a job of a task that is stored now, but for what is each call's own: see `with_call`."""
    chosen, stored_at = task.chosen, utc(now)
    changed: dict[str, Any] = {"created_at": stored_at, "since": stored_at, "app": app}
    delay = chosen.delay if chosen.debounce is None else chosen.debounce
    due = chosen.at if delay is None else now + delay
    if due is not None and due > now:
        changed |= {"state": "scheduled", "due_at": utc(due)}
    deadline = chosen.deadline_at if chosen.deadline is None else now + chosen.deadline
    if deadline is not None:
        changed["deadline"] = utc(deadline)
    return replace(task.outline, **changed)


def with_call(job: Job[R], id: str, call: BoundCall[R]) -> Job[R]:
    """The snapshot of the job of a call."""
    return replace(job, id=id, payload=call.payload, fields={})  # which could be changed
