"""The call of a task: what a job does in a process of its own and in its executor alike.

claimed job ──▶ Call ──▶ the task's function ──▶ outcome
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import failure, running
from holdfast.failure import Failure
from holdfast.limits import MOST_RESULT
from holdfast.outcome import Crash, Error, Outcome, Release, Succeed, outcome_of
from holdfast.task import Task


class Call(NamedTuple):
    """What a job's process is told."""

    id: str
    attempt: int
    queue: str
    task: str
    payload: bytes
    checkpoint: bytes
    directory: str

    def introduce(self, link: running.Link) -> None:
        """Make `current_job()` return this job."""
        job = running.RunningJob(
            link,
            id=self.id,
            attempt=self.attempt,
            task=self.task,
            queue=self.queue,
            checkpoint=self.checkpoint,
            directory=Path(self.directory),
        )
        running.set_current_job(job)


def called(task: Task[..., Any], payload: bytes) -> Any:
    """Call the function of a task, also if it is an `async def`, in this thread. Returns its value."""
    args, kwargs = task.signature.decode(payload)
    value = task.function(*args, **kwargs)
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


def returned(task: Task[..., Any], value: Any) -> Outcome:
    """What it means that a task returned a value."""
    result = task.signature.result.encode(value, f"the result of task {task.name}")
    if len(result) > MOST_RESULT:
        return failed("ResultTooBig", _too_big(len(result)), group="result-too-big", final=True)
    return Succeed(result)


def raised(error: BaseException) -> Outcome:
    """What it means that an exception left a task."""
    if isinstance(error, running.HandOver):
        return Release("handed over")
    if isinstance(error, SystemExit):
        # Leaving the process is a crash, whatever the code says: nothing was returned.
        return crashed("the job left its process by sys.exit", exit_code=exit_code(error))
    return outcome_of(error)


def failed(kind: str, message: str, *, group: str, final: bool = False) -> Outcome:
    """An error that no exception of the task describes."""
    described = Failure(type=kind, message=message, group=group, fingerprint=group)
    return Error(failure.encode(described), group, final=final)


def crashed(
    words: str, *, exit_code: int | None = None, signal: int | None = None, memory: int | None = None
) -> Outcome:
    return Crash(failure.encode(Failure.of_crash(words, exit_code=exit_code, signal=signal, memory=memory)))


def exit_code(error: SystemExit) -> int:
    """The code that a process would end with."""
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _too_big(size: int) -> str:
    return f"the result has {size} bytes; {MOST_RESULT} are allowed: store it elsewhere and return a reference"
