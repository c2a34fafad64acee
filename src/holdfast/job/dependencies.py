"""The dependencies of a job: the jobs that it waits for, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.codec import TypeCodec
from holdfast.constants import MAX_BATCH
from holdfast.errors import JobNotFound
from holdfast.job import option_kinds
from holdfast.job.errors import JobCancelled, JobFailed
from holdfast.job.job import Job
from holdfast.job.options import Awaited
from holdfast.job.result import decode_result

T = TypeVar("T")


def ids_of(jobs: Iterable[Awaited | str | Sequence[Awaited | str]]) -> list[str]:
    """Return the ids of jobs and of lists of jobs, without duplicates."""
    return list(dict.fromkeys(id for each in jobs for id in option_kinds.ids_of(each)))


def in_batches(ids: list[str]) -> Iterator[list[str]]:
    return (ids[first : first + MAX_BATCH] for first in range(0, len(ids), MAX_BATCH))


def split_ended(ids: list[str], jobs: list[Job[Any] | None]) -> tuple[list[Job[Any]], list[str]]:
    """Return the jobs that have ended, and the ids of those that have not."""
    ended: list[Job[Any]] = []
    pending: list[str] = []
    for id, job in zip(ids, jobs, strict=True):
        if job is None:
            raise JobNotFound(f"job {id}, which this job waits for, does not exist: enqueue it first")
        if job.is_final:
            ended.append(job)
        else:
            pending.append(id)
    return ended, pending


def require_all(ids: list[str], jobs: list[Job[Any] | None]) -> list[Job[Any]]:
    """Return the jobs, or raise JobNotFound if one of them no longer exists."""
    for id, job in zip(ids, jobs, strict=True):
        if job is None:
            raise JobNotFound(
                f"job {id}, which this job waited for, no longer exists; enqueue it without keep=False, or raise the "
                "setting keep_succeeded"
            )
    return [job for job in jobs if job]


def dependency_result(job: Job[Any], kind: type[T]) -> T:
    """Return the result of a dependency, or raise JobFailed or JobCancelled."""
    if job.state == "cancelled":
        raise JobCancelled(
            f"job {job.id} was cancelled and has no result; check current_job().dependencies() first", job
        )
    if job.state != "succeeded":
        raise JobFailed(f"job {job.id} is {job.state} and has no result; check current_job().dependencies() first", job)
    value: T = decode_result(TypeCodec.of(kind), job.result_bytes or b"null", f"the result of job {job.id}")
    return value
