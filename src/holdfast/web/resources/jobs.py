"""Jobs: enqueued, listed, counted, shown and deleted."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.client.queries import ROW_FIELDS
from holdfast.constants import MAX_BATCH, MAX_PAYLOAD
from holdfast.errors import Invalid, TooBig
from holdfast.job.job import Job
from holdfast.records.job_actions import ENQUEUED
from holdfast.records.jobs import COUNT, JOB_DETAILS, JOBS, details
from holdfast.records.table import Record
from holdfast.task.task import BoundCall
from holdfast.text import suggestion
from holdfast.web.call import Call
from holdfast.web.explanations import without_other_queues
from holdfast.web.filters import Filters, given_filters, narrowed
from holdfast.web.lists import Cursor
from holdfast.web.new_jobs import NewJob, NewJobWithId, make_call
from holdfast.web.paths import encode_name
from holdfast.web.resource import API, Listed, ListOf, Resources, about
from holdfast.web.resources.job_actions import check_existing, check_jobs
from holdfast.web.tracebacks import without_foreign_tracebacks

routes = Resources()

CHEAP = ", ".join(ROW_FIELDS)
MAX_LOOKED_AT = 2_000  # jobs that a request for a list compares: up to 50 ms of the store's time, in several calls
MAX_EXPORTED = 20  # jobs that are read at once: each may have a few MiB


class JobQuery(Filters, frozen=True, kw_only=True, forbid_unknown_fields=True):  # type: ignore[misc, call-arg]
    """Which jobs, and what of each."""

    newest: Annotated[bool, about("most recently changed first; else in the order of queues")] = True
    fields: Annotated[list[str], about(f"only these fields; {CHEAP} are cheap")] = msgspec.field(default_factory=list)
    limit: Annotated[int, about("maximum number of records", ge=1, le=100)] = 50
    cursor: Cursor = None


class ExportQuery(Filters, frozen=True, kw_only=True, forbid_unknown_fields=True):  # type: ignore[misc, call-arg]
    """Which jobs to export."""

    limit: Annotated[int, about("maximum number of records", ge=1, le=100)] = 20
    cursor: Cursor = None


class DetailsQuery(msgspec.Struct, frozen=True):
    usage: Annotated[bool, about("with memory and CPU of the latest attempt")] = True


@routes.get("/jobs", reply=ListOf(JOBS, partial=True), scope="visible", client=("page", "list", "rows"))
async def list_jobs(call: Call, query: JobQuery) -> Listed:
    """List the jobs that match all filters, most recently changed first.

    A page may have fewer jobs than `limit`, or none, and still be followed by others: its `next` says so.
    """
    filters = await narrowed(call, given_filters(query))
    if filters is None:
        return Listed(items=[])
    fields = _read_fields(query.fields)
    is_cheap = bool(fields) and set(fields) <= set(ROW_FIELDS)
    page = await call.app.apage(
        query.cursor, limit=query.limit, newest=query.newest, fields=fields if is_cheap else None,
        count=not call.is_export, max_looked_at=MAX_LOOKED_AT, **filters,
    )  # fmt: skip
    records = page.rows if is_cheap else JOBS.records(page.rows)
    if fields and not is_cheap:
        records = [{name: record[name] for name in fields} for record in records]
    return Listed(items=records, next=page.cursor, looked_at=page.looked_at, matched=page.matched)


def _read_fields(given: list[str]) -> list[str]:
    names = [name.strip() for each in given for name in each.split(",") if name.strip()]
    for name in names:
        if name not in JOBS.help:
            raise Invalid(f"unknown field {name[:60]!r}{suggestion(name, JOBS.help)}")
    return names


@routes.get("/jobs:export", reply=ListOf(JOB_DETAILS), scope="visible", client="export")
async def export_jobs(call: Call, query: ExportQuery) -> Listed:
    """List the jobs that match all filters with everything that is stored of each.

    Meant for `Accept: application/x-ndjson`, which sends all of them.
    """
    filters = await narrowed(call, given_filters(query))
    if filters is None:
        return Listed(items=[])
    page = await call.app.apage(query.cursor, limit=min(query.limit, MAX_EXPORTED), whole=True, **filters)
    jobs = await without_foreign_tracebacks(call, page.rows)
    return Listed(items=[details(job) for job in jobs], next=page.cursor)


@routes.get("/jobs:count", reply=COUNT, scope="visible", client="count")
async def count_jobs(call: Call, query: Filters) -> Record:
    """Count the jobs that match all filters."""
    filters = await narrowed(call, given_filters(query))
    return {"count": 0 if filters is None else await call.app.acount(**filters)}


@routes.post("/jobs", reply=ENQUEUED, scope="none", status=(201, 200), client=("enqueue", "program"))
async def enqueue_job(call: Call, body: NewJob) -> Record:
    """Enqueue a call of a task, or a program.

    The answer is 201 if the job was stored now, and 200 if a job with this id or unique key existed.
    """
    await check_jobs(call, body.after or ())
    return await _enqueued(call, await call.app.aenqueue(make_call(call, body)))


@routes.post("/jobs:batch", reply=ListOf(ENQUEUED), scope="none", client="enqueue_many")
async def enqueue_jobs(call: Call, body: list[NewJob]) -> Listed:
    """Enqueue up to 1,000 calls, all or none; as a list, or as lines."""
    if not 1 <= len(body) <= MAX_BATCH:
        raise Invalid(f"expected 1 to {MAX_BATCH:,} jobs, got {len(body):,}")
    calls = [_numbered(call, number, each) for number, each in enumerate(body, 1)]
    own = {each.id for each in body}  # jobs of one call may wait for each other
    await check_jobs(call, [id for each in body for id in each.after or ()], new=own)
    found = await call.app.aenqueue_many(calls, atomic=True)
    await check_existing(call, found)
    call.audited["jobs"] = " ".join(job.id for job in found)
    return Listed(items=ENQUEUED.records(found))


def _numbered(call: Call, number: int, body: Any) -> BoundCall[Any]:
    """Return the call that one of several bodies stands for; errors say which of them it is."""
    try:
        found = make_call(call, body)
    except Invalid as error:
        raise type(error)(f"job {number}: {error}") from None
    if (size := len(found.payload)) > MAX_PAYLOAD:
        raise TooBig(f"job {number}: its arguments have {size:,} bytes (limit {MAX_PAYLOAD:,}); pass a reference")
    return found


@routes.get("/jobs/{id}", reply=JOB_DETAILS, scope="job", client=("get", "explain_many", "usage"))
async def show_job(call: Call, id: str, query: DetailsQuery) -> Record:
    """Show everything about a job: its call, state, attempts, history, and why it is not running."""
    [job] = await without_foreign_tracebacks(call, [await call.app.aget(id)])
    if job.unreadable:
        return details(job)
    usage = await call.app.ausage(id) if query.usage else None
    found = [] if job.is_final else [each for each in await call.app.aexplain_many([id]) if each]
    return details(job, usage, next(iter(await without_other_queues(call, found)), None))


@routes.put("/jobs/{id}", reply=ENQUEUED, scope="none", status=(201, 200), client="enqueue")
async def put_job(call: Call, id: str, body: NewJobWithId) -> Record:
    """Enqueue a call as the job with this id, unless that exists.

    The answer is 201 if the job was stored now, and 200 if it existed: repeat a request whose answer was lost.
    """
    await check_jobs(call, body.after or ())
    return await _enqueued(call, await call.app.aenqueue(make_call(call, body, id=id)))


@routes.delete("/jobs/{id}", scope="job", client="delete")
async def delete_job(call: Call, id: str) -> None:
    """Delete a job that has ended, with its result and history."""
    await call.app.adelete(id)


async def _enqueued(call: Call, job: Job[Any]) -> Record:
    await check_existing(call, [job])
    call.audited["job"] = job.id
    call.respond(201 if job.created else 200, Location=call.url(f"{API}/jobs/{encode_name(job.id)}"))
    return ENQUEUED.record(job)
