"""What comes of a job that was waited for: its result, or why there is none. Steps of the client; see `verbs`."""

from __future__ import annotations

from typing import TypeVar

from holdfast import commands, errors, finding
from holdfast.job import Job
from holdfast.phrases import printable
from holdfast.verbs import Steps

R = TypeVar("R")


def check_job(job: Job[R]) -> None:
    if not isinstance(job, Job):
        raise errors.Invalid(f"{job!r} is no job; to wait for a job by its id, write jobs.get(id).result()")


def outcome(job: Job[R]) -> R:
    """Return the result of a job that has ended, or raise what became of it."""
    if job.state == "succeeded":
        return job.decoded_result()
    if job.unreadable:
        raise errors.JobUnreadable(f"job {job.id} cannot be read: {job.unreadable}")
    if job.state == "cancelled":
        raise errors.JobCancelled(f"job {job.id} was cancelled", job)
    if job.state == "failed":
        final = f" ({job.final_reason})" if job.final_reason not in ("", job.group) else ""
        raise errors.JobFailed(f"job {job.id} failed in group {job.group}{final}: {printable(job.why)}", job)
    raise errors.WrongState(f"job {job.id} was retried while its result was awaited")


def ended(self: finding.App, job: Job[R]) -> Steps[R]:
    """Return the result of a job that has just ended."""
    try:
        found: Job[R] = yield from finding.get(self, job.id)
    except errors.JobNotFound:
        if job.kept:
            raise
        raise errors.JobNotFound(f"job {job.id} is not kept: it has ended, and its result is gone") from None
    return outcome(found)


def obstacle(self: finding.App, id: str) -> Steps[str]:
    """Say why a job does not start, to end a sentence with; nothing if it is not known."""
    try:
        job = yield from finding.get(self, id)
        [[_, is_paused, workers, *_]] = yield commands.queues([job.queue])
    except errors.HoldfastError:
        return ""
    left = [f"{each.id} ({each.state})" for each in job.after if each.state != "succeeded"]
    if job.state == "blocked" and left:
        return f": it waits for {', '.join(left[:3])}{' and others' if len(left) > 3 else ''}"
    if job.state == "waiting" and (is_paused or not workers):
        return f": queue {job.queue} is paused" if is_paused else f": no live worker serves queue {job.queue}"
    return f" by the limit {job.throttled_by}" if job.throttled_by else ""
