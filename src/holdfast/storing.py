"""Storing bound calls: what is sent of a call, and the snapshot of the job that came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast import commands, errors
from holdfast.carry import carried_by, with_carried
from holdfast.commands import NewJob
from holdfast.durations import utc
from holdfast.job import App, Job, read_job
from holdfast.options import DEFAULT_QUEUE
from holdfast.task import BoundCall
from holdfast.verbs import Steps

R = TypeVar("R")

AT_ONCE = 1000  # jobs in one call
ATTEMPTS = 5


def store_part(calls: Sequence[BoundCall[Any]], app: App, *, fresh: bool, codec: str = "json") -> Steps[list[Job[Any]]]:
    """Store up to 1,000 calls, together or not at all.

    Of those that are there, return the job that is there. It may go just then: so try again.
    """
    jobs: dict[str, Job[Any]] = {}  # by the id of the call
    exists, carried = _on_exists(calls), carried_by(app)
    left = calls
    for _ in range(ATTEMPTS):
        stored = yield commands.enqueue([new_job(call, codec, carried) for call in left], exists=exists, fresh=fresh)
        there: dict[str, BoundCall[Any]] = {}  # by the id of the job
        new: dict[str, bool] = {}
        for call, created, id in zip(left, stored.created, stored.ids, strict=True):
            if created and not call.chosen.after:
                jobs[call.id] = stored_job(call, id, stored.now, app, codec)
            else:  # it was there, or only the store knows whether it has to wait
                there[id], new[id] = call, created
        found = (yield commands.get(list(there), brief=True)) if there else []
        for fields in filter(None, found):
            call = there[fields["id"]]
            jobs[call.id] = msgspec.structs.replace(_existing_job(call, fields, app), created=new[fields["id"]])
        left = [call for call in left if call.id not in jobs]
        if not left:
            return [jobs[call.id] for call in calls]
    raise errors.JobExists(f"{_whose(left[0])}: it was done before, and its job is not there any more")


def _existing_job(call: BoundCall[R], fields: dict[str, Any], app: App) -> Job[R]:
    """The snapshot of a job that was there. One of another task would have a result of another type."""
    if fields["task"] != call.name:
        raise errors.JobExists(f"job {fields['id']} is there already, and is one of task {fields['task']}")
    return read_job(fields, app, call.task.signature.result)


def _whose(call: BoundCall[Any]) -> str:
    return f"unique key {call.chosen.unique}" if call.chosen.unique else f"job {call.id}"


def new_job(call: BoundCall[Any], codec: str, carried: dict[str, Any] | None = None) -> NewJob:
    """What is sent of a call, and of what it carries."""
    chosen = call.chosen
    return NewJob(
        id=call.id,
        payload=call.payload,
        task=call.name,
        codec=None if codec == "json" else codec,
        unique=_unique_key(call),
        unique_for="queued" if chosen.debounce is not None else chosen.unique_for,
        unkept=True if chosen.keep is False else None,
        **with_carried(chosen.batch(), chosen.run, carried),
    )


def _unique_key(call: BoundCall[Any]) -> str | None:
    return call.chosen.unique or (call.name if call.chosen.debounce is not None else None)


def _on_exists(calls: Sequence[BoundCall[Any]]) -> str:
    choices = {"replace" if call.chosen.debounce is not None else call.chosen.on_exists or "return" for call in calls}
    if len(choices) > 1:
        raise errors.Invalid(
            f"calls that are enqueued together must agree on on_exists, not {', '.join(sorted(choices))}"
        )
    return choices.pop()


def _deadline(call: BoundCall[Any], now: int) -> datetime | None:
    time = call.chosen.start_by if call.chosen.deadline is None else now + call.chosen.deadline
    return None if time is None else utc(time)


def stored_job(call: BoundCall[R], id: str, now: int, app: App, codec: str = "json") -> Job[R]:
    """The snapshot of a job that was stored just now."""
    delay = call.chosen.delay if call.chosen.debounce is None else call.chosen.debounce
    due = call.chosen.at if delay is None else now + delay
    is_due = due is None or due <= now
    stored_at = utc(now)
    return Job(
        id=id,
        state="waiting" if is_due else "scheduled",
        queue=call.chosen.queue or DEFAULT_QUEUE,
        task=call.name,
        created=True,
        created_at=stored_at,
        since=stored_at,
        priority=call.chosen.priority or 0,
        retries=call.chosen.retries,
        codec=codec,
        unique=_unique_key(call) or "",
        kept=call.chosen.keep is not False,
        at_most_once=call.chosen.at_most_once is True,
        limits=list(call.chosen.limits or ()),
        share=call.chosen.share or "",
        deadline=_deadline(call, now),
        due_at=None if is_due or due is None else utc(due),
        payload=call.payload,
        app=app,
        returns=call.task.signature.result,
    )
