"""Failures: failed jobs by group, fingerprint, task or queue; and what is known about one of these."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.client.failures import failure_group, failures_page
from holdfast.errors import Invalid, NotFound
from holdfast.job.failures import FailureDetails, FailuresBy
from holdfast.records.failures import FAILURE_DETAILS, FINGERPRINTS, retry_command
from holdfast.records.table import Record, Table, Time, field, list_of
from holdfast.web.call import Call
from holdfast.web.lists import Cursor
from holdfast.web.resource import Listed, ListOf, Resources, about
from holdfast.web.resources.queues import find_queue
from holdfast.web.steps import run

routes = Resources()

EXAMPLES = Table(
    "example",
    field("id", str, "id of the job"),
    field("task", str, "name of its task"),
    field("queue", str, "name of its queue"),
    field("since", Time | None, "when it failed"),
    field("group", str, "group of its failure"),
    field("fingerprint", str, "fingerprint of its failure"),
    name="FailureExample",
)
FAILURE_WITH_EXAMPLES = FAILURE_DETAILS.extended(
    field("examples", list_of(EXAMPLES), "jobs that failed last; of each: id, task, queue, since, group, fingerprint"),
    name="FailureWithExamples",
)

MAX_EXAMPLES = 100


class FailuresQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures."""

    by: Annotated[FailuresBy, about("what the jobs have in common")] = "group"
    queue: Annotated[str | None, about("only the failed jobs of this queue")] = None
    limit: Annotated[int, about("maximum number of records", ge=1, le=500)] = 100
    cursor: Cursor = None


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
    the same fingerprint also came from the same place in the code.
    """
    if query.queue is None:
        call.check_all_queues()
    elif query.by == "queue":
        raise Invalid("`by` queue and `queue` cannot be combined")
    else:
        call.check_queue(query.queue)
        await find_queue(call, query.queue)
    found = await run(call, failures_page(by=query.by, queue=query.queue, limit=query.limit, cursor=query.cursor))
    records = [FINGERPRINTS.record(each, retry=retry_command(each, query.queue)) for each in found.groups]
    return Listed(items=records, next=found.cursor)


@routes.get("/failures/{failure}", reply=FAILURE_WITH_EXAMPLES, client=("failure", "failures"))
async def show_failure(call: Call, failure: str, query: FailureQuery) -> Record:
    """Show what is known about a fingerprint, a group, a task or a queue of failed jobs, and the jobs that failed last.

    Of a fingerprint it has the traceback of an example, and the revision of the app when the error was first seen.
    """
    found = await _find(call, failure, query.by)
    filters = {found.by: found.name, "state": "failed", "newest": True}
    page = await call.app.apage(limit=query.examples, **filters) if query.examples else None  # type: ignore[arg-type]
    return FAILURE_WITH_EXAMPLES.record(found, examples=EXAMPLES.records(page.rows if page else ()))


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
