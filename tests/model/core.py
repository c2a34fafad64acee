"""The jobs of the model and how time changes them: the rules that its methods share. See `model.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.constants import MAX_IDLE_WAIT
from holdfast.store.commands import Lease
from tests.model.batches import Batches
from tests.model.dependencies import Dependencies
from tests.model.events import Announcements
from tests.model.failures import Failures, clean
from tests.model.job import Job, Settings, Steps
from tests.model.limits import Limits
from tests.model.load import Load
from tests.model.marks import Marks
from tests.model.operations import PAUSE, Operations
from tests.model.operators import Operators
from tests.model.pools import Pools
from tests.model.schedules import Schedules
from tests.model.shares import Shares
from tests.support.new_job import NewJob
from tests.support.statistics_ledger import Ledger

PRUNE_INTERVAL = 1000
SET_ASIDE = 2**45  # before all others that have ended
SPARES = 3


class Core:
    schedules: Schedules

    def __init__(self, final_order: Sequence[str], steps: Steps) -> None:
        self.steps = steps
        self.settings = Settings()
        self.jobs: dict[str, Job] = {}
        self.dependencies = Dependencies(self)
        self.limits = Limits(self)
        self.shares = Shares(self)
        self.operators = Operators(self)
        self.failures = Failures(self)
        self.marks = Marks(self)
        self.operations = Operations(self)
        self.load = Load()
        self.ledger = Ledger()
        self.batches = Batches(self)
        self.pools = Pools(self)  # type: ignore[arg-type]
        self.storing: dict[str, NewJob] = {}  # in this call
        self.keys: dict[str, tuple[str | int, Job]] = {}  # unique key -> for how long which job has it
        self.queues: set[str] = set()
        self.paused: set[str] = set()
        self.claims: dict[str, tuple[int, list[tuple[str, int]]]] = {}  # executor -> counter and jobs of its last claim
        self.workers: dict[str, int] = {}  # when they were seen
        self.said: dict[str, tuple[str, list[str]]] = {}  # by workers: of themselves, and which queues they serve
        self.inboxes: dict[str, list[str]] = {}
        self.events = Announcements()
        self.answers: dict[str | None, Any] = {}  # by token
        self.was_idle = False  # the last call had nothing to do
        self.arrivals = 0
        self.pulse: int | None = None
        self.latest = 0  # time of a call, since it was last noticed that the clock went back
        self.pruned = 0
        self.prune_after = ""  # the queue after which to go on
        self.surplus = False  # more ended jobs than one call removes
        self.final_order = final_order  # in which ended jobs leave, if not all can at once
        self.ended: Counter[tuple[str, str]] = Counter()  # in this call: queue and state
        self.gaps: list[tuple[int, int]] = []  # when the store was back, and how long it had been away

    def answer(self, token: str | None, call: Callable[[], Any]) -> Any:
        """What a call says; the same again, if it comes again with the same token, unless it had done nothing."""
        if token in self.answers:
            return self.answers[token]
        self.was_idle = False
        self.dependencies.begin_call()
        self.operations.begin_call()
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

    def lease(self, job: Job) -> Lease:
        return Lease(job.run.executor, job.id, job.attempt)

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
        self.pools.moved(job, job.state, "")
        self._free(job, "queued", "pending", "kept")
        self.marks.removed(job)
        del self.jobs[job.id]

    # What begins

    def begin(self, job: Job, arrival: int, now: int) -> bool:
        """Wait for others, for its time, or for an executor."""
        new = job.new
        due = new.at if new.at is not None else now + (new.delay or 0)
        job.due = due if new.after and due > now else 0
        is_doomed = self.dependencies.begin(job, arrival)
        self.operators.set_deadline(job, now)
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
            self.ledger.arrived(job.new.queue, now)
        job.move("waiting", now)

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
        self.dependencies.settle(now)
        self.batches.settle(now)

    def _advance(self, now: int) -> None:
        self.dependencies.go_on(now)
        due = sorted((time, name) for name, time in self.timers().items() if time <= now)
        for _, name in due[: self.steps.advanced]:
            self._ring(name, now)
        self.settle(now)
        if self.surplus or abs(now - self.pruned) >= PRUNE_INTERVAL:
            self._prune_in_turn(now)
            self.operations.expire(now)
        self.operations.upkeep(now)

    def _prune_in_turn(self, now: int) -> None:
        self.pruned, last, self.prune_after = now, self.prune_after, ""
        left = self.steps.pruned - self._remove_expired(self.steps.pruned, now)
        for queue in sorted(name for name in self.queues if name > last):
            if left <= 0:
                self.prune_after = last
                break
            for state in self.final_order:
                left -= self._prune(queue, state, left, now)
            if left <= 0:
                self.prune_after = last
                break
            self.shares.prune(queue)
            if self.index(queue, "waiting"):
                self.pools.mark(queue)
            last = queue
        self.pools.prune(now)
        self.surplus = left <= 0
        self.batches.remove_expired(now)

    def _ring(self, name: str, now: int) -> None:
        job = self.jobs.get(name)
        if name[0] == "%":
            del self.limits.timers[name[1:]]
            self.limits.hand_on(name[1:], now)
        elif name[0] == "=":
            self.limits.expire(name[1:], now)
        elif name[0] == "&":
            self.schedules.fire(name[1:], now)
        elif name[0] == "!":
            self.settle(now)
            self.operators.ring(name[1:], now)
        elif job and job.state == "scheduled":
            self.arrive(job)
            self.to_waiting(job, now)
        elif job and job.state == "running":
            self._expire(job, now)

    def timers(self) -> dict[str, int]:
        jobs = self.jobs.values()
        return {
            **{job.id: job.timer for job in jobs if job.timer},
            **{f"!{job.id}": job.deadline_at for job in jobs if job.has_timer},
            **{f"%{full}": time for full, time in self.limits.timers.items()},
            **self.limits.expiries(),
            **self.schedules.timers(),
        }

    def _prune(self, queue: str, state: str, most: int, now: int) -> int:
        """Remove ended jobs that are too old or too many, the oldest first. Returns how many."""
        ended = self.index(queue, state)
        last = now - self.settings.value(f"keep_{state}", queue)
        too_many = ended[: max(0, min(most, len(ended) - self.settings.value(f"keep_{state}_count", queue)))]
        for job in too_many:
            self._erase(job)
        old = [job for job in ended if job not in too_many and 0 <= job.place <= last][: max(0, most - len(too_many))]
        for job in old:
            if job.own_keep is not None and job.removal() > now:
                job.place = job.since - SET_ASIDE
            else:
                self._erase(job)
        return len(too_many) + len(old)

    def _remove_expired(self, most: int, now: int) -> int:
        """Those whose own time is over, unless they failed and their queue keeps such. Returns how many came up."""
        due = sorted((job.expires, job.id) for job in self.jobs.values() if job.expires and job.expires <= now)[:most]
        for _, id in due:
            job = self.jobs[id]
            if job.removal() > now:
                job.expires = job.removal()
            else:
                self._erase(job)
        return len(due)

    def _erase(self, job: Job) -> None:
        self._remove(job)
        self.dependencies.remember(job)
        self.dependencies.forget(job.id)
        self.event("deleted", job)

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
        if self.dependencies.is_unfinished or self.surplus:
            return 1
        longest = PAUSE if self.operations.is_stepped else MAX_IDLE_WAIT
        return max(1, min([longest, *(timer - now for timer in self.timers().values())]))

    # How attempts and jobs end

    def end_attempt(self, job: Job, outcome: str, reason: str, now: int) -> None:
        job.run.ended, job.run.outcome, job.run.reason = max(now, job.run.claimed), outcome, reason
        self.limits.give_back(job, now)
        ran = job.run.ended - job.run.claimed
        self.load.ended(job.new.queue, ran, now)
        self.ledger.ended(job.new.queue, job.new.task, ran, now, is_run=outcome in ("succeeded", "advanced"))

    def _charge_crash(self, job: Job, now: int, *, fingerprint: str = "") -> None:
        job.crashes_used += 1
        self.event("crashed", job)
        if (job.new.at_most_once or job.crashes_used > job.option("crashes")) and not job.cancelling:
            why = "at_most_once" if job.new.at_most_once else "exhausted"
            self.fail(job, "crashed", why, now, fingerprint=fingerprint)
        else:
            self._try_again(job, now)

    def _charge_lost(self, job: Job, now: int) -> None:
        job.lost_used += 1
        self.event("lost", job)
        if (job.new.at_most_once or job.lost_used > job.option("lost")) and not job.cancelling:
            self.fail(job, "lost", "at_most_once" if job.new.at_most_once else "exhausted", now)
        else:
            self._try_again(job, now)

    def _try_again(self, job: Job, now: int) -> None:
        if not job.cancelling:
            self.ledger.retried(job.new.queue, job.new.task, now)
        self.come_back(job, 0, now)

    def come_back(self, job: Job, delay: int, now: int, *, did_not_start: bool = False) -> None:
        """In its old place, or after a delay; unless it was to be cancelled, or to run once at most."""
        if job.cancelling:
            self.conclude(job, "cancelled", now)
        elif job.new.at_most_once and not did_not_start:
            self.fail(job, "interrupted", "at_most_once", now)
        else:
            if did_not_start and job.unique and self.owner(job.unique[0], now) is None:
                self.keys[job.unique[0]] = job.unique[1], job
            if delay:
                job.move("scheduled", now, place=now + delay, timer=now + delay)
            else:
                self.to_waiting(job, now)

    def fail(self, job: Job, group: str, reason: str, now: int, *, fingerprint: str = "") -> None:
        """With the fingerprint of the error, if there was one."""
        job.group, job.final_reason = clean(group), reason
        job.fingerprint = fingerprint or self.failures.count(job, job.group, now)
        self.ledger.failed(job.new.queue, job.new.task, now)
        self.conclude(job, "failed", now, {"group": job.group, "why": reason})
        self.failures.list_job(job)

    def conclude(self, job: Job, state: str, now: int, details: dict[str, str] | None = None) -> None:
        details = job.stop_request if state == "cancelled" and job.cancelling else details
        job.cancelling = job.retrying = job.alone = False
        self._free(job, "queued", "pending")
        self.dependencies.leave(job)
        self.operators.drop_deadline(job)
        self.limits.leave(job, now)
        if job.awaited:
            self.dependencies.note_end(job.id, state[0].upper())
        self.batches.note_end(job, state)
        if self._goes(job, state):
            self._remove(job)
            job.state = state
            self.dependencies.remember(job)
        else:
            job.move(state, now, place=now)
            job.expires = job.removal() if job.own_keep is not None else 0
            self.ended[job.new.queue, state] += 1
        self.event(state, job, details)
        self._tell_waiters(job)

    def _goes(self, job: Job, state: str) -> bool:
        """Not if somebody may want to retry it."""
        return job.new.keep is False and (
            state == "succeeded" or (state == "cancelled" and not self.dependencies.line(job.id))
        )

    def _tell_waiters(self, job: Job) -> None:
        for inbox in job.waiters:
            self.send_message(inbox, job.id)

    def send_message(self, inbox: str, message: str) -> None:
        self.inboxes.setdefault(inbox, []).append(message)

    def know_queue(self, queue: str) -> None:
        self.queues.add(queue)

    def event(self, kind: str, job: Job, details: dict[str, str] | None = None) -> None:
        self.events.of(kind, job, details)

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
