"""`current_job()`: in a worker the claimed job, elsewhere a detached one.

A detached job keeps its checkpoint in memory, so that a task can be called as a function. Each such call has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from holdfast.running.link import DetachedLink
from holdfast.running.running_job import RunningJob

_current: ContextVar[RunningJob | None] = ContextVar("holdfast_job", default=None)


def current_job() -> RunningJob:
    """Return the job that runs in this context; outside of a worker, a detached one."""
    job = _current.get()
    if job is None:
        job = _detached()
        _current.set(job)
    return job


def current_scope() -> str:
    """Return the scope of the job that runs in this context; "" if there is none."""
    job = _current.get()
    return job.scope if job is not None else ""


def is_in_job() -> bool:
    """Return whether a job runs in this context."""
    return _current.get() is not None


def running_id() -> str | None:
    """Return the id of the job that runs in this context; None if there is none, or a detached one."""
    job = _current.get()
    return None if job is None or type(job._link) is DetachedLink else job.id  # that of the testing kit is a subclass


def set_current_job(job: RunningJob | None) -> None:
    _current.set(job)


def end_current_job() -> None:
    """Send the unreported counts of the job that runs in this context, if any."""
    job = _current.get()
    if job is not None and job._has_reported:
        with suppress(BaseException):  # the task has ended: stopping it now has no effect
            job._end()


@contextmanager
def as_current(job: RunningJob) -> Iterator[RunningJob]:
    """Make `current_job()` return this job inside a block."""
    before = _current.get()
    _current.set(job)
    try:
        yield job
    finally:
        _current.set(before)


@contextmanager
def detached_unless_running(task: str) -> Iterator[None]:
    """Provide a detached job for a task that is called as a function; inside of a job, do nothing."""
    if _current.get() is not None:
        yield
        return
    with as_current(_detached(task)) as job:
        try:
            yield
        finally:
            job._remove_directory()


def _detached(task: str = "") -> RunningJob:
    return RunningJob(DetachedLink(), id="detached", attempt=1, task=task, queue="")
