"""The runner `async`: each job is a task of the executor's event loop. A cancel cancels the task."""

from __future__ import annotations

from holdfast.task.call import outcome_of_return, start_call
from holdfast.worker.attempt import Attempt
from holdfast.worker.output.capture import captured
from holdfast.worker.runners.inprocess_job import InProcessJob, InProcessJobs


class AsyncRunner:
    """Runs coroutine functions in this event loop."""

    def __init__(self, jobs: InProcessJobs) -> None:
        self._jobs = jobs

    def begin(self, attempt: Attempt) -> None:
        job = InProcessJob(attempt, self._jobs)
        job.coroutine = self._jobs.loop.create_task(self._run(job))

    async def _run(self, job: InProcessJob) -> None:
        outcome = None
        try:
            if task := job.begin():
                with captured(job.attempt.captured_log):
                    outcome = outcome_of_return(task, await start_call(task, job.attempt.job.payload))
        except BaseException as error:
            # Cancellation too: this task ends here anyway, and nobody awaits it.
            outcome = job.raised(error)
        job.close_link()
        self._jobs.calls.call(job.end, outcome)  # after the messages of its threads
