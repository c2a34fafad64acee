"""The workbench: runs an app's jobs by hand, one after the other.

    claim ──▶ attempt ──▶ finish

Claims and outcomes go through the same functions of the store as a worker's. What has an async equal is what must run
in the event loop of the test; the store is asked from there too, for a moment.
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
from holdfast.client.timing import further_times
from holdfast.constants import MAX_BATCH, MAX_LEASE, MIN_TIMES_AHEAD
from holdfast.job import failure
from holdfast.job.job import Job
from holdfast.job.options import DEFAULT_QUEUE
from holdfast.job.outcome import Error, Outcome, Succeed
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease
from holdfast.task.call import Call, CallEnd, LocalCall
from holdfast.task.task import Task
from holdfast.testing.attempt import Link, call_of
from holdfast.units import Duration, milliseconds, utc
from holdfast.worker.runners.endings import refused_outcome

LEASE = MAX_LEASE  # the longest: a debugger may hold a job for a while
LIMIT = 1000  # jobs; after that, a task is believed to enqueue itself for ever
MENTIONED = 10  # of the jobs that are pending

Names = Sequence[str] | None


class Clock(Protocol):
    def __call__(self) -> int: ...
    def advance(self, milliseconds: int) -> None: ...


class Workbench:
    """Runs the jobs of an app where it is used by `use`, or by the pytest fixture `holdfast_app`."""

    def __init__(self, app: Holdfast, clock: Clock, directory: Path) -> None:
        self.app = app
        self._clock = clock
        self._directory = directory
        self._executor = f"workbench/{new_id()}.1"
        self._counter = itertools.count(1)

    @property
    def now(self) -> datetime:
        """The time as the store sees it."""
        return utc(self._clock())

    def advance(self, duration: Duration) -> None:
        """Let time pass in the store, so that jobs come due. The machine's clock stays as it is."""
        self._clock.advance(milliseconds(duration, what="the duration"))

    def declare_schedules(self) -> list[str]:
        """Declare the schedules of the app's tasks, as workers do when they start. Returns their names.

        From then on they fire when time passes: `advance`, then run what is waiting.
        """
        for declared in self.app.declared.values():
            self.app.store.run(commands.schedule(**declared))
        return list(self.app.declared)

    # Running

    def run_one(self, *, queues: Names = None, stopping: bool = False, raise_errors: bool = False) -> Job[Any] | None:
        """Run the job that is next, and return it as it is then; None if none is waiting.

        That is the first of the first of `queues` that has one; of all queues, by name, if none are given. How it ended
        is recorded as a worker would; with `raise_errors` what it raised is raised here too, except a `Retry` or a
        `Snooze`. With `stopping` it sees what a job sees at a deploy.
        """
        _refuse_in_loop()
        attempt = self._claim(queues, stopping)
        if attempt is None:
            return None
        return self._finish(attempt, copy_context().run(attempt.call), raise_errors)

    async def arun_one(
        self, *, queues: Names = None, stopping: bool = False, raise_errors: bool = False
    ) -> Job[Any] | None:
        """Run the job that is next, as `run_one` does: a coroutine in this event loop, a plain function in a thread."""
        attempt = self._claim(queues, stopping)
        if attempt is None:
            return None
        return self._finish(attempt, await attempt.acall(), raise_errors)

    def run_until_empty(
        self, limit: int = LIMIT, *, queues: Names = None, raise_errors: bool = False
    ) -> list[Job[Any]]:
        """Run jobs until none is waiting, also those that they enqueue. Returns each as it was after it ran.

        What is due later stays: see `advance`.

        Raises:
            AssertionError: `limit` jobs ran, and more are waiting.
        """
        done: list[Job[Any]] = []
        while len(done) < limit:
            job = self.run_one(queues=queues, raise_errors=raise_errors)
            if job is None:
                return done
            done.append(job)
        self._refuse_more(done, queues)
        return done

    async def arun_until_empty(
        self, limit: int = LIMIT, *, queues: Names = None, raise_errors: bool = False
    ) -> list[Job[Any]]:
        """Run jobs until none is waiting, as `run_until_empty` does."""
        done: list[Job[Any]] = []
        while len(done) < limit:
            job = await self.arun_one(queues=queues, raise_errors=raise_errors)
            if job is None:
                return done
            done.append(job)
        self._refuse_more(done, queues)
        return done

    def _claim(self, queues: Names, stopping: bool) -> LocalCall | None:
        self._refill()
        if queues is not None:
            return self._claim_of(queues, stopping) if queues else None
        # Also if there is no queue: whoever claims moves time on, and a schedule that fires then may make a new one.
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
            link = Link(self.app.store, Lease(self._executor, job.id, job.attempt), stopping=stopping)
            return LocalCall(call_of(job, self._directory / new_id()), self.app.tasks.get(job.task), link)
        return None

    def _refill(self) -> None:
        """Tell the store further times of schedules, as workers do, before it comes to those that it has."""
        for fields in self.app.store.run(commands.schedules()):
            ahead = sum(int(time) > int(fields["now"]) for time in fields.get("times", "").split())
            if ahead < MIN_TIMES_AHEAD and (further := further_times(fields)):
                self.app.store.run(commands.refill(fields["name"], *further))

    def _finish(self, attempt: LocalCall, end: CallEnd, raise_errors: bool) -> Job[Any]:
        job = attempt.job
        shutil.rmtree(job.directory, ignore_errors=True)
        (before,) = self.app.get_many([job.id])
        answer = self._say(job, end.outcome)
        end.reraise(raise_errors)
        if answer not in ("OK", "LOST"):  # then that is how it ended, as at a worker
            refused = refused_outcome(end.outcome, answer)
            answer = self._say(job, refused)
            if raise_errors and isinstance(refused, Error):
                raise errors.Invalid(failure.decode(refused.error).message)
        if answer != "OK":
            raise errors.BY_CODE[answer](f"the outcome of attempt {job.attempt} of job {job.id} is refused")
        (after,) = self.app.get_many([job.id])
        return after or _gone(before or self.app.get(job.id), end)

    def _say(self, job: Call, outcome: Outcome) -> str:
        """Say how an attempt ended. Returns the store's answer."""
        item = Finish(job.id, job.attempt, outcome, os.getpid(), 0)
        return self.app.store.run(commands.finish(self._executor, [item])).answers[0]

    def _refuse_more(self, done: Sequence[Job[Any]], queues: Names) -> None:
        left = [queue.name for queue in self.app.queues() if queue.counts["waiting"] and not queue.paused]
        if any(queues is None or name in queues for name in left):
            last = ", ".join(job.task for job in done[-3:])
            raise AssertionError(
                f"{len(done)} jobs ran, and more are waiting. Does a task enqueue itself? If not, give a higher limit. "
                f"The last were of {last or 'no task'}"
            )

    # Looking

    def jobs(self, task: Task[..., Any] | None = None) -> list[Job[Any]]:
        """Return all jobs, or those of a task, in the order in which they were enqueued, as they are now."""
        ids = self._enqueued_ids()
        parts = [self.app.get_many(ids[first : first + MAX_BATCH]) for first in range(0, len(ids), MAX_BATCH)]
        return [job for part in parts for job in part if job and (task is None or job.task == task.name)]

    def enqueued(self, task: Task[..., Any]) -> list[dict[str, Any]]:
        """Return the arguments of each job of a task, by name, as they were given, in the order of `jobs`.

        assert bench.enqueued(welcome) == [{"address": "ann@example.org"}]
        """
        return [_arguments(task, job.payload or b"{}") for job in self.jobs(task)]

    def assert_nothing_pending(self) -> None:
        """Fail if a job has not ended: it waits, is blocked by another or by a limit, or is due later."""
        if found := list(self.app.list(state="pending", limit=MENTIONED)):
            pending = filter(None, self.app.get_many([job.id for job in found]))
            lines = "".join(f"\n  {job.state}: {job.task}, job {job.id}{_when(job)}" for job in pending)
            raise AssertionError(f"{self.app.count(state='pending')} jobs have not ended:{lines}")

    def _enqueued_ids(self) -> list[str]:
        """Neither ids nor times tell the order of what was enqueued in one millisecond. The events do."""
        ids: dict[str, None] = {}
        after = "0"
        while events := self.app.events(after, limit=MAX_BATCH):
            ids.update((id, None) for event in events if event.type == "enqueued" for id in event.jobs)
            after = events[-1].id
        return list(ids)


def _refuse_in_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("an event loop is running here: await arun_one() or arun_until_empty() instead")


def _when(job: Job[Any]) -> str:
    if job.due_at:
        return f", due at {job.due_at:%Y-%m-%d %H:%M:%S} UTC"
    if job.state == "blocked":
        left = [f"{each.id} ({each.state})" for each in (*job.after, *job.waits) if each.state != "succeeded"]
        return f", waits for {', '.join(left)}"
    return f", by the limit {job.throttled_by}" if job.throttled_by else ""


def _arguments(task: Task[..., Any], payload: bytes) -> dict[str, Any]:
    """Return what is stored of a call, decoded; what is left to defaults is not stored."""
    signature = task.signature
    args, kwargs = signature.decode(payload)
    bound = signature.python.bind(*args, **kwargs).arguments
    keys = {name: each.key for name, each in zip(signature.python.parameters, signature.parameters, strict=True)}
    given = msgspec.json.decode(payload)
    return {name: value for name, value in bound.items() if keys[name] in given}


def _gone(job: Job[Any], end: CallEnd) -> Job[Any]:
    """A job that is not kept, as it was when it ended."""
    if isinstance(end.outcome, Succeed):
        return msgspec.structs.replace(job, state="succeeded", result_bytes=end.outcome.result)
    return msgspec.structs.replace(job, state="cancelled")
