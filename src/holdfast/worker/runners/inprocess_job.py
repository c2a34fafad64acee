"""A job that shares the executor's process, as a coroutine or a thread.

Nothing can kill a coroutine or a thread: it is asked to end. A coroutine is cancelled. A thread gets a SystemExit, as a
process does that receives SIGTERM: it is raised when the job next uses `current_job()` (`stopping`, `save`, `report`,
`each`). A job that has not ended a second later is abandoned: its outcome is discarded, and its executor claims no more
and exits when the other jobs have ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import Invalid
from holdfast.job.outcome import Outcome
from holdfast.running.running_job import RunningJob
from holdfast.task.call import app_of, outcome_of_exception
from holdfast.task.task import Task
from holdfast.worker.attempt import GRACE, Attempt
from holdfast.worker.runners.endings import forced_outcome, unable_to_run
from holdfast.worker.runners.loop_calls import LoopCalls
from holdfast.worker.runners.run_limits import LimitWatch
from holdfast.worker.stacks import coroutine_stack, stack_of, thread_stack

Tasks = Mapping[str, Task[..., Any]]

_BLOCKING = {
    "once": "job.once(...)",
    "flush": "job.save(..., flush=True)",
    "attach": "job.attach(...)",
    "tag": "job.tag(...)",
}  # by request
_AWAITED = {
    "once": "await job.aonce(...)",
    "flush": "await job.asave(...)",
    "attach": "await job.aattach(...)",
    "tag": "await job.atag(...)",
}


class ForkCount:
    """Counts the forks of this process."""

    count = 0

    @classmethod
    def add(cls) -> None:
        cls.count += 1


os.register_at_fork(before=ForkCount.add)


class InProcessJobs:
    """The jobs that run in this process. `on_abandoned` is called with each attempt that does not end when asked to."""

    def __init__(self, tasks: Tasks, *, on_abandoned: Callable[[Attempt], None]) -> None:
        self.tasks = tasks
        self.loop = asyncio.get_running_loop()
        self.calls = LoopCalls(self.loop)
        self.on_abandoned = on_abandoned
        self.pid = os.getpid()
        self.running: set[InProcessJob] = set()  # also keeps coroutines from being garbage-collected

    def close(self) -> None:
        """Ask all jobs to end; their outcomes are no longer reported."""
        for job in list(self.running):
            if not job.is_asked_to_end:
                job.ask_to_end()


class InProcessJob:
    """One of these jobs, and the link to its executor.

    Messages reach the event loop in their order, from all threads of the job. After the end of the job, messages of
    threads that it left running are ignored.
    """

    coroutine: asyncio.Task[None] | None = None  # that runs it
    thread: int | None = None  # or the thread
    job: RunningJob | None = None  # once it has begun
    is_asked_to_end = False
    _raises_exit = False  # at the next use of the link
    _may_raise_exit = True
    _has_ended = False
    _limits: LimitWatch | None = None
    _forks_before = 0

    def __init__(self, attempt: Attempt, jobs: InProcessJobs) -> None:
        self.attempt = attempt
        self._jobs = jobs
        jobs.running.add(self)
        attempt.read_stack, attempt.on_interrupt = self._read_stack, self._interrupted
        attempt.started(jobs.pid)
        if attempt.has_limits:
            self._limits = LimitWatch(attempt, lambda: self._read_stack() or stack_of(jobs.pid))

    def begin(self) -> Task[..., Any] | None:
        """Become the current job of this context. Return its task; None if it was asked to end before it began."""
        if self.is_asked_to_end:
            return None
        task = self._jobs.tasks[self.attempt.job.task]
        self._forks_before = ForkCount.count
        self.job = self.attempt.make_current(self, app_of(task))
        return task

    def _read_stack(self) -> str:
        if self.coroutine is not None:
            return coroutine_stack(self.coroutine)
        return "" if self.thread is None else thread_stack(self.thread)

    # Its end

    def _interrupted(self) -> None:
        self.ask_to_end()
        self._jobs.loop.call_later(GRACE, self._abandon)

    def ask_to_end(self) -> None:
        """Cancel a coroutine; raise SystemExit in a thread at its next use of the link, and only at that one.

        So a thread may save in its `finally` blocks, as after SIGTERM. A job that has not begun will not.
        """
        self.is_asked_to_end = True
        if self.coroutine is None:
            self._raises_exit = True
        elif self.job is not None:
            self.coroutine.cancel()

    def _exit_if_asked(self) -> None:
        if self._raises_exit and self._may_raise_exit:
            self._raises_exit = False
            raise SystemExit(128 + signal.SIGTERM)

    def _abandon(self) -> None:
        if self.attempt.outcome is None:
            self._jobs.on_abandoned(self.attempt)
            self._report(forced_outcome(self.attempt, None))

    def raised(self, error: BaseException) -> Outcome:
        """Return the outcome of an exception, also of one that is meant to end the process: other jobs run in it.

        From now on the link raises no SystemExit.
        """
        self._may_raise_exit = False
        try:
            return outcome_of_exception(error, self.attempt.run.retry_policy)
        except BaseException as failure:
            return unable_to_run(self.attempt, failure)

    def close_link(self) -> None:
        """Ignore what threads of the job still send."""
        self._has_ended = True

    def end(self, outcome: Outcome | None) -> None:
        """Report the end of the job, in the event loop; None: it never began."""
        self._jobs.running.discard(self)
        if self.job is None:  # it counts as never started, which matters to jobs that run at most once
            self.attempt.pid = self.attempt.start_delay = None
            self.attempt.may_have_directory = False
        else:  # a child that was forked meanwhile may have made the directory
            self.attempt.may_have_directory = self.job._has_directory or self._forks_before != ForkCount.count
        self._report(forced_outcome(self.attempt, outcome) if self.is_asked_to_end or outcome is None else outcome)
        self.coroutine = self.job = None  # break reference cycles, to spare the garbage collector
        del self.attempt.read_stack, self.attempt.on_interrupt

    def _report(self, outcome: Outcome) -> None:
        if self._limits:
            self._limits.end()
        self.attempt.end(outcome)

    # The link: what the job saves, logs and requests

    @property
    def _is_in_loop(self) -> bool:
        return asyncio._get_running_loop() is self._jobs.loop

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        self._exit_if_asked()
        if self._has_ended:
            return
        call = self._jobs.calls.call if self._is_in_loop else self._jobs.calls.put_throttled
        call(self.attempt.save, checkpoint, progress, note)

    def log(self, lines: str) -> None:
        self._exit_if_asked()
        if not self._has_ended:
            self.attempt.write_log(lines)

    def request(self, name: str, *arguments: Any) -> tuple[str, Any]:
        self._exit_if_asked()
        if self._is_in_loop:  # that loop has to reply, and would wait for itself
            raise Invalid(f"`{_BLOCKING[name]}` would block the event loop of this coroutine; write `{_AWAITED[name]}`")
        return asyncio.run_coroutine_threadsafe(self._request(name, *arguments), self._jobs.loop).result()

    async def arequest(self, name: str, *arguments: Any) -> tuple[str, Any]:
        """From the executor's loop, or from one of the job's own."""
        self._exit_if_asked()
        asked = asyncio.run_coroutine_threadsafe(self._request(name, *arguments), self._jobs.loop)
        return await asyncio.wrap_future(asked)

    async def _request(self, name: str, *arguments: Any) -> tuple[str, Any]:
        self._jobs.calls.catch_up()  # earlier saves come first
        return await self.attempt.request(name, *arguments)

    @property
    def stopping(self) -> bool:
        return bool(self.stop_reason)

    @property
    def stop_reason(self) -> str:
        self._exit_if_asked()
        return self.attempt.stop_reason
