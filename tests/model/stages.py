"""Jobs that go on as another call, or when others have ended, in plain Python: the rules of `finish.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.job.outcome import Advanced, Outcome, Waits
from tests.model.job import Job
from tests.support.new_job import NewJob

if TYPE_CHECKING:
    from tests.model.core import Core

WAITS = "waits for other jobs"


def refusal(model: Core, job: Job, outcome: Outcome, now: int) -> str | None:
    """Why an attempt cannot end so."""
    match outcome:
        case Waits(after):
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
    if isinstance(outcome, Advanced) and not set(others) <= set(model.jobs):
        return "NOTFOUND"
    return "CYCLE" if model.after.would_wait_for_itself(job.id, others) else None


def is_due_too_late(new: NewJob, now: int) -> bool:
    """It would be due after its deadline."""
    due = new.due if new.due is not None else now + (new.delay or 0)
    start_by = now + new.deadline if new.start_by is None and new.deadline is not None else new.start_by
    return start_by is not None and due > now and start_by <= due


def next_stage(job: Job, outcome: Advanced) -> NewJob:
    """What is not said of some options stays; its unique key and the like always do."""
    old, batch = job.new, outcome.batch
    return NewJob(
        id=old.id,
        payload=outcome.payload,
        task=outcome.task,
        **{"queue": old.queue, "share": old.share, "codec": old.codec, **batch},
        unique=old.unique,
        unique_for=old.unique_for,
        unkept=old.unkept,
    )


def advance(model: Core, job: Job, outcome: Advanced, now: int) -> None:
    if job.cancelling:
        model.conclude(job, "cancelled", now)
        return
    job.new = next_stage(job, outcome)
    job.retried = job.crashes = job.lost = job.misses = job.start_by = 0
    job.alone = job.retrying = job.is_timed = job.has_timer = False
    job.checkpoint, job.progress, job.state, job.marks, job.steps = None, "", "", {}, {}
    model.know_queue(job.new.queue)
    model.event("moved", job)
    model.arrive(job, outcome.batch.get("share"))
    if model.begin(job, model.next_arrival() if job.new.after else 0, now):
        job.start_by = 0
        model.after.doom(job, now)


def wait(model: Core, job: Job, others: Sequence[str], now: int) -> None:
    job.run.reason = WAITS
    model.event("released", job)
    if job.cancelling or job.new.once:
        model.come_back(job, 0, now)
        return
    model.after.begin_while_running(job, others)
    job.due = 0
    if job.unsatisfied():
        job.move("blocked", now, place=now)
    else:
        model.to_waiting(job, now)
