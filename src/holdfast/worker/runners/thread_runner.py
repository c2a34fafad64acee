"""The runner `thread`: each job runs in a thread of a pool.

A cancel reaches a thread as SystemExit, raised at its next use of `current_job()`: `stopping`, `save`, `report`, `each`
(see `InProcessJob.ask_to_end`). Python has no other way to stop a thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context

from holdfast.job.outcome import Outcome
from holdfast.task.call import call_task, outcome_of_return
from holdfast.worker.attempt import Attempt
from holdfast.worker.output.capture import captured
from holdfast.worker.runners.endings import unable_to_run
from holdfast.worker.runners.inprocess_job import InProcessJob, InProcessJobs


class ThreadRunner:
    """Runs functions in threads: up to `concurrency` jobs, and as many that were abandoned.

    A thread runs the waiting jobs one after the other. Before it begins with one, it submits another thread
    for the remaining jobs, so a long job never delays the next; one thread runs several short jobs without a switch.
    """

    def __init__(self, jobs: InProcessJobs, concurrency: int) -> None:
        self._jobs = jobs
        self._pool = ThreadPoolExecutor(2 * concurrency, thread_name_prefix="job")
        self._waiting: deque[tuple[InProcessJob, Context]] = deque()
        self._is_submitted = False  # a thread was submitted and has not started

    def begin(self, attempt: Attempt) -> None:
        self._waiting.append((InProcessJob(attempt, self._jobs), copy_context()))
        self._submit_thread()

    def close(self) -> None:
        """Let idle threads end."""
        self._pool.shutdown(wait=False)

    def _submit_thread(self) -> None:
        if self._is_submitted or not self._waiting:
            return
        self._is_submitted = True
        try:
            self._pool.submit(self._run_waiting)
        except Exception as error:  # this machine has no thread or no memory left
            self._is_submitted = False
            self._requeue_waiting(error)
        except BaseException:
            self._is_submitted = False
            raise

    def _requeue_waiting(self, error: Exception) -> None:
        for job, _ in self._take_waiting():
            self._jobs.calls.put(job.end, unable_to_run(job.attempt, error))

    def _run_waiting(self) -> None:
        self._is_submitted = False  # first: for a job that is added after the last check, another thread is submitted
        for job, context in self._take_waiting():
            outcome = None
            try:
                self._submit_thread()
                outcome = context.run(self._run, job)
            except BaseException as error:  # thrown at this thread before the task began, or after it ended
                job.close_link()
                outcome = unable_to_run(job.attempt, error)
            finally:
                self._jobs.calls.put(job.end, outcome)

    def _take_waiting(self) -> Iterator[tuple[InProcessJob, Context]]:
        """Yield the waiting jobs, one after the other; other threads take them too."""
        with suppress(IndexError):
            while True:
                yield self._waiting.popleft()

    def _run(self, job: InProcessJob) -> Outcome | None:
        outcome = None
        job.thread = threading.get_ident()
        try:
            if task := job.begin():
                with captured(job.attempt.captured_log):
                    outcome = outcome_of_return(task, call_task(task, job.attempt.job.payload))
        except BaseException as error:
            outcome = job.raised(error)
        job.close_link()
        return outcome
