"""What the store does, in plain Python: a dictionary of jobs and the rules of DESIGN, without indexes, keys or bytes.

Written from the contracts at the heads of `lua/*.lua`, not from their code. Every index, count, held job and timer is
worked out anew from the jobs. A method per verb takes the time and returns what the command's reply must be, or raises
the error that it must be refused with.

Not here: retention (the test's clock never comes that far) and waking; `test_lua.py` has those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast import errors
from holdfast.commands import Claimed, Finish, Held, NewJob, Started
from holdfast.outcome import Cancelled, Crash, Error, Release, Snoozed, Succeed, Unknown

STATES = ("scheduled", "waiting", "blocked", "throttled", "running", "succeeded", "failed", "cancelled")
FINAL = STATES[5:]
ADVANCE_AT_ONCE = 100
SPARES = 3
LONGEST_BLOCK = 5000
DAY = 86_400_000

Order = tuple[int, int, str]
Place = tuple[int, int, Order]

OUTCOME_NAMES = {
    Succeed: "succeeded",
    Error: "error",
    Crash: "crash",
    Release: "released",
    Snoozed: "snoozed",
    Unknown: "unknown",
    Cancelled: "cancelled",
}


@dataclass
class Attempt:
    number: int
    executor: str
    pid: int
    waiting_since: int
    claimed: int
    started: int = 0
    ended: int = 0
    outcome: str = "running"
    reason: str = ""
    error: bytes = b""

    def row(self) -> list[Any]:
        outcome, executor, reason = self.outcome.encode(), self.executor.encode(), self.reason.encode()
        times = [self.waiting_since, self.claimed, self.started, self.ended]
        return [self.number, *times, outcome, self.pid, executor, reason, self.error]


@dataclass
class Job:
    new: NewJob
    created: int
    arrival: int
    state: str = ""
    since: int = 0
    place: int = 0  # in the index of its state, unless it waits: there, priority and arrival
    timer: int = 0
    lease: int = 0
    spared: int = 0
    retried: int = 0
    crashes: int = 0
    lost: int = 0
    misses: int = 0
    retrying: bool = False
    cancelling: bool = False
    alone: bool = False
    group: str = ""
    progress: str = ""
    result: bytes | None = None
    checkpoint: bytes | None = None
    attempts: list[Attempt] = field(default_factory=list)
    notes: list[list[Any]] = field(default_factory=list)
    waiters: list[str] = field(default_factory=list)
    said: tuple[str | None, Any] = (None, None)  # token and answer of the last command that must not be repeated

    def answered(self, token: str | None) -> Any:
        """What the very same command was answered before, if it was."""
        return self.said[1] if token is not None and self.said[0] == token else None

    @property
    def run(self) -> Attempt:
        return self.attempts[-1]

    @property
    def priority(self) -> int:
        return self.new.priority or 0

    @property
    def retries(self) -> int:
        return 3 if self.new.retries is None else self.new.retries

    @property
    def most_crashes(self) -> int:
        return 3 if self.new.crashes is None else self.new.crashes

    @property
    def most_lost(self) -> int:
        return 10 if self.new.lost is None else self.new.lost

    @property
    def backoff(self) -> int:
        return 20_000 if self.new.backoff is None else self.new.backoff

    def order(self) -> Order:
        """Where it stands among the jobs of its queue and state."""
        if self.state == "waiting":
            return self.priority, self.arrival, self.new.id
        return 0, self.place, self.new.id

    def move(self, state: str, now: int, *, place: int = 0, timer: int = 0) -> None:
        self.state, self.since, self.place, self.timer = state, now, place, timer

    def describe(self) -> dict[str, Any]:
        """What `get` says of it, but for its arrival number."""
        new, last = self.new, self.attempts[-1] if self.attempts else None
        whole = {
            "id": new.id,
            "state": self.state,
            "queue": new.queue,
            "task": new.task,
            "codec": new.codec or "json",
            "priority": self.priority,
            "created": self.created,
            "since": self.since,
            "attempt": len(self.attempts),
            "retried": self.retried,
            "retries": self.retries,
            "backoff": self.backoff,
            "crashes": self.crashes,
            "most_crashes": self.most_crashes,
            "lost": self.lost,
            "most_lost": self.most_lost,
            "timeout": new.timeout or 0,
            "cancelling": int(self.cancelling),
            "alone": int(self.alone),
            "lease": self.lease,
            "timer": self.timer,
            "executor": last.executor if last else "",
            "pid": last.pid if last else 0,
            "claimed": last.claimed if last else 0,
            "group": self.group,
            "progress": self.progress,
            "payload": new.payload,
            "attempts": [attempt.row() for attempt in self.attempts[-100:]],
            "notes": self.notes[-100:],
        }
        if self.result is not None:
            whole["result"] = self.result
        if self.checkpoint is not None:
            whole["checkpoint"] = self.checkpoint
        return whole


class Model:
    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.queues: set[str] = set()
        self.paused: set[str] = set()
        self.claims: dict[str, tuple[int, list[tuple[str, int]]]] = {}  # executor -> counter and jobs of its last claim
        self.workers: dict[str, tuple[int, str]] = {}  # seen, about
        self.inboxes: dict[str, list[str]] = {}
        self.events: list[tuple[str, str]] = []  # type and job, since they were last looked at
        self.arrivals = 0
        self.pulse: int | None = None
        self.gaps: list[tuple[int, int]] = []  # when the store was back, and how long it had been away

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
        if job and job.state == "running" and len(job.attempts) == attempt and job.run.executor == executor:
            return job
        return None

    def lease(self, job: Job) -> Held:
        return Held(job.run.executor, job.new.id, len(job.attempts))

    def executors(self, worker: str) -> list[str]:
        return [executor for executor in self.claims if worker_of(executor) == worker]

    # Verbs that make jobs and end them

    def enqueue(self, jobs: Sequence[NewJob], exists: str, now: int, token: str | None) -> list[bool]:
        seen = set()
        for new in jobs:
            if new.id in seen:
                raise errors.Invalid
            seen.add(new.id)
            old = self.jobs.get(new.id)
            if not old or old.answered(token):
                continue
            if exists == "error":
                raise errors.JobExists
            if exists == "replace" and old.state == "running":
                raise errors.WrongState
        self.queues.update(new.queue for new in jobs)
        return [self._store(new, exists, now, token) for new in jobs]

    def _store(self, new: NewJob, exists: str, now: int, token: str | None) -> bool:
        old = self.jobs.get(new.id)
        if old and old.answered(token):
            return True
        if old and exists == "return":
            return False
        if old:
            del self.jobs[new.id]
            self._event("deleted", old)
            self._tell_waiters(old)
        job = self.jobs[new.id] = Job(new, now, self._next_arrival(), said=(token, True))
        due = new.due if new.due is not None else now + (new.delay or 0)
        if due > now:
            job.move("scheduled", now, place=due, timer=due)
        else:
            job.move("waiting", now)
        self._event("enqueued", job)
        return True

    def cancel(self, ids: Iterable[str], reason: str, now: int, token: str) -> list[str]:
        return [self._cancel(id, reason, now, token) for id in ids]

    def _cancel(self, id: str, reason: str, now: int, token: str) -> str:
        job = self.jobs.get(id)
        if not job:
            return "NOTFOUND"
        if before := job.answered(token):
            return str(before)
        if job.state in FINAL:
            return "STATE"
        if job.state != "running":
            job.said = token, "cancelled"
            job.notes.append([now, b"cancelled", reason.encode()])
            self._conclude(job, "cancelled", now)
            return "cancelled"
        if not job.cancelling:
            job.cancelling = True
            job.said = token, "cancelling"
            job.notes.append([now, b"cancelling", reason.encode()])
            self._tell(worker_of(job.run.executor), f"cancel {job.run.executor} {id} {len(job.attempts)}")
        return "cancelling"

    def retry(self, ids: Iterable[str], now: int, token: str) -> list[str]:
        return [self._retry(id, now, token) for id in ids]

    def _retry(self, id: str, now: int, token: str) -> str:
        job = self.jobs.get(id)
        if not job:
            return "NOTFOUND"
        if before := job.answered(token):
            return str(before)
        if job.state not in FINAL:
            return "STATE"
        job.said = token, "waiting"
        job.retried = job.crashes = job.lost = job.misses = 0
        job.group, job.result = "", None
        job.notes.append([now, b"retried", b""])
        job.arrival = self._next_arrival()
        job.move("waiting", now)
        self._event("retried", job)
        return "waiting"

    def delete(self, ids: Iterable[str]) -> list[str]:
        return [self._delete(id) for id in ids]

    def _delete(self, id: str) -> str:
        job = self.jobs.get(id)
        if not job:
            return "NOTFOUND"
        if job.state not in FINAL:
            return "STATE"
        del self.jobs[id]
        self._event("deleted", job)
        return "OK"

    # Verbs of workers

    def claim(self, executor: str, request: dict[str, Any], now: int) -> tuple[int, list[Claimed]]:
        """Returns the milliseconds to wait, and the jobs."""
        counter, given = self.claims.get(executor, (0, []))
        if request["counter"] == counter:
            jobs = [job for job in (self.holder(executor, *lease) for lease in given) if job]
            return 0 if given else self._next_wait(now), [claimed(job) for job in jobs]
        if request["counter"] < counter:
            raise errors.Invalid
        self._beat(now)
        self._advance(now)
        taken = self._take(executor, request, now)
        self.claims[executor] = request["counter"], [(job.new.id, len(job.attempts)) for job in taken]
        return 0 if taken else self._next_wait(now), [claimed(job) for job in taken]

    def _take(self, executor: str, request: dict[str, Any], now: int) -> list[Job]:
        taken: list[Job] = []
        for queue in request["queues"]:
            for job in self.index(queue, "waiting") if queue not in self.paused else []:
                if len(taken) == request["limit"]:
                    return taken
                self._start(job, executor, request, now)
                taken.append(job)
        return taken

    def _start(self, job: Job, executor: str, request: dict[str, Any], now: int) -> None:
        since = min(job.since, now)
        job.attempts.append(Attempt(len(job.attempts) + 1, executor, request.get("pid", 0), since, claimed=now))
        job.retried, job.retrying = job.retried + job.retrying, False
        job.lease, job.spared = request.get("lease", 30_000), 0
        job.move("running", now, place=now, timer=now + job.lease)
        self._event("claimed", job)

    def renew(
        self,
        worker: str,
        held: Sequence[Held],
        now: int,
        *,
        executors: Sequence[str],
        lease: int,
        started: Sequence[Started],
        about: str | None,
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
            job.timer, job.spared = now + lease, 0
            if job.cancelling:
                cancelled.append(one)
        in_store = [self.lease(job) for executor in executors for job in self.held(executor)]
        for executor, id, attempt, pid, delay in started:
            if job := self.holder(executor, id, attempt):
                job.run.pid, job.run.started = pid, job.run.claimed + delay
        self.workers = {name: row for name, row in self.workers.items() if row[0] > now - DAY}
        self.workers[worker] = now, about if about is not None else self.workers.get(worker, (0, ""))[1]
        self._advance(now)
        return cancelled, lost, [one for one in in_store if one not in named]

    def save(self, held: Held, checkpoint: bytes | None, progress: str | None, created: int | None) -> bool:
        job = self.holder(*held, created)
        if not job:
            raise errors.LeaseLost
        if checkpoint is not None:
            job.checkpoint = checkpoint
        if progress is not None:
            job.progress = progress
        self._event("saved", job)
        return job.cancelling

    def finish(self, executor: str, items: Sequence[Finish], now: int) -> list[str]:
        return [self._finish(executor, item, now) for item in items]

    def _finish(self, executor: str, item: Finish, now: int) -> str:
        job = self.holder(executor, item.id, item.attempt, item.created)
        name = OUTCOME_NAMES[type(item.outcome)]
        if not job:
            known = self.jobs.get(item.id)
            if known and item.created not in (None, known.created):
                return "LOST"
            runs = [run for run in known.attempts if run.number == item.attempt] if known else []
            return "OK" if runs and runs[0].executor == executor and runs[0].outcome == name else "LOST"
        if item.pid is not None:
            job.run.pid = item.pid
        if item.started is not None:
            job.run.started = job.run.claimed + item.started
        self._end_attempt(job, name, getattr(item.outcome, "reason", ""), now)
        job.misses = job.misses if isinstance(item.outcome, Unknown) else 0
        job.alone = job.alone and isinstance(item.outcome, Crash)
        self._apply_outcome(job, item, now)
        return "OK"

    def _apply_outcome(self, job: Job, item: Finish, now: int) -> None:
        match item.outcome:
            case Succeed(result):
                job.result = result
                self._conclude(job, "succeeded", now)
            case Error():
                self._fail_attempt(job, item.outcome, now)
            case Crash(error):
                job.run.error = error
                self._charge_crash(job, now)
            case Release(delay=delay) | Snoozed(delay=delay):
                self._event("released", job)
                self._come_back(job, delay, now)
            case Unknown():
                job.run.reason = f"task {job.new.task} is not known here"
                delay = min(5000 * 2**job.misses, 60_000)
                job.misses += 1
                self._event("released", job)
                self._come_back(job, delay, now)
            case Cancelled() if job.cancelling:
                self._conclude(job, "cancelled", now)
            case Cancelled():
                self._event("released", job)
                self._come_back(job, 0, now)

    def _fail_attempt(self, job: Job, error: Error, now: int) -> None:
        job.run.error = error.error
        if job.cancelling:
            self._conclude(job, "cancelled", now)
        elif error.final or job.retries == 0:
            self._fail(job, error.group, now)
        elif job.retried == job.retries:
            self._fail(job, "exhausted", now)
        else:
            delay = job.backoff * 2**job.retried if error.delay is None else error.delay
            job.retrying = True
            self._event("retried", job)
            if delay:
                job.move("scheduled", now, place=now + delay, timer=now + delay)
            else:
                job.arrival = self._next_arrival()
                job.move("waiting", now)

    def lose(self, *, executor: str | None, worker: str | None, reason: str, now: int) -> list[str]:
        lost = []
        for one in self.executors(worker) if worker else [executor or ""]:
            held = self.held(one)
            for job in held:
                self._lose_job(job, reason, now, charge="lost" if worker else "crash" if len(held) == 1 else "")
            lost += [job.new.id for job in held]
            if not held:
                self.claims.pop(one, None)
        if worker and not lost:
            self.workers.pop(worker, None)
            self.inboxes.pop(worker, None)
        return lost

    def _lose_job(self, job: Job, reason: str, now: int, *, charge: str) -> None:
        job.misses = 0
        self._end_attempt(job, charge or "released", reason, now)
        if charge == "lost":
            self._charge_lost(job, now)
        elif charge == "crash":
            self._charge_crash(job, now)
        else:
            job.alone = True
            self._event("released", job)
            self._come_back(job, 0, now)

    # Verbs that look, and the rest

    def listing(self, queues: Sequence[str] | None, states: Sequence[str] | None, *, newest: bool) -> list[Job]:
        order = -1 if newest else 1
        pairs = [(queue, state) for queue in queues or sorted(self.queues) for state in states or STATES]
        return [job for pair in pairs for job in self.index(*pair)[::order]]

    def place_of(self, job: Job, queues: Sequence[str]) -> Place:
        return queues.index(job.new.queue), STATES.index(job.state), job.order()

    def after(self, place: Place, queues: Sequence[str], *, newest: bool) -> list[Job]:
        """What stands behind a place in a listing, whether or not the job that stood there still does."""

        def is_behind(job: Job) -> bool:
            there = self.place_of(job, queues)
            return there[:2] > place[:2] or (there[:2] == place[:2] and (there < place if newest else there > place))

        return [job for job in self.listing(queues, None, newest=newest) if is_behind(job)]

    def count(self, queues: Sequence[str] | None, states: Sequence[str] | None) -> int:
        return len(self.listing(queues, states, newest=False))

    def queue_rows(self) -> list[list[Any]]:
        return [
            [queue, queue in self.paused, *(len(self.index(queue, state)) for state in STATES)]
            for queue in sorted(self.queues)
        ]

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
        elif self.pulse is not None:
            self.gaps.append((now, now - self.pulse))
        self.pulse = now

    def _advance(self, now: int) -> None:
        due = sorted((job.timer, job.new.id) for job in self.jobs.values() if job.timer and job.timer <= now)
        for _, id in due[:ADVANCE_AT_ONCE]:
            job = self.jobs[id]
            if job.state == "scheduled":
                job.arrival = self._next_arrival()
                job.move("waiting", now)
            else:
                self._expire(job, now)

    def _expire(self, job: Job, now: int) -> None:
        """End a lease, unless the store was away for long: then its holder has a whole lease to renew it."""
        until = max((end for end, length in self.gaps if 2 * length > job.lease), default=0) + job.lease
        if until > now and job.spared < SPARES:
            job.timer, job.spared = until, job.spared + 1
            return
        job.misses = 0
        self._end_attempt(job, "lost", "lease ended", now)
        self._charge_lost(job, now)

    def _next_wait(self, now: int) -> int:
        timers = [job.timer for job in self.jobs.values() if job.timer]
        return max(1, min([LONGEST_BLOCK, *(timer - now for timer in timers)]))

    # How attempts and jobs end

    def _end_attempt(self, job: Job, outcome: str, reason: str, now: int) -> None:
        job.run.ended, job.run.outcome, job.run.reason = max(now, job.run.claimed), outcome, reason

    def _charge_crash(self, job: Job, now: int) -> None:
        job.crashes += 1
        self._event("crashed", job)
        if job.crashes > job.most_crashes and not job.cancelling:
            self._fail(job, "crashed", now)
        else:
            self._come_back(job, 0, now)

    def _charge_lost(self, job: Job, now: int) -> None:
        job.lost += 1
        self._event("lost", job)
        if job.lost > job.most_lost and not job.cancelling:
            self._fail(job, "lost", now)
        else:
            self._come_back(job, 0, now)

    def _come_back(self, job: Job, delay: int, now: int) -> None:
        """In its old place, or after a delay; unless it was to be cancelled."""
        if job.cancelling:
            self._conclude(job, "cancelled", now)
        elif delay:
            job.move("scheduled", now, place=now + delay, timer=now + delay)
        else:
            job.move("waiting", now)

    def _fail(self, job: Job, group: str, now: int) -> None:
        job.group = group
        self._conclude(job, "failed", now)

    def _conclude(self, job: Job, state: str, now: int) -> None:
        job.cancelling = job.retrying = job.alone = False
        job.move(state, now, place=now)
        self._event(state, job)
        self._tell_waiters(job)

    def _tell_waiters(self, job: Job) -> None:
        for inbox in job.waiters:
            self._tell(inbox, job.new.id)

    def _tell(self, inbox: str, message: str) -> None:
        self.inboxes.setdefault(inbox, []).append(message)

    def _event(self, kind: str, job: Job) -> None:
        self.events.append((kind, job.new.id))

    def _next_arrival(self) -> int:
        self.arrivals += 1
        return self.arrivals


def worker_of(executor: str) -> str:
    return executor.rpartition(".")[0]


def claimed(job: Job) -> Claimed:
    new = job.new
    return Claimed(
        id=new.id,
        attempt=len(job.attempts),
        queue=new.queue,
        task=new.task,
        codec=new.codec or "json",
        payload=new.payload,
        checkpoint=job.checkpoint or b"",
        timeout=new.timeout or 0,
        created=job.created,
        alone=job.alone,
    )
