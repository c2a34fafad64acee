"""The workbench: runs an app's jobs in a test, one after the other.

    claim ──▶ attempt ──▶ finish

It claims and finishes jobs with the same functions of the store as a worker. Methods that run jobs have an async
variant for the event loop of the test; it blocks the loop during the short calls to the store.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Sequence
from contextvars import copy_context
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast import errors
from holdfast.app import Holdfast
from holdfast.client.limits import declarations
from holdfast.client.timing import further_times
from holdfast.constants import MAX_BATCH, MAX_LEASE, MIN_TIMES_AHEAD
from holdfast.events.handlers import HandlerSpec
from holdfast.job import failure
from holdfast.job.job import Job
from holdfast.job.options import DEFAULT_QUEUE
from holdfast.job.outcome import Error, Outcome, Succeed
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease, LeasedSubscription
from holdfast.task.call import Call, CallEnd, LocalCall
from holdfast.task.task import Task
from holdfast.testing.assertions import MAX_LISTED, Wanted, arguments, find, missing, why_pending
from holdfast.testing.attempt import StoreLink, call_of
from holdfast.units import Duration, milliseconds, utc
from holdfast.worker.runners.endings import refused_outcome

LEASE = MAX_LEASE  # a debugger may stop a job for a long time
EVENTS_AT_ONCE = 10  # each is at most 10 jobs of a handler, and 100 are delivered in one call
LIMIT = 1000  # jobs; with more, a task probably enqueues itself endlessly

QueueNames = Sequence[str] | None


class Clock(Protocol):
    def __call__(self) -> int: ...
    def advance(self, milliseconds: int) -> None: ...


class Workbench:
    """Runs the jobs of an app in a test; made by `use` and by the pytest fixture `holdfast_app`."""

    def __init__(self, app: Holdfast, clock: Clock, directory: Path) -> None:
        self.app = app
        self._clock = clock
        self._directory = directory
        self._executor = f"workbench/{new_id()}.1"
        self._counter = itertools.count(1)
        self._declared_limits = 0  # how many limits of the app

    @property
    def now(self) -> datetime:
        """The time of the store."""
        return utc(self._clock())

    def advance(self, duration: Duration) -> None:
        """Advance the time of the store, so that jobs become due. The machine's clock does not change."""
        self._clock.advance(milliseconds(duration, what="the duration"))

    def declare_schedules(self) -> list[str]:
        """Declare the schedules of the app's tasks, as workers do when they start. Return their names.

        They fire when time passes: call `advance`, then run the waiting jobs.
        """
        for declared in self.app.declared_schedules.values():
            self.app.store.run(commands.declare_schedule(**declared))
        return list(self.app.declared_schedules)

    def deliver_events(self) -> list[str]:
        """Enqueue a job for each event that a handler of the app has not got yet, as workers do. Return their ids.

        The handlers get all events since the beginning of the test. Run the jobs afterwards.
        """
        run, declared = self.app.store.run, self.app.declared_subscriptions
        for each in declared.values():
            run(commands.declare_subscription(**each | {"start": "start"}))
        if not declared:
            return []
        worker = self._executor.rpartition(".")[0]
        leased = run(commands.lease_subscriptions(list(declared), worker, LEASE))
        return [id for each in leased if not each.is_paused for id in self._deliver(each, worker)]

    def _deliver(self, subscription: LeasedSubscription, worker: str) -> list[str]:
        run, position, ids = self.app.store.run, subscription.position, list[str]()
        spec = HandlerSpec.decode(subscription.spec)
        while (page := run(commands.events(position, limit=EVENTS_AT_ONCE))).position:
            jobs = [job for event in page.events for job in spec.jobs(subscription.name, event)]
            run(commands.deliver(subscription.name, worker, position, page.position, jobs))
            position, ids = page.position, [*ids, *(id for id, _ in jobs)]
        return ids

    def _declare_limits(self) -> None:
        """Declare the limits of the app before its jobs run, as workers do when they start."""
        declared = declarations(self.app.declared_limits.values(), self.app.revision)
        for each in declared[self._declared_limits :]:
            self.app.store.run(commands.declare_limit(**each))
        self._declared_limits = len(declared)

    # Running

    def run_one(
        self, *, queues: QueueNames = None, stopping: bool = False, raise_errors: bool = False
    ) -> Job[Any] | None:
        """Run the next job, and return its record afterwards; None if no job is waiting.

        The job comes from the first of `queues` that has one; without `queues`, from all queues in the order of their
        names. The outcome is recorded as a worker records it. With `raise_errors`, an exception of the job is raised
        here as well, unless it is a `Retry` or a `Snooze`. With `stopping`, the job sees a worker that shuts down.
        """
        require_no_loop("arun_one() or arun_until_empty()")
        attempt = self._claim(queues, stopping)
        if attempt is None:
            return None
        return self._finish(attempt, copy_context().run(attempt.call), raise_errors)

    async def arun_one(
        self, *, queues: QueueNames = None, stopping: bool = False, raise_errors: bool = False
    ) -> Job[Any] | None:
        """Run the next job, like `run_one`: coroutines in this event loop, plain functions in a thread."""
        attempt = self._claim(queues, stopping)
        if attempt is None:
            return None
        return self._finish(attempt, await attempt.acall(), raise_errors)

    def run_until_empty(
        self, limit: int = LIMIT, *, queues: QueueNames = None, raise_errors: bool = False
    ) -> list[Job[Any]]:
        """Run jobs, and those that they enqueue, until none is waiting. Return the record of each job after its run.

        Jobs that are due later are not run: see `advance`.

        Raises:
            AssertionError: jobs are still waiting after `limit` jobs have run.
        """
        done: list[Job[Any]] = []
        while len(done) < limit:
            job = self.run_one(queues=queues, raise_errors=raise_errors)
            if job is None:
                return done
            done.append(job)
        self._require_empty(done, queues)
        return done

    async def arun_until_empty(
        self, limit: int = LIMIT, *, queues: QueueNames = None, raise_errors: bool = False
    ) -> list[Job[Any]]:
        """Run jobs until none is waiting, like `run_until_empty`."""
        done: list[Job[Any]] = []
        while len(done) < limit:
            job = await self.arun_one(queues=queues, raise_errors=raise_errors)
            if job is None:
                return done
            done.append(job)
        self._require_empty(done, queues)
        return done

    def _claim(self, queues: QueueNames, stopping: bool) -> LocalCall | None:
        self._declare_limits()
        self._refill()
        if queues is not None:
            return self._claim_of(queues, stopping) if queues else None
        # Claim even if there is no queue: claiming processes timers, and a schedule that fires may create one.
        before, names = None, self._queue_names()
        while names != before:
            if attempt := self._claim_of(names or [DEFAULT_QUEUE], stopping):
                return attempt
            before, names = names, self._queue_names()
        return None

    def _queue_names(self) -> list[str]:
        return [queue.name for queue in self.app.queues()]

    def _claim_of(self, names: Sequence[str], stopping: bool) -> LocalCall | None:
        request = commands.claim_args(
            names, counter=next(self._counter), limit=1, lease=LEASE, pid=os.getpid(), idle=True
        )
        for job in self.app.store.run(commands.claim(self._executor, request)).jobs:
            link = StoreLink(self.app.store, Lease(self._executor, job.id, job.attempt), stopping=stopping)
            return LocalCall(call_of(job, self._directory / new_id()), self.app.tasks.get(job.task), link)
        return None

    def _refill(self) -> None:
        """Send further firing times of schedules to the store before it runs out of them, as workers do."""
        for fields in self.app.store.run(commands.schedules()):
            ahead = sum(int(time) > int(fields["now"]) for time in fields.get("times", "").split())
            if ahead < MIN_TIMES_AHEAD and (further := further_times(fields)):
                self.app.store.run(commands.refill(fields["name"], *further))

    def _finish(self, attempt: LocalCall, end: CallEnd, raise_errors: bool) -> Job[Any]:
        job = attempt.job
        shutil.rmtree(job.directory, ignore_errors=True)
        (before,) = self.app.get_many([job.id])
        answer = self._record(job, end.outcome)
        end.reraise(raise_errors)
        if answer not in ("OK", "LOST"):  # the store refused the outcome: record that, as a worker does
            refused = refused_outcome(end.outcome, answer)
            answer = self._record(job, refused)
            if raise_errors and isinstance(refused, Error):
                raise errors.Invalid(failure.decode(refused.error).message)
        if answer != "OK":
            raise errors.BY_CODE[answer](f"the store refused the outcome of attempt {job.attempt} of job {job.id}")
        (after,) = self.app.get_many([job.id])
        return after or _final_record(before or self.app.get(job.id), end)

    def _record(self, job: Call, outcome: Outcome) -> str:
        """Record the outcome of an attempt. Return the reply of the store."""
        if isinstance(outcome, Error):  # without a random part: tests know when a retry is due
            outcome = outcome.with_wait(job.policy_for(outcome.group), 0)
        item = Finish(job.id, job.attempt, outcome, os.getpid(), 0)
        return self.app.store.run(commands.finish(self._executor, [item], revision=self.app.revision)).answers[0]

    def _require_empty(self, done: Sequence[Job[Any]], queues: QueueNames) -> None:
        waiting = [queue.name for queue in self.app.queues() if queue.counts["waiting"] and not queue.paused]
        if any(queues is None or name in queues for name in waiting):
            last = ", ".join(job.task for job in done[-3:])
            raise AssertionError(
                f"jobs are still waiting after {len(done)} jobs have run; the last tasks were {last or 'none'}. Does a "
                "task enqueue itself endlessly? If not, pass a higher limit"
            )

    # Inspecting

    def jobs(self, task: Task[..., Any] | None = None) -> list[Job[Any]]:
        """Return the current records of all jobs, or of the jobs of a task, in the order of their enqueueing."""
        ids, _ = self._enqueued_since("start")
        return [job for job in self._records(list(dict.fromkeys(ids))) if task is None or job.task == task.name]

    def enqueued(self, task: Task[..., Any]) -> list[dict[str, Any]]:
        """Return the arguments of each job of a task, by name, in the order of `jobs`.

        assert bench.enqueued(welcome) == [{"address": "ann@example.org"}]
        """
        return [arguments(task, job.payload or b"{}") for job in self.jobs(task)]

    def assert_nothing_pending(self) -> None:
        """Raise AssertionError if a job has not ended: it is waiting, running, blocked, throttled, or due later."""
        if found := list(self.app.list(state="pending", limit=MAX_LISTED)):
            pending = filter(None, self.app.get_many([job.id for job in found]))
            lines = "".join(f"\n  {job.state}: {job.task}, job {job.id}{why_pending(job)}" for job in pending)
            raise AssertionError(f"{self.app.count(state='pending')} jobs have not ended:{lines}")

    def assert_enqueued(self, task: Task[..., Any], count: int | None = None, /, **arguments: Any) -> list[Job[Any]]:
        """Raise AssertionError unless jobs of a task were enqueued: at least one, or exactly `count`.

        bench.assert_enqueued(welcome, address="ann@example.org")
        bench.assert_enqueued(remind.options(delay="7d"), 1)

        Arguments that are not named may have any value; so may options, except those given in `task.options(...)`. Jobs
        that have run count too, but no longer show their `delay` or `at`. Returns the jobs.

        Raises:
            AssertionError: there are fewer or more; the message has the nearest jobs.
            Invalid: the task has no such parameter, or the record of a job does not show such an option.
        """
        __tracebackhide__ = True
        if count is not None and type(count) is not int:
            raise errors.Invalid(f"count is {count!r:.100}; expected an integer. Name the arguments of the task")
        if count is not None and count < 0:
            raise errors.Invalid(f"count is {count}; it must be at least 0")
        wanted, jobs = Wanted.of(task, arguments), self.jobs()
        found = find(jobs, wanted, all_of_them=count is not None)
        is_right = bool(found) if count is None else len(found) == count
        if not is_right:
            raise AssertionError(missing(jobs, wanted, len(found), count))
        return found

    def assert_not_enqueued(self, task: Task[..., Any], /, **arguments: Any) -> None:
        """Raise AssertionError if a job of a task was enqueued with these arguments, like `assert_enqueued`."""
        __tracebackhide__ = True
        self.assert_enqueued(task, 0, **arguments)

    def _records(self, ids: Sequence[str]) -> list[Job[Any]]:
        """Return the records of those jobs that are still kept."""
        parts = [self.app.get_many(ids[first : first + MAX_BATCH]) for first in range(0, len(ids), MAX_BATCH)]
        return [job for part in parts for job in part if job]

    def _enqueued_since(self, after: str) -> tuple[list[str], str]:
        """Return the ids of jobs enqueued after an event, and the last event.

        An id occurs again if its job was removed and enqueued again. They are in the order of the events: ids and times
        do not order jobs of the same millisecond.
        """
        ids: list[str] = []
        while events := self.app.events(after, limit=MAX_BATCH):
            ids += [id for event in events if event.type == "enqueued" for id in event.jobs]
            after = events[-1].id
        return ids, after


def require_no_loop(instead: str) -> None:
    """Refuse to block an event loop that runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"an event loop is running in this thread; await {instead} instead")


def _final_record(job: Job[Any], end: CallEnd) -> Job[Any]:
    """Return the final record of a job that the store did not keep."""
    if isinstance(end.outcome, Succeed):
        return msgspec.structs.replace(job, state="succeeded", result_bytes=end.outcome.result)
    return msgspec.structs.replace(job, state="cancelled")
