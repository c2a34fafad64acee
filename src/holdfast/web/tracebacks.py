"""Tracebacks of other jobs: the store keeps one for each fingerprint, which may be that of a job in another queue.

Its last lines have the message of that job's exception, so users with rights on some queues see it only if they may see
that job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.job.failure import Failure
from holdfast.job.job import Job
from holdfast.web.call import Call

READ_AT_ONCE = 20  # whole jobs, which may have a few MiB each


async def without_foreign_tracebacks(call: Call, jobs: Sequence[Job[Any]]) -> list[Job[Any]]:
    """Return jobs whose failures have no tracebacks of jobs that the user may not see."""
    if call.user.has_all_queues:
        return list(jobs)
    visible = await visible_ids(call, {of[0] for job in jobs for of in _borrowed(job)} - {job.id for job in jobs})
    return [_without(job, visible | {each.id for each in jobs}) for job in jobs]


def _borrowed(job: Job[Any]) -> Iterable[tuple[str, int]]:
    return (each.failure.traceback_of for each in job.attempts if each.failure and each.failure.traceback_of)


async def visible_ids(call: Call, ids: Iterable[str]) -> set[str]:
    """Return the ids of those jobs that exist and that the user may see."""
    wanted, found = sorted(ids), set[str]()
    for first in range(0, len(wanted), READ_AT_ONCE):
        jobs = await call.app.aget_many(wanted[first : first + READ_AT_ONCE])
        found |= {job.id for job in jobs if job and not job.unreadable and call.user.has_queue(job.queue)}
    return found


def _without(job: Job[Any], visible: set[str]) -> Job[Any]:
    if all(of[0] in visible for of in _borrowed(job)):
        return job
    attempts = tuple(msgspec.structs.replace(each, failure=_shown(each.failure, visible)) for each in job.attempts)
    return msgspec.structs.replace(job, attempts=attempts)


def _shown(failure: Failure | None, visible: set[str]) -> Failure | None:
    if failure is None or failure.traceback_of is None or failure.traceback_of[0] in visible:
        return failure
    return msgspec.structs.replace(failure, traceback="", traceback_of=None)
