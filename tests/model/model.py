"""The behaviour of the store in plain Python: a dictionary of jobs and the rules, without indexes, keys or bytes.

Written from the contracts at the heads of `lua/*.lua`, not from their code. Every index, count, held job and timer is
worked out anew from the jobs. A method per verb takes the time and returns what the command's reply must be, or raises
the error that it must be refused with.

Not here: waking, and what the server removes by its own clock, that is tokens and the records of silent workers.
`store/lua/test_state_machine.py` has those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast import errors
from holdfast.client.queue_patterns import expand
from holdfast.job.outcome import WORK_DONE
from holdfast.store.commands import HeldJob, LoadSample, Queue, Worker, read_about
from holdfast.units import utc
from tests.model import overdue, stages
from tests.model.core import worker_of
from tests.model.events import asked_to_stop, shortened
from tests.model.forks import Forks
from tests.model.job import DEFAULTS, FINAL, STATES, Job, Order, Steps
from tests.model.schedules import Schedules
from tests.model.subscriptions import Subscriptions
from tests.model.workers import LIVE, Workers
from tests.support.new_job import NewJob

Place = tuple[int, int, Order]


class Model(Workers):
    def __init__(self, final_order: Sequence[str] = FINAL, steps: Steps = Steps()) -> None:  # noqa: B008
        super().__init__(final_order, steps)
        self.schedules = Schedules(self)
        self.subscriptions = Subscriptions(self)
        self.forks = Forks(self)

    # Verbs that make jobs and end them

    def enqueue(
        self, jobs: Sequence[NewJob], on_exists: str, now: int, *, fresh: bool = False, adder: str | None = None
    ) -> tuple[Any, ...]:
        """Returns the time, for each job whether it was stored, and its id."""
        if fresh and any(new.unique for new in jobs):
            raise errors.Invalid
        there, seen = [], set[str]()
        for new in jobs:
            if stages.is_due_too_late(new, now):
                raise errors.Invalid
            there.append(self._look_up(new, on_exists, now))
            taken = {new.id, there[-1] or new.id, f" {new.unique}" if new.unique else new.id}
            if taken & seen:
                raise errors.Invalid
            seen |= taken
        if fresh and any(there):
            raise errors.JobExists  # a call that comes again is answered by its token
        names = [id or new.id for new, id in zip(jobs, there, strict=True)]
        stored = [on_exists == "replace" or not id for id in there]
        jobs = self.dependencies.rename(jobs, names)
        storing = {id: new for id, new, is_stored in zip(names, jobs, stored, strict=True) if is_stored}
        self.dependencies.check_new(jobs, storing)
        self.batches.check_new(storing.values(), adder)
        self.dependencies.named = {id for new in jobs for id in new.after or ()}
        self._store_all(storing, now)
        self.dependencies.named = set()
        self.was_idle = not any(stored)
        return now, stored, names

    def _store_all(self, storing: dict[str, NewJob], now: int) -> None:
        self.storing = storing
        arrival = self.arrivals
        self.arrivals += len(self.storing)
        doomed = []
        for number, (id, new) in enumerate(self.storing.items(), arrival + 1):
            if self.store(id, new, number, now):
                doomed.append(self.jobs[id])
        self.storing = {}
        self.settle(now)
        for job in doomed:
            self.dependencies.doom(job, now)
        self.settle(now)

    def _look_up(self, new: NewJob, on_exists: str, now: int) -> str | None:
        """The id of the job that is there already: of this id, or with this key."""
        owner = self.owner(new.unique, now)
        id = new.id if new.id in self.jobs else owner
        if id is None and new.after and self.dependencies.has_heirs(new.id):
            raise errors.JobBlocked
        if id is None or on_exists == "return":
            return id
        if on_exists == "error" or owner not in (None, id):
            raise errors.JobExists
        if id in self.jobs and id != new.id and self.jobs[id] is not self.keys[new.unique or ""][1]:
            raise errors.JobExists  # the id is another's by now
        if id in self.jobs and self.jobs[id].state == "running":
            raise errors.WrongState
        if new.after and (self.dependencies.line(id) if id in self.jobs else self.dependencies.has_heirs(id)):
            raise errors.JobBlocked
        return id

    def store(self, id: str, new: NewJob, arrival: int, now: int) -> bool:
        """Returns whether it is to be cancelled with one that it waits for."""
        old = self.jobs.get(id)
        if old:
            self._replace(old, now)
        elif self.dependencies.has_heirs(id):
            self.dependencies.note_end(id, "-")
        self.dependencies.outcomes.pop(id, None)
        self.know_queue(new.queue)
        job = self.jobs[id] = Job(msgspec.structs.replace(new, id=id), self.settings, now, arrival)
        job.fields = dict(new.fields or {})
        self.marks.begin(job, now, old)
        self.forks.begin(job, now)
        job.batch = self.batches.all.get(new.in_batch or "")
        job.on_move = self.pools.moved
        job.awaited = id in self.dependencies.named or bool(self.dependencies.line(id))
        if new.unique:
            self.keys[new.unique] = new.unique_for or "pending", job
        if new.share or self.shares.is_fair(new.queue):
            job.is_fair, job.arrival = True, self.shares.begin(job, new.share or "")
        self.event("enqueued", job)
        return self.begin(job, arrival, now)

    def _replace(self, old: Job, now: int) -> None:
        self.limits.leave(old, now)
        self._remove(old)
        self.dependencies.leave(old)
        if old.state in FINAL and old.awaited and self.dependencies.line(old.id):
            self.dependencies.note_end(old.id, "-")
        self.event("deleted", old)
        self.batches.note_replaced(old)
        self._tell_waiters(old)

    def cancel(
        self, ids: Sequence[str], reason: str, now: int, *, dependents: bool = False, unless_awaited: bool = False
    ) -> list[str]:
        found = self.dependencies.all_dependents(ids) if dependents else []
        awaited = (
            [id for id in ids if not set(self.dependencies.all_dependents([id])) <= set(ids)] if unless_awaited else []
        )
        answers = [self._cancel(id, reason, now, is_refused=id in awaited) for id in ids]
        self.was_idle = set(answers) <= {"NOTFOUND", "STATE", "BLOCKED"} and not found
        for id in found:
            answer = self._cancel(id, reason, now)
            answers += [id, "cancelled" if answer == "STATE" else answer]
        return answers

    def _cancel(self, id: str, reason: str, now: int, *, is_refused: bool = False) -> str:
        job = self.jobs.get(id)
        if not job:
            return "NOTFOUND"
        if job.state in FINAL:
            return "STATE"
        if is_refused:
            return "BLOCKED"
        if job.state != "running":
            job.note_wait()
            job.note(now, b"cancelled", reason)
            self.conclude(job, "cancelled", now, {"reason": shortened(reason)})
            self.settle(now)
            return "cancelled"
        if not job.cancelling:
            job.cancelling, job.stop_request = True, asked_to_stop(reason)
            self.event("cancelling", job, {"reason": shortened(reason)})
            job.note(now, b"cancelling", reason)
            self.send_message(worker_of(job.run.executor), f"cancel {job.run.executor} {id} {job.attempt}")
        return "cancelling"

    def retry(
        self, ids: Iterable[str], now: int, *, force: bool = False, queue: str | None = None, from_start: bool = False
    ) -> list[str]:
        answers = [self._retry(id, now, force=force, queue=queue, from_start=from_start) for id in ids]
        self.was_idle = not {"waiting", "blocked"} & set(answers)
        return answers

    def _retry(
        self, id: str, now: int, *, force: bool = False, queue: str | None = None, from_start: bool = False
    ) -> str:
        job = self.jobs.get(id)
        if not job:
            return "NOTFOUND"
        if job.state not in FINAL:
            return "STATE"
        if job.group in WORK_DONE and not force:
            return "DONE"
        if self.dependencies.would_wait_for_itself(id, [*job.marks]):
            return "CYCLE"
        if job.unique:
            key, span = job.unique
            if self.owner(key, now) not in (None, id):
                return "EXISTS"
            self.keys[key] = span, job
        self.batches.note_retry(job)
        job.renew_budgets()
        job.group = job.fingerprint = job.final_reason = ""
        job.result, job.deadline_at = None, 0
        if queue and queue != job.new.queue:
            job.keep_origin()
            job.note(now, b"moved", f"from {job.new.queue} to {queue}")
            from_queue, job.new = job.new.queue, msgspec.structs.replace(job.new, queue=queue)
            self.queues.add(queue)
            self.event("moved", job, {"from": from_queue, "to": queue, "priority": ""})
        if from_start:
            job.checkpoint, job.progress, job.steps = None, "", {}
        job.note(now, b"retried", "from the start" if from_start else "")
        self.arrive(job)
        self.dependencies.begin_again(job, now)
        job.due = 0
        if job.unsatisfied():
            job.move("blocked", now, place=now)
        else:
            self.to_waiting(job, now)
        if job.awaited:
            self.dependencies.note_end(id, "-")
        self.event("retried", job)
        self.settle(now)
        return job.state

    def delete(self, ids: Iterable[str]) -> list[str]:
        return [self._delete(id) for id in ids]

    def _delete(self, id: str) -> str:
        job = self.jobs.get(id)
        if not job:
            return "NOTFOUND"
        if job.state not in FINAL:
            return "STATE"
        if self.dependencies.line(id):
            return "BLOCKED"
        self._remove(job)
        self.dependencies.remember(job)
        self.event("deleted", job)
        return "OK"

    def attach(self, id: str, fields: dict[str, str], remove: Sequence[str]) -> dict[str, str]:
        if id not in self.jobs:
            raise errors.JobNotFound
        job = self.jobs[id]
        job.fields = {name: text for name, text in (job.fields | fields).items() if name not in remove}
        return job.fields

    def note(self, id: str, words: str, now: int) -> None:
        if id not in self.jobs:
            raise errors.JobNotFound
        self.jobs[id].note(now, b"noted", words)

    # Verbs that look, and the rest

    def listing(self, queues: Sequence[str] | None, states: Sequence[str] | None) -> list[Job]:
        pairs = [(queue, state) for queue in queues or sorted(self.queues) for state in states or STATES]
        return [job for pair in pairs for job in self.index(*pair)]

    def place_of(self, job: Job, queues: Sequence[str]) -> Place:
        return queues.index(job.new.queue), STATES.index(job.state), job.order()

    def behind(self, place: Place, queues: Sequence[str]) -> list[Job]:
        """What stands behind a place in a listing, whether or not the job that stood there still does."""
        return [job for job in self.listing(queues, None) if self.place_of(job, queues) > place]

    def newest(
        self, queues: Sequence[str] | None, states: Sequence[str] | None, behind: Mapping[str, Order] | None = None
    ) -> list[Job]:
        """The last first, over all queues: in each state those behind a place; of several states by the last change."""
        after, found = behind or {}, list[Job]()
        lists = [sorted(self.listing(queues, [state]), key=Job.order, reverse=True) for state in states or STATES]
        lists = [[job for job in jobs if job.state not in after or job.order() < after[job.state]] for jobs in lists]
        while lists := [jobs for jobs in lists if jobs]:
            found.append(max(lists, key=lambda jobs: jobs[0].since).pop(0))
        return found

    def count(self, queues: Sequence[str] | None, states: Sequence[str] | None) -> int:
        return len(self.listing(queues, states))

    def _live_workers(self, queue: str, now: int) -> int:
        live = [worker for worker, seen in self.workers.items() if seen >= now - LIVE]
        return sum(queue in expand(self.said[worker][1], self.queues) for worker in live)

    def worker_rows(self, now: int) -> list[Worker]:
        return [
            Worker(name, utc(seen), seen >= now - LIVE, said[1], read_about(said[0]), self._held_rows(name, now))
            for name, seen in self.workers.items()
            for said in [self.said[name]]
        ]

    def _held_rows(self, worker: str, now: int) -> list[HeldJob]:
        return [
            HeldJob(
                executor,
                job.id,
                job.attempt,
                job.new.queue,
                job.new.task,
                job.run.pid,
                utc(job.run.claimed),
                utc(job.heartbeat) if job.heartbeat else None,
                job.timer <= now,
            )
            for executor in self.executors(worker)
            for job in self.held(executor)
        ]

    def queue_rows(self, now: int) -> list[Queue]:
        return [
            Queue(
                queue,
                queue in self.paused,
                self._live_workers(queue, now),
                {state: len(self.index(queue, state)) for state in STATES},
            )
            for queue in sorted(self.queues)
        ]

    def load_rows(self, now: int) -> list[LoadSample]:
        states = ("waiting", "running", "scheduled", "blocked", "throttled")
        return [
            LoadSample._make(
                [
                    queue,
                    queue in self.paused,
                    self._live_workers(queue, now),
                    *(len(self.index(queue, state)) for state in states),
                    self._oldest(queue, now),
                    len(overdue.due(self, queue, now)),
                    overdue.unfinished(self, queue),
                    *self.load.sums(queue, now),
                ]
            )
            for queue in self.queues
        ]

    def _oldest(self, queue: str, now: int) -> int:
        """Of each priority the first has waited longest; or one that is due, and would wait if somebody had come."""
        firsts = {job.priority: job for job in reversed(self.index(queue, "waiting"))}
        waits = [max([0, *(now - job.since for job in firsts.values())])] if firsts else []
        return max([-1, *waits, *(now - time for time in overdue.due(self, queue, now))])

    def upkeep(self, now: int) -> tuple[Any, ...]:
        """Returns what was overdue, what still is and must stay, whether too much is kept, how long to wait, who wants
        times."""
        before = overdue.count(self, now)
        self._beat(now)
        self._advance(now)
        step = self.operations.next_step(now)
        waits = [max(0, time - now) for time in self.timers().values()] + ([] if step is None else [step])
        after, wait = overdue.count(self, now), min(waits, default=None)
        return before, after, 0, self.surplus, wait, {*self.schedules.wanting}

    def pause(self, queue: str) -> bool:
        changed = queue not in self.paused
        self.know_queue(queue)
        self.paused.add(queue)
        if changed:
            self.events.about("paused", queue, {"what": "queue"}, queue=queue)
        return changed

    def resume(self, queue: str) -> bool:
        changed = queue in self.paused
        self.paused.discard(queue)
        if changed:
            self.pools.mark(queue)
            self.events.about("resumed", queue, {"what": "queue"}, queue=queue)
        return changed

    def forget(self, queue: str) -> bool:
        if any(job.new.queue == queue for job in self.jobs.values()):
            raise errors.WrongState
        own = [key for key in self.settings if key[0] == queue]
        for key in own:
            del self.settings[key]
        changed = bool(own) or queue in self.queues
        self.queues.discard(queue)
        self.paused.discard(queue)
        self.shares.forget(queue)
        self.load.forget(queue)
        self.ledger.forget(queue)
        return changed

    def configure(self, queue: str | None, values: dict[str, int], reset: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Returns of each setting what holds then, and where that comes from."""
        self.settings.update({(queue, name): value for name, value in values.items()})
        for name in reset:
            self.settings.pop((queue, name), None)
        self.pools.look_again()
        for name, value in [*((name, str(value)) for name, value in values.items()), *((name, "") for name in reset)]:
            details = {"what": "setting", "option": name, "value": value}
            self.events.about("configured", queue or "*", details, queue=queue or "")
        return {name: self.settings.find(name, queue) for name in DEFAULTS}

    def add_waiter(self, ids: Sequence[str], inbox: str) -> list[str]:
        jobs = [self.jobs.get(id) for id in ids]
        for job in jobs:
            if job and job.state not in FINAL and inbox not in job.waiters:
                job.waiters.append(inbox)
        return [job.state if job else "" for job in jobs]
