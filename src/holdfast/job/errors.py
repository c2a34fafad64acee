"""Errors that have the job that failed or was cancelled."""

from __future__ import annotations

from typing import Any

from holdfast.errors import HoldfastError
from holdfast.job.job import Job
from holdfast.text import printable


class RemoteTraceback(Exception):
    """The traceback of a job's last failed attempt, as text: the `__cause__` of JobFailed, so Python prints both."""

    def __init__(self, traceback: str) -> None:
        super().__init__(traceback)
        self.traceback = traceback

    def __str__(self) -> str:
        return f'\n"""\n{printable(self.traceback.rstrip(), lines=True)}\n"""'


class JobFailed(HoldfastError):
    """A job ended in the state `failed`. `job` is that job, with its `group`, `failure` and `attempts`.

    Its `__cause__` is a RemoteTraceback, if the last failed attempt left a traceback.
    """

    code = "FAILED"

    def __init__(self, message: str, job: Job[Any]) -> None:
        super().__init__(message)
        self.job = job
        if job.failure and job.failure.traceback:
            self.__cause__ = RemoteTraceback(job.failure.traceback)


class JobCancelled(HoldfastError):
    """A job ended in the state `cancelled`. `job` is that job."""

    code = "CANCELLED"

    def __init__(self, message: str, job: Job[Any]) -> None:
        super().__init__(message)
        self.job = job
