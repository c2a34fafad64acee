"""The jobs that a job waits for: their ids, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.codec import Shape
from holdfast.constants import MAX_BATCH
from holdfast.errors import JobNotFound
from holdfast.job import option_kinds
from holdfast.job.errors import JobCancelled, JobFailed
from holdfast.job.job import Job
from holdfast.job.options import Awaited
from holdfast.job.result import decode_result

T = TypeVar("T")


def ids_of(jobs: Iterable[Awaited | str | Sequence[Awaited | str]]) -> list[str]:
    """Return the ids of jobs and of lists of jobs, each once."""
    return list(dict.fromkeys(id for each in jobs for id in option_kinds.ids_of(each)))


def in_parts(ids: list[str]) -> Iterator[list[str]]:
    return (ids[first : first + MAX_BATCH] for first in range(0, len(ids), MAX_BATCH))


def ended_and_left(ids: list[str], jobs: list[Job[Any] | None]) -> tuple[list[Job[Any]], list[str]]:
    """Return the jobs that have ended, and the ids of those that have not."""
    ended: list[Job[Any]] = []
    left: list[str] = []
    for id, job in zip(ids, jobs, strict=True):
        if job is None:
            raise JobNotFound(f"job {id}, which this job waits for, does not exist: enqueue it first")
        if job.is_final:
            ended.append(job)
        else:
            left.append(id)
    return ended, left


def all_there(ids: list[str], jobs: list[Job[Any] | None]) -> list[Job[Any]]:
    for id, job in zip(ids, jobs, strict=True):
        if job is None:
            raise JobNotFound(f"job {id}, which this job waited for, is not kept any more")
    return [job for job in jobs if job]


def result_of(job: Job[Any], kind: type[T]) -> T:
    if job.state == "cancelled":
        raise JobCancelled(f"job {job.id} was cancelled, so it has no result; see current_job().dependencies()", job)
    if job.state != "succeeded":
        raise JobFailed(f"job {job.id} is {job.state}, so it has no result; see current_job().dependencies()", job)
    value: T = decode_result(Shape.of(kind), job.result_bytes or b"null", f"the result of job {job.id}")
    return value
