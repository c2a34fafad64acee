"""The model of batches: the rules at the head of `batches.lua`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.constants import DEFAULT_BATCH_KEEP
from holdfast.store.commands import BatchWait, Callback, CancelReply
from tests.model.job import FINAL, Job
from tests.support.new_job import NewJob

if TYPE_CHECKING:
    from tests.model.core import Core

NAMESPACE = "model"
KINDS = ("done", "succeeded", "failed")


@dataclass(eq=False)
class Batch:
    name: str
    created: int
    keep: int = DEFAULT_BATCH_KEEP
    state: str = "open"
    closed: int = 0
    done: int = 0
    cancelling: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    callbacks: dict[str, Callback] = field(default_factory=dict)
    waiters: list[str] = field(default_factory=list)

    @property
    def expires(self) -> int:
        return self.done + self.keep if self.state == "done" else 0


class Batches:
    def __init__(self, model: Core) -> None:
        self.model = model
        self.all: dict[str, Batch] = {}

    # What is worked out from the jobs

    def members(self, batch: Batch) -> list[Job]:
        found = [job for job in self.model.jobs.values() if job.batch is batch]
        return sorted(found, key=lambda job: (job.created, job.id.encode()))

    def open_members(self, batch: Batch) -> list[Job]:
        return [job for job in self.members(batch) if job.state not in FINAL]

    def find(self, name: str) -> Batch:
        if name not in self.all:
            raise errors.BatchNotFound
        return self.all[name]

    def describe(self, batch: Batch) -> dict[str, Any]:
        kept = {on: batch.callbacks[on] for on in KINDS if on in batch.callbacks}
        return {
            "name": batch.name,
            "state": batch.state,
            **{name: getattr(batch, name) for name in ("created", "closed", "done", "cancelling", "keep", "expires")},
            **{state: batch.ended[state] for state in FINAL},
            "open": len(self.open_members(batch)),
            "records": len(self.members(batch)),
            "callbacks": [(on, call.id, call.job["task"]) for on, call in kept.items()],
        }

    # What happens to members

    def note_end(self, job: Job, state: str) -> None:
        if job.batch:
            job.batch.ended[state] += 1

    def note_retry(self, job: Job) -> None:
        if job.batch:
            job.batch.ended[job.state] -= 1

    def note_replaced(self, old: Job) -> None:
        if old.batch and old.state in FINAL:
            old.batch.ended[old.state] -= 1

    def check_new(self, jobs: Iterable[NewJob], adder: str | None) -> None:
        for new in jobs:
            if new.in_batch is None:
                continue
            batch = self.find(new.in_batch)
            if batch.state == "done" or batch.cancelling:
                raise errors.WrongState
            if batch.state == "closed" and adder not in [job.id for job in self.open_members(batch)]:
                raise errors.WrongState

    def settle(self, now: int) -> None:
        for batch in list(self.all.values()):
            if batch.state == "closed" and not self.open_members(batch):
                self._complete(batch, now)

    def _complete(self, batch: Batch, now: int) -> None:
        batch.state, batch.done = "done", now
        wanted = "failed" if batch.ended["failed"] or batch.ended["cancelled"] else "succeeded"
        for on in ("done", wanted):
            if on in batch.callbacks:
                self._enqueue(batch.callbacks[on], batch.name, now)
        for inbox in batch.waiters:
            self.model.send_message(inbox, f"={batch.name}")
        batch.waiters = []
        self.model.events.about("batch_done", batch.name)

    def _enqueue(self, callback: Callback, name: str, now: int) -> None:
        if callback.id in self.model.jobs:
            return
        model: Any = self.model
        new = NewJob(id=callback.id, payload=callback.payload, **callback.job)
        storing, model.storing = model.storing, {callback.id: new}
        model.store(callback.id, new, model.next_arrival(), now)
        model.jobs[callback.id].found_by.ends = name
        model.storing = storing
        model.dependencies.settle(now)

    # Verbs

    def open(self, name: str, keep: int | None, callbacks: Sequence[Callback], now: int) -> bool:
        if name in self.all and 0 < self.all[name].expires <= now:
            self._remove(name)
        is_new = name not in self.all
        if not is_new and self.all[name].state != "open":
            raise errors.WrongState
        batch = self.all.setdefault(name, Batch(name, now))
        batch.keep = keep or batch.keep
        batch.callbacks |= {callback.on: callback for callback in callbacks}
        return is_new

    def _close(self, batch: Batch, now: int) -> bool:
        if batch.state != "open":
            return False
        batch.state, batch.closed = "closed", now
        return True

    def close(self, name: str, now: int) -> bool:
        changed = self._close(self.find(name), now)
        self.settle(now)
        self.model.was_idle = not changed
        return changed

    def cancel(self, name: str, reason: str, now: int) -> CancelReply:
        """Few members are met in one call."""
        batch, model, answers = self.find(name), self.model, Counter[str]()
        self._close(batch, now)
        if batch.state != "done":
            batch.cancelling = batch.cancelling or now
        for id in sorted((job.id for job in self.open_members(batch)), key=str.encode):
            answers[model._cancel(id, reason, now)] += 1  # type: ignore[attr-defined]
        self.settle(now)
        return CancelReply(dict(answers), None)

    def delete(self, name: str) -> None:
        if self.find(name).state != "done":
            raise errors.WrongState
        self._remove(name)

    def _remove(self, name: str) -> None:
        batch = self.all.pop(name)
        for job in self.members(batch):
            job.batch = None

    def remove_expired(self, now: int) -> None:
        due = sorted((batch.expires, name) for name, batch in self.all.items() if 0 < batch.expires <= now)
        for _, name in due[: self.model.steps.expired]:
            self._remove(name)

    def wait(self, name: str, inbox: str) -> BatchWait:
        batch = self.find(name)
        if batch.state != "done" and inbox not in batch.waiters:
            batch.waiters.append(inbox)
        return BatchWait(f"hf:{{{NAMESPACE}}}:inbox:{inbox}".encode(), batch.state)
