"""The model of jobs that advance to another call, or wait for others: the rules of `finish.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.job.outcome import Advanced, Blocked, Outcome
from tests.model.job import Job
from tests.support.new_job import NewJob

if TYPE_CHECKING:
    from tests.model.core import Core

WAITS = "waits for other jobs"
MAX_REASON = 64  # bytes


def refusal(model: Core, job: Job, outcome: Outcome, now: int) -> str | None:
    """Why an attempt cannot end so."""
    match outcome:
        case Blocked(after):
            others: Sequence[str] = after
        case Advanced():
            new = next_stage(job, outcome)
            others = new.after or ()
            if is_due_too_late(new, now):
                return "INVALID"
        case _:
            return None
    if len(set(others)) < len(others):
        return "INVALID"
    if isinstance(outcome, Advanced) and not set(others) <= {*model.jobs, *model.dependencies.outcomes}:
        return "NOTFOUND"
    return "CYCLE" if model.dependencies.would_wait_for_itself(job.id, others) else None


def is_due_too_late(new: NewJob, now: int) -> bool:
    """It would be due after its deadline."""
    due = new.at if new.at is not None else now + (new.delay or 0)
    deadline_at = now + new.deadline if new.deadline_at is None and new.deadline is not None else new.deadline_at
    return deadline_at is not None and due > now and deadline_at <= due


def next_stage(job: Job, outcome: Advanced) -> NewJob:
    """What is not said of some options stays; its unique key and the like always do."""
    old = job.new
    batch = {name: value for name, value in outcome.batch.items() if name not in ("tags", "keep_tags", "scope")}
    return NewJob(
        id=old.id,
        payload=outcome.payload,
        task=outcome.task,
        **{"queue": old.queue, "share": old.share, "codec": old.codec, **batch},
        unique=old.unique,
        unique_for=old.unique_for,
        keep=old.keep,
        in_batch=old.in_batch,
    )


def stage(new: NewJob) -> str:
    """What an attempt says of the call that it ends."""
    text = f"task {new.task} in queue {new.queue}"
    words = [each for each in (text, f"queue {new.queue}") if len(each) <= MAX_REASON]
    return words[0] if words else ""


def advance(model: Core, job: Job, outcome: Advanced, now: int) -> None:
    if job.cancelling:
        model.conclude(job, "cancelled", now)
        return
    model.pools.moved(job, job.state, "")
    job.keep_origin()
    before, job.new = job.new, next_stage(job, outcome)
    job.fields = job.fields | (job.new.fields or {})
    model.marks.advance(job, outcome.batch, now)
    job.renew_budgets()
    job.deadline_at = 0
    job.alone = job.retrying = job.is_timed = job.has_timer = False
    job.checkpoint, job.progress, job.state, job.marks, job.steps = None, "", "", {}, {}
    model.know_queue(job.new.queue)
    details = {"from": before.queue, "to": job.new.queue, "from_task": before.task, "to_task": job.new.task}
    model.event("advanced", job, details)
    model.arrive(job, outcome.batch.get("share"))
    if model.begin(job, model.next_arrival() if job.new.after else 0, now):
        job.deadline_at = 0
        model.dependencies.doom(job, now)


def wait(model: Core, job: Job, others: Sequence[str], now: int) -> None:
    job.run.reason = WAITS
    model.event("released", job)
    if job.cancelling or job.new.at_most_once:
        model.come_back(job, 0, now)
        return
    model.dependencies.begin_while_running(job, others)
    job.due = 0
    if job.unsatisfied():
        job.move("blocked", now, place=now)
    else:
        model.to_waiting(job, now)
