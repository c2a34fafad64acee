"""The model of operator actions and deadlines: `move.lua`, `release.lua`, `fail.lua` and `deadlines.lua`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from tests.model.job import FINAL, Job

if TYPE_CHECKING:
    from tests.model.core import Core


class Operators:
    def __init__(self, model: Core) -> None:
        self.model = model

    def each(self, ids: Sequence[str], change: Callable[..., str], now: int) -> list[str]:
        """Change jobs that have not ended, one after the other."""
        answers = []
        for id in ids:
            job = self.model.jobs.get(id)
            answers.append("NOTFOUND" if not job else "STATE" if job.state in FINAL else change(job, now=now))
            self.model.settle(now)
        self.model.was_idle = all(answer.isupper() for answer in answers)
        return answers

    def move(
        self, job: Job, queue: str | None, priority: int | None, now: int, tags: Sequence[str] | None = None
    ) -> str:
        is_same = queue in (None, job.new.queue)
        if job.state == "running" and not is_same:
            return "STATE"
        if not is_same:
            self.model.limits.leave(job, now)
        from_queue = job.new.queue
        before, new_priority = job.priority, job.priority if priority is None else priority
        if not is_same or new_priority != before:
            job.keep_origin()
            job.note_wait()
        if not is_same:
            job.note(now, b"moved", f"from {from_queue} to {queue}")
        if new_priority != before:
            job.note(now, b"priority", f"from {before} to {new_priority}")
        job.new = msgspec.structs.replace(job.new, queue=queue or job.new.queue, priority=new_priority)
        if not is_same:
            self._stand_elsewhere(job, now)
        elif job.is_fair and new_priority != before:
            self.model.arrive(job)
        if job.state == "throttled" or (is_same and job.state == "waiting" and new_priority != before):
            self.model.to_waiting(job, now)
        if tags is not None:
            job.found_by.replace(tags, now)
        shown = str(new_priority) if new_priority != before else ""
        self.model.event("moved", job, {"from": from_queue, "to": job.new.queue, "priority": shown})
        return job.state

    def _stand_elsewhere(self, job: Job, now: int) -> None:
        """As if it came just now."""
        self.model.arrive(job)
        self.model.know_queue(job.new.queue)
        if job.state == "scheduled":
            job.move("scheduled", now, place=job.timer, timer=job.timer)
        elif job.state == "blocked":
            job.move("blocked", now, place=now)
        else:
            job.state = ""
            self.model.to_waiting(job, now)

    def release(self, job: Job, delay: int, reason: str, now: int) -> str:
        if job.state != "running":
            return "STATE"
        job.note(now, b"released", reason)
        self.model.event("released", job)
        self._take_away(job, "released", reason, now)
        self.model.come_back(job, delay, now)
        return job.state

    def fail(self, job: Job, group: str | None, reason: str, now: int) -> str:
        if job.state == "running":
            self._take_away(job, "error", reason, now)
        job.note_wait()
        job.note(now, b"failed", reason)
        self.model.fail(job, group or "operator", "operator", now)
        return "failed"

    def _take_away(self, job: Job, outcome: str, reason: str, now: int) -> None:
        executor = job.run.executor
        self.model.send_message(executor.rpartition(".")[0], f"lost {executor} {job.id} {job.attempt}")
        self.model.end_attempt(job, outcome, reason, now)

    # Deadlines

    def set_deadline(self, job: Job, now: int) -> None:
        new = job.new
        if new.deadline_at is not None or new.deadline is not None:
            job.deadline_at = new.deadline_at if new.deadline_at is not None else now + (new.deadline or 0)
            job.is_timed = job.has_timer = True

    def drop_deadline(self, job: Job) -> None:
        job.is_timed = job.has_timer = False

    def is_too_late(self, job: Job, now: int) -> bool:
        return job.is_timed and job.deadline_at <= now

    def miss(self, job: Job, now: int) -> None:
        job.note_wait()
        job.note(now, b"failed", "its deadline has passed", who="")
        self.model.fail(job, "deadline", "deadline", now)

    def ring(self, id: str, now: int) -> None:
        job = self.model.jobs[id]
        job.has_timer = False
        if job.state not in ("running", *FINAL):
            self.miss(job, now)
