"""The model of forks: the rules at the head of `fork.lua`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import errors
from tests.model.job import Job
from tests.support.new_job import NewJob

if TYPE_CHECKING:
    from tests.model.model import Model

OF_ONE_JOB = ("delay", "at", "deadline", "deadline_at", "unique", "unique_for", "after", "on_failed", "in_batch")


class Forks:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.of: Job | None = None  # in this call
        self.from_start = False

    def fork(self, id: str, new: str, set: dict[str, Any], now: int, *, from_start: bool, run: str | None) -> bool:
        """Returns whether it is stored."""
        jobs = self.model.jobs
        if new in jobs:
            if jobs[new].forked_from != id:
                raise errors.JobExists
            self.model.was_idle = True
            return False
        if id not in jobs:
            raise errors.JobNotFound
        job = jobs[id]
        if run is not None and run != (job.new.run or ""):
            raise errors.WrongState
        if not (from_start or job.checkpoint or job.steps):
            raise errors.WrongState
        self.of, self.from_start = job, from_start
        try:
            self.model.enqueue([new_job(job, new, set)], "error", now)
        finally:
            self.of = None
        job.note(now, b"forked", f"into {new}")
        self.model.event("forked", job, {"into": new})
        return True

    def begin(self, job: Job, now: int) -> None:
        """A job is stored, and has not begun."""
        if not self.of:
            return
        job.forked_from = self.of.id
        words = f"from {self.of.id} at attempt {self.of.attempt}{', from the start' if self.from_start else ''}"
        job.note(now, b"forked", words)
        if not self.from_start:
            job.checkpoint, job.progress, job.steps = self.of.checkpoint, self.of.progress, {**self.of.steps}


def new_job(job: Job, new: str, set: dict[str, Any]) -> NewJob:
    """The call and the options of a job, and others in their place."""
    found = job.found_by
    batch = {"tags": tuple(found.tags), "scope": found.scope or None, **dict.fromkeys(OF_ONE_JOB), **set}
    fields = {**job.fields, **batch.pop("fields", {})}
    batch = {name: tuple(value) if isinstance(value, list) else value for name, value in batch.items()}
    for name in ("run", "limits", "after"):
        if name in batch:
            batch[name] = batch[name] or None
    return msgspec.structs.replace(job.new, id=new, fields=fields, **batch)
