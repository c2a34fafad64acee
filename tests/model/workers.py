"""The model of executors and workers: claim, renew, save, detach, finish, requeue_orphaned and deregister."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from holdfast import errors
from holdfast.constants import MAX_DURATION
from holdfast.job.outcome import Advanced, Blocked, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown
from holdfast.job.retries import RetryWait
from holdfast.store.commands import ClaimedJob, Finish, Lease, Started
from tests.model import stages
from tests.model.core import Core
from tests.model.failures import clean, parts
from tests.model.job import DAY, Attempt, Job

LIVE = 30_000

OUTCOME_NAMES = {
    Succeed: "succeeded",
    Error: "error",
    Crash: "crash",
    Release: "released",
    Snoozed: "snoozed",
    Unknown: "unknown",
    Cancelled: "cancelled",
    Blocked: "snoozed",
    Advanced: "advanced",
}


@dataclass
class Claiming:
    """A claim, and what has become of it so far."""

    executor: str
    request: dict[str, Any]
    taken: list[Job] = field(default_factory=list)
    passed: int = 0  # those that could not start

    @property
    def left(self) -> int:
        return int(self.request["limit"]) - len(self.taken)


class Workers(Core):
    def claim(self, executor: str, request: dict[str, Any], now: int) -> tuple[int, list[ClaimedJob]]:
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
        is_partial = self._take(claim, now)
        self.claims[executor] = request["counter"], [(job.id, job.attempt) for job in claim.taken]
        wait = 1 if is_partial or claim.passed >= self.steps.parked else self._next_wait(now)
        return 0 if claim.taken else wait, [job.claimed(request) for job in claim.taken]

    def _take(self, claim: Claiming, now: int) -> bool:
        """Returns whether there are queues left that another claim has to ask."""
        if "pool" in claim.request:
            return self.pools.claim(claim, now)
        if "weights" in claim.request:
            self._take_fairly(claim, now)
        else:
            self._take_in_order(claim, now)
        return False

    def take_from(self, queue: str, most: int, claim: Claiming, now: int) -> tuple[int, bool]:
        """Returns how many jobs of a queue were taken, and whether the claim is complete."""
        limit, before = claim.request["limit"], len(claim.taken)
        if queue in self.paused:
            return 0, False
        self._take_some(queue, before + min(most, self._room(queue, limit)), claim, now)
        return len(claim.taken) - before, len(claim.taken) >= limit or claim.passed >= self.steps.parked

    def _take_in_order(self, claim: Claiming, now: int) -> None:
        """Of each queue its share, if there are shares; then whatever is left, in order."""
        limit, queues, shares = claim.request["limit"], claim.request["queues"], claim.request.get("shares")
        rounds = [(queue, limit) for queue in queues]
        if shares is not None:
            shares = [*shares, *[limit] * (len(queues) - len(shares))]
            rounds = [*zip(queues, shares, strict=False), *rounds]
        for queue, share in rounds:
            left = limit - len(claim.taken)
            if queue not in self.paused and left and claim.passed < self.steps.parked:
                most = min(share, left, self._room(queue, limit))
                self._take_some(queue, len(claim.taken) + most, claim, now)

    def _take_fairly(self, claim: Claiming, now: int) -> None:
        """One after the other of the queue with the fewest running jobs for its weight, as long as it has any."""
        limit, queues = claim.request["limit"], claim.request["queues"]
        waiting = {n: 0 if q in self.paused else len(self.index(q, "waiting")) for n, q in enumerate(queues)}
        running = {n: len(self.index(q, "running")) for n, q in enumerate(queues)}
        while True:
            planned: dict[int, int] = {}
            for _ in range(limit - len(claim.taken)):
                loads = [(Fraction(running[n], claim.request["weights"][n]), n) for n in waiting if waiting[n]]
                if loads:
                    least = min(loads)[1]
                    planned[least] = planned.get(least, 0) + 1
                    waiting[least] -= 1
                    running[least] += 1
            for n, count in planned.items():
                before = len(claim.taken)
                most = min(count, self._room(queues[n], limit))
                self._take_some(queues[n], before + most, claim, now)
                if len(claim.taken) == limit or claim.passed >= self.steps.parked:
                    return
                if len(claim.taken) - before < count:
                    waiting[n] = 0
            if not planned:
                return

    def _room(self, queue: str, most: int) -> int:
        concurrency = self.settings.value("concurrency", queue)
        return concurrency - len(self.index(queue, "running")) if concurrency else most

    def _take_some(self, queue: str, enough: int, claim: Claiming, now: int) -> None:
        """Until there are enough, or no more that could start."""
        while len(claim.taken) < enough and claim.passed < self.steps.parked:
            jobs = self.index(queue, "waiting")[: enough - len(claim.taken)]
            started = [job for job in jobs if self._start(job, claim.executor, claim.request, now)]
            claim.taken += started
            claim.passed += len(jobs) - len(started)
            self.settle(now)
            if len(started) == len(jobs):
                break

    def _start(self, job: Job, executor: str, request: dict[str, Any], now: int) -> bool:
        if self.operators.is_too_late(job, now):
            self.operators.miss(job, now)
            return False
        if not self.limits.may_start(job, now):
            return False
        job.start(executor, request, now)
        self.ledger.claimed(job.new.queue, job.new.task, max(0, now - job.run.waiting_since), now)
        if job.is_fair:
            self.shares.claimed(job)
        self._free(job, "queued")
        self.event("claimed", job)
        return True

    def renew(
        self,
        worker: str,
        held: Sequence[Lease],
        now: int,
        *,
        executors: Sequence[str],
        started: Sequence[Started],
        about: str | None,
        queues: list[str] | None,
    ) -> tuple[list[Lease], list[Lease], list[Lease]]:
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
        held: Lease,
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
            job.note(now, b"reported", words, who="")
        if renew:
            job.timer, job.spared, self.latest = now + job.lease, 0, max(now, self.latest)
        self.event("saved", job)
        return job.cancelling

    def attach_held(
        self, held: Lease, fields: dict[str, str], *, remove: Sequence[str], created: int | None
    ) -> tuple[bool, dict[str, str]]:
        job = self.holder(*held, created)
        if not job:
            raise errors.LeaseLost
        job.fields = {name: text for name, text in (job.fields | fields).items() if name not in remove}
        self.event("saved", job)
        return job.cancelling, dict(job.fields)

    def detach(self, held: Lease, to: str, now: int, *, created: int | None) -> bool:
        job = self.holder(*held, created)
        if job:
            job.run.executor = to
            job.timer, job.spared, self.latest = now + job.lease, 0, max(now, self.latest)
        else:
            job = self.holder(to, held.id, held.attempt, created)
        if not job:
            raise errors.LeaseLost
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
            is_same = runs and runs[0].executor == executor and runs[0].outcome == name
            return "OK" if known and is_same and _ended_so(known, runs[0], item.outcome) else "LOST"
        if refusal := stages.refusal(self, job, item.outcome, now):
            return refusal
        if item.pid is not None:
            job.run.pid = item.pid
        if item.started is not None:
            job.run.started = job.run.claimed + item.started
        is_stage = isinstance(item.outcome, Advanced)
        self.end_attempt(job, name, stages.stage(job.new) if is_stage else getattr(item.outcome, "reason", ""), now)
        job.misses = job.misses if isinstance(item.outcome, Unknown) else 0
        unstarted = isinstance(item.outcome, Unknown) or (isinstance(item.outcome, Release) and item.unstarted)
        job.alone = job.alone and (unstarted or isinstance(item.outcome, Crash))
        self._apply_outcome(job, item, now)
        return "OK"

    def _apply_outcome(self, job: Job, item: Finish, now: int) -> None:
        match item.outcome:
            case Succeed(result, note):
                job.result = result
                if note:
                    job.note(now, b"reported", note, who="")
                self.conclude(job, "succeeded", now)
            case Error():
                self._fail_attempt(job, item.outcome, now)
            case Crash(error):
                self._charge_crash(job, now, fingerprint=self._note_error(job, "crashed", error, now))
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
            case Blocked(after):
                stages.wait(self, job, after, now)
            case Advanced():
                stages.advance(self, job, item.outcome, now)

    def _note_error(self, job: Job, group: str, error: bytes, now: int) -> str:
        """Keep the error of an attempt. Returns its fingerprint."""
        job.run.fingerprint = self.failures.count(job, group, now, error)
        job.run.error = parts(error)[1]
        return job.run.fingerprint

    def _fail_attempt(self, job: Job, error: Error, now: int) -> None:
        name = self._note_error(job, clean(error.group), error.error, now)
        if error.group in ("timeout", "stalled"):
            self.event(error.group, job)
        if job.cancelling:
            self.conclude(job, "cancelled", now)
            return
        used = job.charge(job.budget(clean(error.group)))
        if error.final:
            self.fail(job, error.group, "declared" if error.final is True else error.final, now, fingerprint=name)
        elif job.new.at_most_once:
            self.fail(job, error.group, "at_most_once", now, fingerprint=name)
        elif used is None:
            self.fail(job, error.group, "exhausted", now, fingerprint=name)
        else:
            delay = _retry_delay(job, error, used) if error.delay is None else error.delay
            self.ledger.retried(job.new.queue, job.new.task, now)
            self.event("retried", job)
            if delay:
                job.move("scheduled", now, place=now + delay, timer=now + delay)
            else:
                self.arrive(job)
                self.to_waiting(job, now)

    def lose(
        self, *, executor: str | None, worker: str | None, reason: str, now: int, order: Sequence[str]
    ) -> list[str]:
        """`order` has executors and jobs as the store goes through them."""
        lost, places = [], {name: place for place, name in enumerate(order)}
        for one in sorted(self.executors(worker), key=lambda name: places.get(name, 0)) if worker else [executor or ""]:
            held = sorted(self.held(one), key=lambda job: places.get(job.id, 0))
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
            raise errors.WorkerNotFound
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


def _ended_so(job: Job, run: Attempt, outcome: Outcome) -> bool:
    """Whether an attempt ended in just this way, as far as its record tells."""
    match outcome:
        case Succeed(result):
            return job.state == "succeeded" and job.result == result
        case Error(error):
            return _failed_so(run, error) and run.reason == outcome.reason and _is_same_error(job, run, outcome)
        case Crash(error):
            return _failed_so(run, error) and not run.reason
        case Release(reason):
            return run.reason == reason
        case Blocked():
            return run.reason == stages.WAITS
        case Unknown() | Advanced():
            return True
    return not run.reason


def _failed_so(run: Attempt, error: bytes) -> bool:
    """Whether this is the error of an attempt; an exception also brings its fingerprint along."""
    described, description = parts(error)
    return run.error == description and run.fingerprint == ((described and described.fingerprint) or run.fingerprint)


def _retry_delay(job: Job, error: Error, used: int) -> int:
    """One of the waits that came with the error, or the backoff, doubled for each retry; capped, then spread."""
    wait = error.wait or RetryWait()
    sigma = job.option("backoff") * 2**used
    chosen = [*wait.waits, *[wait.waits[-1]] * used][used] if wait.waits else sigma
    capped = min(chosen, MAX_DURATION if wait.cap is None else wait.cap)
    return min(capped + capped * wait.spread // 1000, MAX_DURATION)


def _is_same_error(job: Job, run: Attempt, outcome: Error) -> bool:
    """Whether an error had this group and was as final, as far as its job tells, which may have gone on since."""
    if job.attempt != run.number or job.state == "cancelled":
        return True
    if job.state != "failed":
        return not outcome.final
    if job.final_reason not in ("exhausted", "declared", "refused", "not_retryable", "at_most_once"):
        return True
    if not outcome.final:
        wanted = ["exhausted", "at_most_once"]
    else:
        wanted = ["declared" if outcome.final is True else outcome.final]
    return job.final_reason in wanted and job.group == clean(outcome.group)
