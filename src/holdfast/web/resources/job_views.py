"""What pages show of jobs: several with everything, stored text as it is, and a run beside others of its task."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from holdfast.client.statistics import Times
from holdfast.job.job import Job
from holdfast.records.jobs import JOB_DETAILS, details
from holdfast.records.statistics import TIMES
from holdfast.records.table import Record, Table, field
from holdfast.web.call import Call
from holdfast.web.explanations import without_other_queues
from holdfast.web.memo import shared
from holdfast.web.resource import Listed, ListOf, Resources
from holdfast.web.tracebacks import READ_AT_ONCE, without_foreign_tracebacks

routes = Resources()

MAX_SHOWN = 100  # jobs of a request
MAX_QUEUES = 50  # whose tasks are listed
TASKS_FOR = 10.0  # seconds: they are suggestions, and take a call for each queue

STORED = Table(
    "stored data",
    field("id", str, "id of the job"),
    field("codec", str, "how its arguments are encoded: json, or raw for the bytes of an item"),
    field("arguments", str | None, "its arguments, by name, as they are stored"),
    field("arguments_bytes", int | None, "their size"),
    field("checkpoint", str | None, "its latest checkpoint, as it is stored"),
    field("checkpoint_bytes", int | None, "its size"),
    field("result", str | None, "its result, as it is stored"),
    field("result_bytes", int | None, "its size"),
    name="StoredData",
)
COMPARISON = Table(
    "comparison",
    field("id", str, "id of the job"),
    field("task", str, "its task"),
    field("queue", str, "its queue"),
    field("days", int, "number of days whose runs are counted"),
    field("run", TIMES, "times from claim to end of attempts of the task that succeeded or advanced"),
    field("wait", TIMES, "times from when a job of the task could be claimed until its claim"),
    name="Comparison",
)
TASKS = Table(
    "task",
    field("task", str, "name of the task"),
    field("queue", str, "queue in which it ran"),
)


class IdsQuery(msgspec.Struct, frozen=True):
    id: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_SHOWN, description="ids of jobs")]


class ComparisonQuery(msgspec.Struct, frozen=True):
    days: Annotated[int, msgspec.Meta(ge=1, le=30, description="runs of the last days, today among them")] = 7


class TaskQuery(msgspec.Struct, frozen=True):
    days: Annotated[int, msgspec.Meta(ge=1, le=30, description="that ran in the last days, today among them")] = 2


@routes.get("/jobs:show", reply=ListOf(JOB_DETAILS), scope="visible", client=("get_many", "explain_many"))
async def show_jobs(call: Call, query: IdsQuery) -> Listed:
    """List jobs by their ids, in this order, with everything about each. Jobs that do not exist are left out."""
    found: list[Record] = []
    ids = list(dict.fromkeys(query.id))
    for first in range(0, len(ids), READ_AT_ONCE):
        found += await _details(call, ids[first : first + READ_AT_ONCE])
    return Listed(items=found)


async def _details(call: Call, ids: Sequence[str]) -> list[Record]:
    jobs = [job for job in await call.app.aget_many(ids) if job is not None]
    jobs = await without_foreign_tracebacks(call, call.visible(jobs))
    open_ids = [job.id for job in jobs if not (job.unreadable or job.is_final)]
    found = [each for each in await call.app.aexplain_many(open_ids) if each] if open_ids else []
    reasons = {each.id: each for each in await without_other_queues(call, found)}
    return [details(job, None, reasons.get(job.id)) for job in jobs]


@routes.get("/jobs/{id}/stored", reply=STORED, scope="job", client="get")
async def show_stored(call: Call, id: str) -> Record:
    """Show arguments, checkpoint and result of a job as they are stored: JSON as text, so all digits remain."""
    job = await call.app.aget(id)
    blobs = {"arguments": job.payload, "checkpoint": job.checkpoint_bytes, "result": job.result_bytes}
    record: Record = {"id": id, "codec": job.codec}
    for name, data in blobs.items():
        record |= {name: _text(data), f"{name}_bytes": None if data is None else len(data)}
    return record


def _text(data: bytes | None) -> str | None:
    """Return stored bytes as text; bytes that are not text in base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


@routes.get("/jobs/{id}/comparison", reply=COMPARISON, scope="job", client="stats")
async def compare_job(call: Call, id: str, query: ComparisonQuery) -> Record:
    """Show how long jobs of the same task in the same queue waited and ran."""
    job: Job[Any] = await call.app.aget(id)
    run, wait = Times(), Times()
    if not job.unreadable:
        found = await call.app.astats(job.queue, task=job.task, since=f"{query.days - 1}d" if query.days > 1 else None)
        run, wait = found.run, found.wait
    times = {"run": TIMES.record(run), "wait": TIMES.record(wait)}
    return {"id": id, "task": job.task, "queue": job.queue, "days": query.days, **times}


@routes.get("/stats/tasks", reply=ListOf(TASKS), scope="visible", client="stats_tasks")
async def list_tasks_that_ran(call: Call, query: TaskQuery) -> Listed:
    """List the tasks that ran in the queues that the user may see, of up to 50 queues."""

    async def read() -> Listed:
        queues = call.visible((each.name for each in await call.app.aqueues()), lambda name: name)[:MAX_QUEUES]
        since = f"{query.days - 1}d" if query.days > 1 else None
        tasks = {queue: await call.app.astats_tasks(queue, since=since) for queue in queues}
        return Listed(items=[{"task": task, "queue": queue} for queue, found in tasks.items() for task in found])

    return await shared(call, ("tasks that ran", query.days), TASKS_FOR, read, lasts=True)
