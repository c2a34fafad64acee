"""Storing bound calls: what is sent of a call, and the snapshot of the job that came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast import commands, errors
from holdfast.budget import Budget
from holdfast.carry import carried_by, with_carried
from holdfast.commands import Command, Storable, Stored
from holdfast.durations import utc
from holdfast.job import App, Job, read_job
from holdfast.options import Options
from holdfast.task import BoundCall, Task
from holdfast.verbs import Steps

R = TypeVar("R")
Calls = Sequence[BoundCall[Any]]

AT_ONCE = 1000  # jobs in one call
ATTEMPTS = 5


def store_command(calls: Calls, app: App, *, fresh: bool = False) -> Command[Stored]:
    """The command that stores up to 1,000 calls, together or not at all, with what they carry."""
    tasks = {call.task for call in calls}
    carried = carried_by(app)
    told = {task: task.batch if carried is None else _carrying(task, carried) for task in tasks}
    jobs = [Storable(call.id, call.payload, told[call.task]) for call in calls]
    return commands.enqueue(jobs, exists=_on_exists(tasks), fresh=fresh)


def _carrying(task: Task[..., Any], carried: dict[str, Any]) -> dict[str, Any]:
    return with_carried(task.batch, task.chosen.run, carried)


def store_part(
    command: Command[Stored], calls: Calls, app: App, budget: Budget, *, fresh: bool = False
) -> Steps[list[Job[Any]]]:
    """Store calls, by the command that was made of them.

    Of those that are there, return the job that is there. It may go just then: so try again.
    """
    jobs: dict[str, Job[Any]] = {}  # by the id of the call
    left, is_answered = calls, False
    try:
        for _ in range(ATTEMPTS):
            stored = yield command.within(budget)
            is_answered = True
            there = _take_new(jobs, left, stored, app)
            found = (yield commands.get(list(there), brief=True).within(budget)) if there else []
            for fields in filter(None, found):
                call, created = there[fields["id"]]
                jobs[call.id] = msgspec.structs.replace(_existing_job(call, fields, app), created=created)
            left = [call for call in left if call.id not in jobs]
            if not left:
                return [jobs[call.id] for call in calls]
            command = store_command(left, app, fresh=fresh)
    except errors.StoreUnavailable as error:
        error.maybe_done = error.maybe_done or is_answered
        raise
    raise errors.JobExists(f"{_whose(left[0])}: it was done before, and its job is not there any more")


def _take_new(
    jobs: dict[str, Job[Any]], calls: Calls, stored: Stored, app: App
) -> dict[str, tuple[BoundCall[Any], bool]]:
    """Add the jobs that are new. Return the other calls, by the ids of their jobs, and whether those are new.

    They were there, or only the store knows whether they have to wait.
    """
    there = {}
    times = {task: times_of(task.chosen, stored.now) for task in {call.task for call in calls}}
    for call, created, id in zip(calls, stored.created, stored.ids, strict=True):
        if created and not call.task.chosen.after:
            jobs[call.id] = stored_job(call, id, app, times[call.task])
        else:
            there[id] = call, created
    return there


def _existing_job(call: BoundCall[R], fields: dict[str, Any], app: App) -> Job[R]:
    """The snapshot of a job that was there. One of another task would have a result of another type."""
    if fields["task"] != call.name:
        raise errors.JobExists(f"job {fields['id']} is there already, and is one of task {fields['task']}")
    return read_job(fields, app, call.task.signature.result)


def _whose(call: BoundCall[Any]) -> str:
    return f"unique key {call.chosen.unique}" if call.chosen.unique else f"job {call.id}"


def _on_exists(tasks: Iterable[Task[..., Any]]) -> str:
    choices = {"replace" if task.chosen.debounce is not None else task.chosen.on_exists or "return" for task in tasks}
    if len(choices) > 1:
        raise errors.Invalid(
            f"calls that are enqueued together must agree on on_exists, not {', '.join(sorted(choices))}"
        )
    return choices.pop()


def stored_job(call: BoundCall[R], id: str, app: App, times: dict[str, Any]) -> Job[R]:
    """The snapshot of a job that was stored just now."""
    return msgspec.structs.replace(call.task.outline, id=id, payload=call.payload, app=app, **times)


def times_of(chosen: Options, now: int) -> dict[str, Any]:
    """What is said in a snapshot of when a job was stored, is due, and must have started."""
    stored_at = utc(now)
    times: dict[str, Any] = {"created_at": stored_at, "since": stored_at}
    delay = chosen.delay if chosen.debounce is None else chosen.debounce
    due = chosen.at if delay is None else now + delay
    if due is not None and due > now:
        times |= {"state": "scheduled", "due_at": utc(due)}
    deadline = chosen.start_by if chosen.deadline is None else now + chosen.deadline
    if deadline is not None:
        times["deadline"] = utc(deadline)
    return times
