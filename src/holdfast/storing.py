"""Storing bound calls: what is sent of a call, and the snapshot of the job that came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from holdfast import commands, errors
from holdfast.commands import NewJob
from holdfast.durations import utc
from holdfast.job import App, Job, read_job
from holdfast.task import BoundCall
from holdfast.verbs import Steps

R = TypeVar("R")

DEFAULT_QUEUE = "default"
AT_ONCE = 1000  # jobs in one call
ATTEMPTS = 5


def store_calls(calls: Sequence[BoundCall[Any]], app: App) -> Steps[list[Job[Any]]]:
    """Store calls in order; up to 1,000 are stored together or not at all, more in parts of that size."""
    jobs: list[Job[Any]] = []
    for first in range(0, len(calls), AT_ONCE):
        jobs += yield from _store_part(calls[first : first + AT_ONCE], app)
    return jobs


def _store_part(calls: Sequence[BoundCall[Any]], app: App) -> Steps[list[Job[Any]]]:
    """Store calls; of those whose id is there, return the job that is there. It may go just then: so try again."""
    jobs: dict[str, Job[Any]] = {}
    exists = _on_exists(calls)
    left = calls
    for _ in range(ATTEMPTS):
        stored = yield commands.enqueue([_new_job(call) for call in left], exists=exists)
        new = zip(left, stored.created, strict=True)
        jobs |= {call.id: _stored_job(call, stored.now, app) for call, created in new if created}
        left = [call for call in left if call.id not in jobs]
        found = (yield commands.get([call.id for call in left], brief=True)) if left else []
        shapes = {call.id: call.task.signature.result for call in left}
        jobs |= {fields["id"]: read_job(fields, app, shapes[fields["id"]]) for fields in found if fields}
        left = [call for call in left if call.id not in jobs]
        if not left:
            return [jobs[call.id] for call in calls]
    raise errors.HoldfastError(f"jobs come and go too fast to be found: {left[0].id}")


def _new_job(call: BoundCall[Any]) -> NewJob:
    chosen = call.chosen
    return NewJob(
        id=call.id,
        payload=call.payload,
        queue=chosen.queue or DEFAULT_QUEUE,
        task=call.name,
        priority=chosen.priority,
        delay=chosen.delay,
        due=chosen.at,
        retries=chosen.retries,
        crashes=chosen.crashes,
        lost=chosen.lost,
        backoff=chosen.backoff,
        timeout=chosen.timeout,
    )


def _on_exists(calls: Sequence[BoundCall[Any]]) -> str:
    choices = {call.chosen.on_exists or "return" for call in calls}
    if len(choices) > 1:
        raise errors.Invalid(
            f"calls that are enqueued together must agree on on_exists, not {', '.join(sorted(choices))}"
        )
    return choices.pop()


def _stored_job(call: BoundCall[R], now: int, app: App) -> Job[R]:
    """The snapshot of a job that was stored just now."""
    due = call.chosen.at if call.chosen.delay is None else now + call.chosen.delay
    is_due = due is None or due <= now
    return Job(
        id=call.id,
        state="waiting" if is_due else "scheduled",
        queue=call.chosen.queue or DEFAULT_QUEUE,
        task=call.name,
        created=True,
        created_at=utc(now),
        since=utc(now),
        priority=call.chosen.priority or 0,
        retries=call.chosen.retries,
        due_at=None if is_due or due is None else utc(due),
        payload=call.payload,
        app=app,
        returns=call.task.signature.result,
    )
