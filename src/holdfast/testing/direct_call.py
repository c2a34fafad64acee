"""Calls of a task as a function, with a running job but without a store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.running.current import as_current, set_current_job
from holdfast.running.link import DetachedLink
from holdfast.running.running_job import RunningJob


@contextmanager
def running_job(*, attempt: int = 1, checkpoint: object = None, stopping: bool = False) -> Iterator[RunningJob]:
    """Provide the job that `current_job()` returns while a task is called as a function.

    with running_job(checkpoint=3) as job:
        assert crunch(rows=5) == 5
        assert job.checkpoint(int, 0) == 5
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-job-") as directory:
        link = DetachedLink(stopping)
        job = RunningJob(link, id="detached", attempt=attempt, task="", queue="", directory=Path(directory))
        if checkpoint is not None:
            job.save(checkpoint)
        with as_current(job):
            yield job


def forget_running_job() -> None:
    """Forget the current job, so that the next test does not find its checkpoints."""
    set_current_job(None)
