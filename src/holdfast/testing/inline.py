"""A task called as a function, and the job that it sees then. There is no store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.running import Detached, RunningJob, current_job, set_current_job


def _detached(*, attempt: int = 1, stopping: bool = False, directory: Path | None = None) -> RunningJob:
    return RunningJob(Detached(stopping), id="detached", attempt=attempt, task="", queue="", directory=directory)


@contextmanager
def running_job(*, attempt: int = 1, checkpoint: object = None, stopping: bool = False) -> Iterator[RunningJob]:
    """Be the job that a task sees while it is called as a function.

    with running_job(checkpoint=3) as job:
        assert crunch(rows=5) == 5
        assert job.checkpoint(int, 0) == 5
    """
    before = current_job()
    with tempfile.TemporaryDirectory(prefix="holdfast-job-") as directory:
        job = _detached(attempt=attempt, stopping=stopping, directory=Path(directory))
        if checkpoint is not None:
            job.save(checkpoint)
        set_current_job(job)
        try:
            yield job
        finally:
            set_current_job(before)


def forget_running_job() -> None:
    """Have the next task that is called as a function find nothing of what was saved before it."""
    set_current_job(_detached())
