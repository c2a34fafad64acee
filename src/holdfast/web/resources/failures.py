"""Failures: failed jobs by group, fingerprint, task or queue; and what is known about one of these."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from holdfast.client.failures import failure_group, failure_trends, failures_page
from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid, NotFound
from holdfast.job.failures import FailureDetails, FailuresBy
from holdfast.job.job import Job
from holdfast.records.failures import EXAMPLES, FAILURE_TRENDS, FAILURE_WITH_EXAMPLES, FINGERPRINTS, retry_command
from holdfast.records.table import Record
from holdfast.units import milliseconds, with_unit
from holdfast.web.call import Call
from holdfast.web.filters import narrowed
from holdfast.web.lists import Cursor
from holdfast.web.resource import Listed, ListOf, Resources, about
from holdfast.web.resources.queues import find_queue
from holdfast.web.steps import run
from holdfast.web.tracebacks import READ_AT_ONCE, without_foreign_tracebacks

routes = Resources()

MAX_EXAMPLES = 100
MAX_LOOKED_AT = 4_000  # failed jobs of a queue that are counted: about 40 ms of the store's time


class FailuresQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures."""

    by: Annotated[FailuresBy, about("what the jobs have in common")] = "group"
    queue: Annotated[str | None, about("only the failed jobs of this queue")] = None
    limit: Annotated[int, about("maximum number of records", ge=1, le=500)] = 100
    cursor: Cursor = None


class TrendsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures, and which buckets."""

    name: Annotated[list[str], about("groups, fingerprints or tasks", min_length=1, max_length=100)]
    by: Annotated[Literal["group", "fingerprint", "task"], about("what the names are")] = "fingerprint"
    step: Annotated[str, about("the length of a bucket: 3m, 1h")] = "1h"
    count: Annotated[int, about("number of buckets up to now", ge=1, le=100)] = 48


class FailureQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What the name stands for."""

    by: Annotated[
        FailuresBy | None,
        about("what the name is; else a fingerprint, or if there is none, a group"),
    ] = None
    examples: Annotated[int, about("maximum number of examples", ge=0, le=MAX_EXAMPLES)] = 10


@routes.get("/failures", reply=ListOf(FINGERPRINTS), scope="none", client="failures")
async def list_failures(call: Call, query: FailuresQuery) -> Listed:
    """List groups, fingerprints, tasks or queues of failed jobs.

    Those with the latest failure come first; queues are sorted by name. The group of a failure is the class of its
    exception, or what the task gave it, or timeout, stalled, memory, crashed, lost, deadline and so on. Failures with
    the same fingerprint also came from the same place in the code. Of a queue, some thousands of jobs that failed last
    are counted, and `looked_at` is their number if there are more.
    """
    if query.queue is None:
        call.check_all_queues()
    elif query.by == "queue":
        raise Invalid("`by` queue and `queue` cannot be combined")
    else:
        call.check_queue(query.queue)
        await find_queue(call, query.queue)
    steps = failures_page(
        by=query.by, queue=query.queue, limit=query.limit, cursor=query.cursor, max_looked_at=MAX_LOOKED_AT
    )
    found = await run(call, steps)
    records = [FINGERPRINTS.record(each, retry=retry_command(each, query.queue)) for each in found.groups]
    if query.by == "fingerprint" and not call.user.has_all_queues:
        records = await _with_own_examples(call, records)
    return Listed(items=records, next=found.cursor, looked_at=found.looked_at)


async def _with_own_examples(call: Call, fingerprints: Sequence[Record]) -> list[Record]:
    """Return fingerprints with the messages of jobs that the user may see, and not of those that failed first."""
    found: list[Record] = []
    for first in range(0, len(fingerprints), READ_AT_ONCE):
        part = fingerprints[first : first + READ_AT_ONCE]
        jobs = await call.app.aget_many([each["example"] for each in part])
        found += [each | _own(call, each["name"], job) for each, job in zip(part, jobs, strict=True)]
    return found


def _own(call: Call, fingerprint: str, job: Job[Any] | None) -> Record:
    """Return what a fingerprint has of an example: of this job, if the user may see it."""
    hidden = {"errors": None, "task": None, "message": None}
    if job is None or job.unreadable or not call.user.has_queue(job.queue):
        return hidden
    failure = job.failure if job.fingerprint == fingerprint else None
    return hidden | {"task": job.task, "message": failure.message if failure else None}


@routes.get("/failures:trends", reply=ListOf(FAILURE_TRENDS), client="failures")
async def list_trends(call: Call, query: TrendsQuery) -> Listed:
    """List how many jobs of groups, fingerprints or tasks failed when, of those that are failed now.

    The buckets of all names are the same; the last one has the present, so it is not over.
    """
    step = timedelta(milliseconds=milliseconds(with_unit(query.step), what="step", minimum=1000, maximum=MAX_DURATION))
    since = end_of_bucket(datetime.now(UTC), step) - query.count * step
    found = await run(call, failure_trends(query.by, query.name, since=since, step=step, count=query.count))
    return Listed(items=[
        {"name": name, "since": since, "step_seconds": step.total_seconds(), "counts": counts}
        for name, counts in zip(query.name, found, strict=True)
    ])  # fmt: skip


@routes.get(
    "/failures/{failure}", reply=FAILURE_WITH_EXAMPLES, scope="visible", client=("failure", "failures")
)  # fmt: skip
async def show_failure(call: Call, failure: str, query: FailureQuery) -> Record:
    """Show what is known about a fingerprint, a group, a task or a queue of failed jobs, and the jobs that failed last.

    Of a fingerprint it has the traceback of an example, and the revision of the app when the error was first seen.
    Users with rights on some queues see it if a job of these has failed so; its numbers, its message and its traceback
    are those of the latest ones. When an error was first seen, and by which revision, counts for all queues.
    """
    by, name = (query.by, failure) if call.user.has_all_queues else await _visible(call, failure, query.by)
    found = await _find(call, name, by)
    visible = await narrowed(call, _filters(found.by, found.name))
    limit = query.examples if call.user.has_all_queues else MAX_EXAMPLES
    page = await call.app.apage(limit=limit, newest=True, **visible) if limit and visible else None
    jobs = page.rows if page else []
    record = FAILURE_WITH_EXAMPLES.record(found, examples=EXAMPLES.records(jobs[: query.examples]))
    if not call.user.has_all_queues:
        record |= {"count": len(jobs), "example": jobs[0].id, "last_seen": jobs[0].since}
        if found.by == "fingerprint":
            record |= await _own_details(call, found.name, jobs[0].id)
    return record if call.user.may_see_data else record | {"notes": []}


async def _own_details(call: Call, fingerprint: str, id: str) -> Record:
    """Return what the details of a fingerprint have of an example: of this job."""
    jobs = [job for job in await call.app.aget_many([id]) if job and not job.unreadable]
    job = next(iter(await without_foreign_tracebacks(call, jobs)), None)
    known = _own(call, fingerprint, job) | {"notes": [], "traceback": None, "traceback_of": None}
    if job is None or known["message"] is None:
        return known
    failed = next(each for each in reversed(job.attempts) if each.failure)
    failure: Any = failed.failure
    whose = failure.traceback_of or (job.id, failed.number)
    return known | {"notes": list(failure.notes), "traceback": failure.traceback or None, "traceback_of": list(whose)}


async def _visible(call: Call, name: str, by: FailuresBy | None) -> tuple[FailuresBy, str]:
    """Return what a name stands for, if a failed job that the user may see has it.

    Raises:
        NotFound: there is none.
    """
    if by == "queue":
        call.check_queue(name)
    kinds: tuple[FailuresBy, ...] = (by,) if by else ("fingerprint", "group")
    for kind in kinds:
        filters = await narrowed(call, _filters(kind, name))
        if filters and (await call.app.apage(limit=1, **filters)).rows:
            return kind, name
    raise NotFound(f"no failed job has the {by or 'fingerprint or group'} {name}")


def _filters(by: FailuresBy, name: str) -> dict[str, Any]:
    return {by: [name] if by == "queue" else name, "state": ["failed"]}


async def _find(call: Call, name: str, by: FailuresBy | None) -> FailureDetails:
    if by in (None, "fingerprint"):
        try:
            return await call.app.afailure(name)
        except NotFound:
            if by:
                raise
    found = await run(call, failure_group(by or "group", name))
    if found is None:
        raise NotFound(f"no failed job has the {by or 'fingerprint or group'} {name}")
    return FailureDetails(**msgspec.structs.asdict(found))


def end_of_bucket(time: datetime, step: timedelta) -> datetime:
    """Return the end of the bucket that contains a time; buckets are counted from 1970."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + ((time - epoch) // step + 1) * step
