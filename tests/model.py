"""What the store does, in plain Python: a dictionary of jobs and the rules of DESIGN, without indexes, keys or bytes.

Written from the contracts at the heads of `lua/*.lua`, not from their code. Every index, count, held job and timer is
worked out anew from the jobs. A method per verb takes the time and returns what the command's reply must be, or raises
the error that it must be refused with.

Not here: waking, and what the server removes by its own clock, that is tokens and the records of silent workers.
`test_lua.py` has those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from holdfast import errors
from holdfast.commands import Claimed, Finish, Held, HeldRow, LoadRow, NewJob, Started, WorkerRow, _shared
from holdfast.outcome import Advanced, Cancelled, Crash, Error, Release, Snoozed, Succeed, Unknown, Waits
from tests import model_stages as stages
from tests.model_after import After
from tests.model_job import DAY, DEFAULTS, FINAL, STATES, Job, Order, Settings
from tests.model_limits import Limits
from tests.model_load import Load
from tests.model_schedules import Schedules
from tests.model_shares import Shares
from tests.model_steer import Steer

ADVANCE_AT_ONCE = PRUNE_AT_ONCE = 100
PRUNE_EVERY = 1000
TOLD_AT_ONCE = PARKED_AT_ONCE = 1000
HANDED_ON = 100
SPARES = 3
LIVE = 30_000
LONGEST_BLOCK = 5000

Place = tuple[int, int, Order]

OUTCOME_NAMES = {
    Succeed: "succeeded",
    Error: "error",
    Crash: "crash",
    Release: "released",
    Snoozed: "snoozed",
    Unknown: "unknown",
    Cancelled: "cancelled",
    Waits: "snoozed",
    Advanced: "advanced",
}


@dataclass
class Claiming:
    """A claim, and what has become of it so far."""

    executor: str
    request: dict[str, Any]
    taken: list[Job] = field(default_factory=list)
    passed: int = 0  # those that could not start


class Model:
    def __init__(
        self,
        final_order: Sequence[str] = FINAL,
        *,
        told_at_once: int = TOLD_AT_ONCE,
        handed_on: int = HANDED_ON,
        parked_at_once: int = PARKED_AT_ONCE,
    ) -> None:
        self.parked_at_once = parked_at_once
        self.settings = Settings()
        self.jobs: dict[str, Job] = {}
        self.after = After(self, told_at_once)
        self.limits = Limits(self, handed_on)
        self.shares = Shares(self)
        self.steer = Steer(self)
        self.load = Load()
        self.schedules = Schedules(self)
        self.storing: dict[str, NewJob] = {}  # in this call
        self.keys: dict[str, tuple[str | int, Job]] = {}  # unique key -> for how long which job has it
        self.queues: set[str] = set()
        self.paused: set[str] = set()
        self.claims: dict[str, tuple[int, list[tuple[str, int]]]] = {}  # executor -> counter and jobs of its last claim
        self.workers: dict[str, int] = {}  # when they were seen
        self.said: dict[str, tuple[str, list[str]]] = {}  # by workers: of themselves, and which queues they serve
        self.inboxes: dict[str, list[str]] = {}
        self.events: list[tuple[str, str]] = []  # type and job, since they were last looked at
        self.answers: dict[str | None, Any] = {}  # by token
        self.was_idle = False  # the last call had nothing to do
        self.arrivals = 0
        self.pulse: int | None = None
        self.latest = 0  # time of a call, since it was last noticed that the clock went back
        self.pruned = 0
        self.final_order = final_order  # in which ended jobs leave, if not all can at once
        self.ended: Counter[tuple[str, str]] = Counter()  # in this call: queue and state
        self.gaps: list[tuple[int, int]] = []  # when the store was back, and how long it had been away

    def answer(self, token: str | None, call: Callable[[], Any]) -> Any:
        """What a call says; the same again, if it comes again with the same token, unless it had done nothing."""
        if token in self.answers:
            return self.answers[token]
        self.was_idle = False
        answer = call()
        if token and not self.was_idle:
            self.answers[token] = answer
        return answer

    # What is worked out from the jobs

    def index(self, queue: str, state: str) -> list[Job]:
        members = [job for job in self.jobs.values() if job.new.queue == queue and job.state == state]
        return sorted(members, key=Job.order)

    def held(self, executor: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.state == "running" and job.run.executor == executor]

    def holder(self, executor: str, id: str, attempt: int, created: int | None = None) -> Job | None:
        """The running job of an attempt that has the right to write; not another of the same id, if it says which."""
        job = self.jobs.get(id)
        if job and created not in (None, job.created):
            return None
        if job and job.state == "running" and job.attempt == attempt and job.run.executor == executor:
            return job
        return None

    def lease(self, job: Job) -> Held:
        return Held(job.run.executor, job.id, job.attempt)

    def executors(self, worker: str) -> list[str]:
        return [executor for executor in self.claims if worker_of(executor) == worker]

    # Unique keys

    def owner(self, key: str | None, now: int) -> str | None:
        """The id of the job that has a key; it may be gone, if it has it for a time."""
        if key not in self.keys:
            return None
        span, job = self.keys[key]
        return job.id if isinstance(span, str) or job.created + span > now else None

    def _free(self, job: Job, *spans: str) -> None:
        if job.unique and job.unique[1] in spans and self.keys.get(job.unique[0]) == (job.unique[1], job):
            del self.keys[job.unique[0]]

    def _remove(self, job: Job) -> None:
        self._free(job, "queued", "pending", "kept")
        del self.jobs[job.id]

    # Verbs that make jobs and end them

    def enqueue(self, jobs: Sequence[NewJob], exists: str, now: int, *, fresh: bool = False) -> tuple[Any, ...]:
        """Returns the time, for each job whether it was stored, and its id."""
        if fresh and any(new.unique for new in jobs):
            raise errors.Invalid
        there, seen = [], set[str]()
        doubled = {new.id for new, other in pairwise(jobs) if new.unique and _shared(new) == _shared(other)}
        for new in jobs:
            if new.id in doubled or stages.is_due_too_late(new, now):
                raise errors.Invalid
            there.append(self._look_up(new, exists, now))
            taken = {new.id, there[-1] or new.id, f" {new.unique}" if new.unique else new.id}
            if taken & seen:
                raise errors.Invalid
            seen |= taken
        if fresh and any(there):
            raise errors.JobExists  # a call that comes again is answered by its token
        names = [id or new.id for new, id in zip(jobs, there, strict=True)]
        stored = [exists == "replace" or not id for id in there]
        self.storing = {id: new for id, new, is_stored in zip(names, jobs, stored, strict=True) if is_stored}
        self.after.check_new(jobs, self.storing)
        self._store_all(now)
        self.was_idle = not any(stored)
        return now, stored, names

    def _store_all(self, now: int) -> None:
        arrival = self.arrivals
        self.arrivals += len(self.storing)
        doomed = []
        for number, (id, new) in enumerate(self.storing.items(), arrival + 1):
            if self._store(id, new, number, now):
                doomed.append(self.jobs[id])
        self.storing = {}
        self.settle(now)
        for job in doomed:
            self.after.doom(job, now)
        self.settle(now)

    def _look_up(self, new: NewJob, exists: str, now: int) -> str | None:
        """The id of the job that is there already: of this id, or with this key."""
        owner = self.owner(new.unique, now)
        id = new.id if new.id in self.jobs else owner
        if id is None or exists == "return":
            return id
        if exists == "error" or owner not in (None, id):
            raise errors.JobExists
        if id in self.jobs and id != new.id and self.jobs[id] is not self.keys[new.unique or ""][1]:
            raise errors.JobExists  # the id is another's by now
        if id in self.jobs and self.jobs[id].state == "running":
            raise errors.WrongState
        if id in self.jobs and new.after and self.after.line(id):
            raise errors.JobBlocked
        return id

    def _store(self, id: str, new: NewJob, arrival: int, now: int) -> bool:
        """Returns whether it is to be cancelled with one that it waits for."""
        if old := self.jobs.get(id):
            self._replace(old, now)
        self.queues.add(new.queue)
        job = self.jobs[id] = Job(msgspec.structs.replace(new, id=id), self.settings, now, arrival)
        job.awaited = any(id in (other.after or ()) for other in self.storing.values()) or bool(self.after.line(id))
        if new.unique:
            self.keys[new.unique] = new.unique_for or "pending", job
        if new.share or self.shares.is_fair(new.queue):
            job.is_fair, job.arrival = True, self.shares.begin(job, new.share or "")
        self.event("enqueued", job)
        return self.begin(job, arrival, now)

    def _replace(self, old: Job, now: int) -> None:
        self.limits.leave(old, now)
        self._remove(old)
        self.after.leave(old)
        if old.state in FINAL and old.awaited:
            self.after.tell(old.id, "-")
        self.event("deleted", old)
        self._tell_waiters(old)

    def begin(self, job: Job, arrival: int, now: int) -> bool:
        """Wait for others, for its time, or for an executor."""
        new = job.new
        due = new.due if new.due is not None else now + (new.delay or 0)
        job.due = due if new.after and due > now else 0
        is_doomed = self.after.begin(job, arrival)
        self.steer.set_deadline(job, now)
        if job.unsatisfied():
            job.move("blocked", now, place=now)
        elif due > now:
            job.move("scheduled", now, place=due, timer=due)
        else:
            self.to_waiting(job, now)
        return is_doomed

    def block(self, job: Job, now: int) -> None:
        self.limits.leave(job, now)
        job.move("blocked", now, place=now)

    def to_waiting(self, job: Job, now: int) -> None:
        if job.state not in ("waiting", "throttled"):
            self.load.came(job.new.queue, now)
        job.move("waiting", now)

    def cancel(self, ids: Sequence[str], reason: str, now: int, *, dependents: bool = False) -> list[str]:
        found = self.after.all_dependents(ids) if dependents else []
        answers = [self._cancel(id, reason, now) for id in ids]
        self.was_idle = set(answers) <= {"NOTFOUND", "STATE"} and not found
        for id in found:
            answer = self._cancel(id, reason, now)
            answers += [id, "cancelled" if answer == "STATE" else answer]
        return answers

    def _cancel(self, id: str, reason: str, now: int) -> str:
        job = self.jobs.get(id)
        if not job:
            return "NOTFOUND"
        if job.state in FINAL:
            return "STATE"
        if job.state != "running":
            job.note(now, b"cancelled", reason)
            self.conclude(job, "cancelled", now)
            self.settle(now)
            return "cancelled"
        if not job.cancelling:
            job.cancelling = True
            job.note(now, b"cancelling", reason)
            self.tell(worker_of(job.run.executor), f"cancel {job.run.executor} {id} {job.attempt}")
        return "cancelling"

    def retry(self, ids: Iterable[str], now: int) -> list[str]:
        answers = [self._retry(id, now) for id in ids]
        self.was_idle = not {"waiting", "blocked"} & set(answers)
        return answers

    def _retry(self, id: str, now: int) -> str:
        job = self.jobs.get(id)
        if not job:
            return "NOTFOUND"
        if job.state not in FINAL:
            return "STATE"
        if self.after.would_wait_for_itself(id, [*job.marks]):
            return "CYCLE"
        if job.unique:
            key, span = job.unique
            if self.owner(key, now) not in (None, id):
                return "EXISTS"
            self.keys[key] = span, job
        job.retried = job.crashes = job.lost = job.misses = 0
        job.group, job.result, job.start_by = "", None, 0
        job.note(now, b"retried", "")
        self.arrive(job)
        self.after.begin_again(job)
        job.due = 0
        if job.unsatisfied():
            job.move("blocked", now, place=now)
        else:
            self.to_waiting(job, now)
        if job.awaited:
            self.after.tell(id, "-")
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
        if self.after.line(id):
            return "BLOCKED"
        self._remove(job)
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

    # Verbs of workers

    def claim(self, executor: str, request: dict[str, Any], now: int) -> tuple[int, list[Claimed]]:
        """Returns the milliseconds to wait, and the jobs."""
        counter, given = self.claims.get(executor, (0, []))
        if request["counter"] == counter:
            jobs = [job for job in (self.holder(executor, *lease) for lease in given) if job]
            return 0 if given else self._next_wait(now), [job.claimed(request) for job in jobs]
        if request["counter"] < counter:
            raise errors.Invalid
        self._beat(now)
        self._advance(now)
        claim = Claiming(executor, request)
        self._take(claim, now)
        self.claims[executor] = request["counter"], [(job.id, job.attempt) for job in claim.taken]
        wait = 1 if claim.passed >= self.parked_at_once else self._next_wait(now)
        return 0 if claim.taken else wait, [job.claimed(request) for job in claim.taken]

    def _take(self, claim: Claiming, now: int) -> None:
        """Of each queue its share, if there are shares; then whatever is left, in order."""
        limit, queues, shares = claim.request["limit"], claim.request["queues"], claim.request.get("shares")
        rounds = [(queue, limit) for queue in queues]
        if shares is not None:
            shares = [*shares, *[limit] * (len(queues) - len(shares))]
            rounds = [*zip(queues, shares, strict=False), *rounds]
        for queue, share in rounds:
            left = limit - len(claim.taken)
            if queue not in self.paused and left and claim.passed < self.parked_at_once:
                most = min(share, left, self._room(queue, limit))
                self._take_some(queue, len(claim.taken) + most, claim, now)

    def _room(self, queue: str, most: int) -> int:
        concurrency = self.settings.value("concurrency", queue)
        return concurrency - len(self.index(queue, "running")) if concurrency else most

    def _take_some(self, queue: str, enough: int, claim: Claiming, now: int) -> None:
        """Until there are enough, or no more that could start."""
        while len(claim.taken) < enough and claim.passed < self.parked_at_once:
            jobs = self.index(queue, "waiting")[: enough - len(claim.taken)]
            started = [job for job in jobs if self._start(job, claim.executor, claim.request, now)]
            claim.taken += started
            claim.passed += len(jobs) - len(started)
            self.settle(now)
            if len(started) == len(jobs):
                break

    def _start(self, job: Job, executor: str, request: dict[str, Any], now: int) -> bool:
        if self.steer.is_too_late(job, now):
            self.steer.miss(job, now)
            return False
        if not self.limits.may_start(job, now):
            return False
        job.start(executor, request, now)
        if job.is_fair:
            self.shares.claimed(job)
        self._free(job, "queued")
        self.event("claimed", job)
        return True

    def renew(
        self,
        worker: str,
        held: Sequence[Held],
        now: int,
        *,
        executors: Sequence[str],
        started: Sequence[Started],
        about: str | None,
        queues: list[str] | None,
    ) -> tuple[list[Held], list[Held], list[Held]]:
        """Returns what is to be cancelled, what is lost, and what is held but was not named."""
        self._beat(now)
        cancelled, lost, named = [], [], []
        for one in held:
            job = self.holder(*one)
            if not job:
                lost.append(one)
                continue
            named.append(one)
            job.timer, job.spared = now + job.lease, 0
            if job.cancelling:
                cancelled.append(one)
        in_store = [self.lease(job) for executor in executors for job in self.held(executor)]
        for executor, id, attempt, pid, delay in started:
            if job := self.holder(executor, id, attempt):
                job.run.pid, job.run.started = pid, job.run.claimed + delay
        self.workers = {name: seen for name, seen in self.workers.items() if seen > now - DAY} | {worker: now}
        last_about, last_queues = self.said.get(worker, ("", []))
        self.said[worker] = last_about if about is None else about, last_queues if queues is None else queues
        self._advance(now)
        return cancelled, lost, [one for one in in_store if one not in named]

    def save(
        self,
        held: Held,
        checkpoint: bytes | None,
        now: int,
        *,
        progress: str | None = None,
        notes: Sequence[str] = (),
        created: int | None = None,
        renew: bool = False,
    ) -> bool:
        job = self.holder(*held, created)
        if not job:
            raise errors.LeaseLost
        if checkpoint is not None:
            job.checkpoint = checkpoint
        if progress is not None:
            job.progress = progress
        for words in notes:
            job.note(now, b"said", words)
        if renew:
            job.timer, job.spared, self.latest = now + job.lease, 0, max(now, self.latest)
        self.event("saved", job)
        return job.cancelling

    def finish(self, executor: str, items: Sequence[Finish], now: int, *, token: str | None = None) -> list[str]:
        """As many ended jobs leave as came, and one more."""
        self.ended.clear()
        answers = [self._finish(executor, item, now, token) for item in items]
        ended = [*self.ended.items()]
        self.settle(now)
        for (queue, state), count in ended:
            self._prune(queue, state, count + 1, now)
        return answers

    def _finish(self, executor: str, item: Finish, now: int, token: str | None) -> str:
        job = self.holder(executor, item.id, item.attempt, item.created)
        name = OUTCOME_NAMES[type(item.outcome)]
        if not job:
            known = self.jobs.get(item.id)
            if token or (known and item.created not in (None, known.created)):
                return "LOST"
            runs = [run for run in known.attempts if run.number == item.attempt] if known else []
            return "OK" if runs and runs[0].executor == executor and runs[0].outcome == name else "LOST"
        if refusal := stages.refusal(self, job, item.outcome, now):
            return refusal
        if item.pid is not None:
            job.run.pid = item.pid
        if item.started is not None:
            job.run.started = job.run.claimed + item.started
        self.end_attempt(job, name, getattr(item.outcome, "reason", ""), now)
        job.misses = job.misses if isinstance(item.outcome, Unknown) else 0
        job.alone = job.alone and isinstance(item.outcome, Crash)
        self._apply_outcome(job, item, now)
        return "OK"

    def _apply_outcome(self, job: Job, item: Finish, now: int) -> None:
        match item.outcome:
            case Succeed(result):
                job.result = result
                self.conclude(job, "succeeded", now)
            case Error():
                self._fail_attempt(job, item.outcome, now)
            case Crash(error):
                job.run.error = error
                self._charge_crash(job, now)
            case Release(delay=delay) | Snoozed(delay=delay):
                self.event("released", job)
                did_not_start = item.unstarted and isinstance(item.outcome, Release)
                self.come_back(job, delay, now, did_not_start=did_not_start)
            case Unknown():
                job.run.reason = f"task {job.new.task} is not known here"
                delay = min(5000 * 2**job.misses, 60_000)
                job.misses += 1
                self.event("released", job)
                self.come_back(job, delay, now, did_not_start=True)
            case Cancelled() if job.cancelling:
                self.conclude(job, "cancelled", now)
            case Cancelled():
                self.event("released", job)
                self.come_back(job, 0, now)
            case Waits(after):
                stages.wait(self, job, after, now)
            case Advanced():
                stages.advance(self, job, item.outcome, now)

    def _fail_attempt(self, job: Job, error: Error, now: int) -> None:
        job.run.error = error.error
        if job.cancelling:
            self.conclude(job, "cancelled", now)
        elif error.final or job.new.once or job.option("retries") == 0:
            self.fail(job, error.group, now)
        elif job.retried >= job.option("retries"):
            self.fail(job, "exhausted", now)
        else:
            delay = job.option("backoff") * 2**job.retried if error.delay is None else error.delay
            job.retrying = True
            self.event("retried", job)
            if delay:
                job.move("scheduled", now, place=now + delay, timer=now + delay)
            else:
                self.arrive(job)
                self.to_waiting(job, now)

    def lose(self, *, executor: str | None, worker: str | None, reason: str, now: int) -> list[str]:
        lost = []
        for one in self.executors(worker) if worker else [executor or ""]:
            held = self.held(one)
            for job in held:
                self._lose_job(job, reason, now, charge="lost" if worker else "crash" if len(held) == 1 else "")
            self.settle(now)
            lost += [job.id for job in held]
            if not held:
                self.claims.pop(one, None)
        if worker and not lost:
            self._forget_worker(worker)
        return lost

    def _forget_worker(self, worker: str) -> None:
        self.workers.pop(worker, None)
        self.said.pop(worker, None)
        self.inboxes.pop(worker, None)

    def deregister(self, worker: str, now: int) -> None:
        if worker not in self.workers:
            raise errors.JobNotFound
        executors = self.executors(worker)
        if self.workers[worker] >= now - LIVE or any(self.held(executor) for executor in executors):
            raise errors.WrongState
        for executor in executors:
            del self.claims[executor]
        self._forget_worker(worker)

    def _lose_job(self, job: Job, reason: str, now: int, *, charge: str) -> None:
        job.misses = 0
        self.end_attempt(job, charge or "released", reason, now)
        if charge == "lost":
            self._charge_lost(job, now)
        elif charge == "crash":
            self._charge_crash(job, now)
        else:
            job.alone = True
            self.event("released", job)
            self.come_back(job, 0, now)

    # Verbs that look, and the rest

    def listing(self, queues: Sequence[str] | None, states: Sequence[str] | None, *, newest: bool) -> list[Job]:
        order = -1 if newest else 1
        pairs = [(queue, state) for queue in queues or sorted(self.queues) for state in states or STATES]
        return [job for pair in pairs for job in self.index(*pair)[::order]]

    def place_of(self, job: Job, queues: Sequence[str]) -> Place:
        return queues.index(job.new.queue), STATES.index(job.state), job.order()

    def behind(self, place: Place, queues: Sequence[str], *, newest: bool) -> list[Job]:
        """What stands behind a place in a listing, whether or not the job that stood there still does."""

        def is_behind(job: Job) -> bool:
            there = self.place_of(job, queues)
            return there[:2] > place[:2] or (there[:2] == place[:2] and (there < place if newest else there > place))

        return [job for job in self.listing(queues, None, newest=newest) if is_behind(job)]

    def count(self, queues: Sequence[str] | None, states: Sequence[str] | None) -> int:
        return len(self.listing(queues, states, newest=False))

    def _listeners(self, queue: str, now: int) -> int:
        live = [worker for worker, seen in self.workers.items() if seen >= now - LIVE]
        return sum(queue in self.said[worker][1] for worker in live)

    def worker_rows(self, now: int) -> list[WorkerRow]:
        return [
            WorkerRow(name, seen, seen >= now - LIVE, self.said[name][1], self.said[name][0], self._held_rows(name))
            for name, seen in self.workers.items()
        ]

    def _held_rows(self, worker: str) -> list[HeldRow]:
        return [
            HeldRow(executor, job.id, job.attempt, job.new.queue, job.new.task, job.run.pid, job.run.claimed)
            for executor in self.executors(worker)
            for job in self.held(executor)
        ]

    def queue_rows(self, now: int) -> list[list[Any]]:
        return [
            [
                queue,
                queue in self.paused,
                self._listeners(queue, now),
                *(len(self.index(queue, state)) for state in STATES),
            ]
            for queue in sorted(self.queues)
        ]

    def load_rows(self, now: int) -> list[LoadRow]:
        states = ("waiting", "running", "scheduled", "blocked", "throttled")
        return [
            LoadRow._make(
                [
                    queue,
                    queue in self.paused,
                    self._listeners(queue, now),
                    *(len(self.index(queue, state)) for state in states),
                    self._oldest(queue, now),
                    *self.load.sums(queue, now),
                ]
            )
            for queue in self.queues
        ]

    def _oldest(self, queue: str, now: int) -> int:
        """Of each priority the first has waited longest."""
        firsts = {job.priority: job for job in reversed(self.index(queue, "waiting"))}
        return max([0, *(now - job.since for job in firsts.values())]) if firsts else -1

    def pause(self, queue: str) -> bool:
        changed = queue not in self.paused
        self.queues.add(queue)
        self.paused.add(queue)
        if changed:
            self.events.append(("paused", queue))
        return changed

    def resume(self, queue: str) -> bool:
        changed = queue in self.paused
        self.paused.discard(queue)
        if changed:
            self.events.append(("resumed", queue))
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
        return changed

    def configure(self, queue: str | None, values: dict[str, int], reset: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Returns of each setting what holds then, and where that comes from."""
        self.settings.update({(queue, name): value for name, value in values.items()})
        for name in reset:
            self.settings.pop((queue, name), None)
        self.events.append(("configured", queue or "*"))
        return {name: self.settings.find(name, queue) for name in DEFAULTS}

    def wait(self, ids: Sequence[str], inbox: str) -> list[str]:
        jobs = [self.jobs.get(id) for id in ids]
        for job in jobs:
            if job and job.state not in FINAL and inbox not in job.waiters:
                job.waiters.append(inbox)
        return [job.state if job else "" for job in jobs]

    # Time

    def _beat(self, now: int) -> None:
        """The store is there. If the clock went back, no lease may end later than a whole lease from now."""
        if self.pulse is not None and self.pulse > now:
            for job in self.jobs.values():
                if job.state == "running":
                    job.timer = min(job.timer, now + job.lease)
            self.gaps = [(min(end, now), length) for end, length in self.gaps]
            self.latest = now
        elif self.pulse is not None:
            self.gaps.append((now, now - self.pulse))
        self.pulse, self.latest = now, max(now, self.latest)

    def settle(self, now: int) -> None:
        """What follows from what was done."""
        self.after.settle(now)

    def _advance(self, now: int) -> None:
        self.after.go_on(now)
        due = sorted((time, name) for name, time in self.timers().items() if time <= now)
        for _, name in due[:ADVANCE_AT_ONCE]:
            self._ring(name, now)
        self.settle(now)
        if abs(now - self.pruned) >= PRUNE_EVERY:
            self.pruned, left = now, PRUNE_AT_ONCE
            for queue in sorted(self.queues):
                for state in self.final_order:
                    left -= self._prune(queue, state, left, now)
                self.shares.prune(queue)

    def _ring(self, name: str, now: int) -> None:
        job = self.jobs.get(name)
        if name[0] == "%":
            del self.limits.timers[name[1:]]
            self.limits.hand_on(name[1:], now)
        elif name[0] == "@":
            self.schedules.fire(name[1:], now)
        elif name[0] == "!":
            self.settle(now)
            self.steer.ring(name[1:], now)
        elif job and job.state == "scheduled":
            self.arrive(job)
            self.to_waiting(job, now)
        elif job and job.state == "running":
            self._expire(job, now)

    def timers(self) -> dict[str, int]:
        jobs = self.jobs.values()
        return {
            **{job.id: job.timer for job in jobs if job.timer},
            **{f"!{job.id}": job.start_by for job in jobs if job.has_timer},
            **{f"%{full}": time for full, time in self.limits.timers.items()},
            **self.schedules.timers(),
        }

    def _prune(self, queue: str, state: str, most: int, now: int) -> int:
        """Remove ended jobs that are too old or too many, the oldest first. Returns how many."""
        ended = self.index(queue, state)
        first = now - self.settings.value(f"keep_{state}", queue)
        too_many = len(ended) - self.settings.value(f"keep_{state}_count", queue)
        gone = ended[: min(most, max(too_many, sum(job.place <= first for job in ended)))]
        for job in gone:
            self._remove(job)
            self.after.forget(job.id)
            self.event("deleted", job)
        return len(gone)

    def _expire(self, job: Job, now: int) -> None:
        """End a lease, unless the store was away for long: then its holder has a whole lease to renew it."""
        until = max((end for end, length in self.gaps if 2 * length > job.lease), default=0) + job.lease
        if until > now and job.spared < SPARES:
            job.timer, job.spared = until, job.spared + 1
            return
        job.misses = 0
        self.end_attempt(job, "lost", "lease ended", now)
        self._charge_lost(job, now)

    def _next_wait(self, now: int) -> int:
        return max(1, min([LONGEST_BLOCK, *(timer - now for timer in self.timers().values())]))

    # How attempts and jobs end

    def end_attempt(self, job: Job, outcome: str, reason: str, now: int) -> None:
        job.run.ended, job.run.outcome, job.run.reason = max(now, job.run.claimed), outcome, reason
        self.limits.give_back(job, now)
        self.load.ended(job.new.queue, job.run.ended - job.run.claimed, now)

    def _charge_crash(self, job: Job, now: int) -> None:
        job.crashes += 1
        self.event("crashed", job)
        if (job.new.once or job.crashes > job.option("crashes")) and not job.cancelling:
            self.fail(job, "crashed", now)
        else:
            self.come_back(job, 0, now)

    def _charge_lost(self, job: Job, now: int) -> None:
        job.lost += 1
        self.event("lost", job)
        if (job.new.once or job.lost > job.option("lost")) and not job.cancelling:
            self.fail(job, "lost", now)
        else:
            self.come_back(job, 0, now)

    def come_back(self, job: Job, delay: int, now: int, *, did_not_start: bool = False) -> None:
        """In its old place, or after a delay; unless it was to be cancelled, or to run once at most."""
        if job.cancelling:
            self.conclude(job, "cancelled", now)
        elif job.new.once and not did_not_start:
            self.fail(job, "interrupted", now)
        else:
            if did_not_start and job.unique and self.owner(job.unique[0], now) is None:
                self.keys[job.unique[0]] = job.unique[1], job
            if delay:
                job.move("scheduled", now, place=now + delay, timer=now + delay)
            else:
                self.to_waiting(job, now)

    def fail(self, job: Job, group: str, now: int) -> None:
        job.group = group
        self.conclude(job, "failed", now)

    def conclude(self, job: Job, state: str, now: int) -> None:
        job.cancelling = job.retrying = job.alone = False
        self._free(job, "queued", "pending")
        self.after.leave(job)
        self.steer.drop_deadline(job)
        self.limits.leave(job, now)
        if job.awaited:
            self.after.tell(job.id, state[0].upper())
        if self._goes(job, state):
            self._remove(job)
        else:
            job.move(state, now, place=now)
            self.ended[job.new.queue, state] += 1
        self.event(state, job)
        self._tell_waiters(job)

    def _goes(self, job: Job, state: str) -> bool:
        """Not if somebody may want to retry it."""
        return bool(job.new.unkept) and (state == "succeeded" or (state == "cancelled" and not self.after.line(job.id)))

    def _tell_waiters(self, job: Job) -> None:
        for inbox in job.waiters:
            self.tell(inbox, job.id)

    def tell(self, inbox: str, message: str) -> None:
        self.inboxes.setdefault(inbox, []).append(message)

    def event(self, kind: str, job: Job) -> None:
        self.events.append((kind, job.id))

    def arrive(self, job: Job, share: str | None = None) -> None:
        """Stand in line as if it came just now."""
        key = share or (job.new.share if job.is_fair else None)
        job.is_fair = bool(key) or self.shares.is_fair(job.new.queue)
        job.arrival = self.shares.begin(job, key or "") if job.is_fair else self.next_arrival()

    def next_arrival(self) -> int:
        self.arrivals += 1
        return self.arrivals


def worker_of(executor: str) -> str:
    return executor.rpartition(".")[0]
