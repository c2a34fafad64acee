"""The page of a job: why it is not running, its story, log, attempts and data, and what can be done; its graph."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec

from holdfast.errors import NotFound
from holdfast.job.usage import FIRST_STEP
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.buckets import log_buckets
from holdfast.web.pages.charts import histogram
from holdfast.web.pages.charts.network import network
from holdfast.web.pages.formats import duration, printed_lines
from holdfast.web.pages.job_gates import gates_of
from holdfast.web.pages.job_rows import FINAL, make_row, seconds_between
from holdfast.web.pages.job_story import summary, tell
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.batches import show_batch
from holdfast.web.resources.job_actions import show_stack
from holdfast.web.resources.job_parts import LogQuery, UsageQuery, show_graph, show_log, show_usage
from holdfast.web.resources.job_views import IdsQuery, compare_job, show_jobs, show_stored
from holdfast.web.resources.jobs import JobQuery, list_jobs, show_job
from holdfast.web.resources.queues import list_queues

pages = Pages()

MAX_DATA = 64 << 10  # characters of arguments, checkpoint and result that are shown
MAX_LINE = 4_000  # characters of a line of a log
MAX_TRACEBACK = 32 << 10
TAIL = 300  # lines of a log
MAX_RELATED = 10  # dependencies and dependents
MIN_RUNS = 5  # that make a comparison
MAX_USAGES = 6  # attempts whose memory and CPU are shown


class ShowQuery(msgspec.Struct, frozen=True):
    """Choices of what the page shows."""

    attempt: Annotated[int, msgspec.Meta(ge=1)] | None = None  # whose log
    time: Literal["collapsed", "scale"] = "collapsed"
    lines: Literal["newest", "all"] = "newest"
    commands: Literal["shell", "curl"] = "shell"


@pages.get("/jobs/{id}")
async def job_page(call: Call, id: str, query: ShowQuery) -> Page:
    """Everything about a job."""
    job = await show_job(call, id=id)
    if job["unreadable"]:
        return Page("job_unreadable.html", title=id, section="Jobs", job=job)
    now, why = datetime.now(UTC), job["explanation"]
    usages = await _usages(call, job)
    story = tell(job, now, usages, collapse=query.time == "collapsed", whole=query.lines == "all")
    read: dict[str, Any] = {
        "stored": await _stored(call, id),
        "log": await _log(call, job, query.attempt),
        "comparison": await _comparison(call, job, now),
        "related": await _related(call, job),
        "batch": await _batch(call, job),
        "queues": {each["queue"]: each for each in (await list_queues(call)).items},
    }
    return Page(
        "job.html", title=job["task"], section="Jobs", job=job, row=make_row(job), shown=query, why=why,
        gates=gates_of(job, why) if why else [], story=story, summary=summary(story),
        peaks={each["attempt"]: each["peak_memory_bytes"] for each in usages}, is_final=job["state"] in FINAL,
        seconds_between=seconds_between, max_data=MAX_DATA, max_traceback=MAX_TRACEBACK,
        live_events=urlencode({"job": id}), live_every=5, **read,
    )  # fmt: skip


async def _stored(call: Call, id: str) -> Record | None:
    return await show_stored(call, id=id) if call.user.may_see_data else None


async def _log(call: Call, job: Record, attempt: int | None) -> Record | None:
    """Return the end of the log of an attempt, in lines; the latest that has one, unless one is asked for."""
    if not call.user.may_see_data:
        return None
    try:
        log = await show_log(call, id=job["id"], query=LogQuery(attempt=attempt, tail=TAIL))
    except NotFound:  # the job was deleted meanwhile
        return None
    running, goes_on = job["state"] == "running", job["state"] not in FINAL and job["attempt"] > 0
    number = attempt or log["attempt"] or (job["attempt"] if running else 0)
    lines = printed_lines(log["text"], MAX_LINE)
    numbers = sorted({*(log["attempts"] or ()), *([job["attempt"]] if running else [])}, reverse=True)
    return {
        "attempt": number,
        "attempts": numbers,
        "lines": lines,
        "is_cut": len(lines) >= TAIL,
        "left_out": log["left_out_bytes"],
        "follows": goes_on and attempt in (None, job["attempt"]),  # also while the next attempt is waited for
    }


async def _usages(call: Call, job: Record) -> list[Record]:
    """Return memory and CPU of the latest attempts that ran for some seconds, oldest first."""
    latest: Record | None = job["usage"]
    known = latest["attempt"] if latest else 0
    earlier = [each for each in job["attempts"][-MAX_USAGES:] if each["number"] != known and _is_long(each)]
    found = [await show_usage(call, id=job["id"], query=UsageQuery(each["number"])) for each in earlier]
    return [each for each in (*found, latest) if each and each["cpu"]]


def _is_long(attempt: Record) -> bool:
    return (seconds_between(attempt["claimed_at"], attempt["ended_at"]) or 0) >= FIRST_STEP


async def _comparison(call: Call, job: Record, now: datetime) -> Record | None:
    """Return how long jobs of the task ran, and where this run is among them; of one that has not run, the waits."""
    found = await compare_job(call, id=job["id"])
    last = job["attempts"][-1] if job["attempts"] else None
    times = found["run" if last else "wait"]
    if times["count"] < MIN_RUNS or not times["histogram"]:
        return None
    seconds = seconds_between(last["claimed_at"], last["ended_at"] or now) if last else _waited(job, now)
    is_open = last is None or last["ended_at"] is None
    mark = f"this {'run' if last else 'job'}, {duration(seconds)}{' so far' if is_open else ''}"
    return {
        "of": "run" if last else "wait",
        "chart": histogram(
            "Run time" if last else "Wait",
            log_buckets(times["histogram"]),
            marks=[] if seconds is None else [(seconds, mark)],
            noun="jobs",
        ),
        "count": times["count"],
        "counted": sum(each["count"] for each in times["histogram"]),
        "longer": None if seconds is None else _count_longer(times["histogram"], seconds),
        "median": (times["quantiles"]["0.5"] or {}).get("value"),
        "p95": (times["quantiles"]["0.95"] or {}).get("value"),
        "days": found["days"],
    }


def _count_longer(buckets: list[Record], seconds: float) -> int:
    return sum(each["count"] for each in buckets if each["lower"] >= seconds)


def _waited(job: Record, now: datetime) -> float | None:
    return seconds_between(job["since"], now) if job["state"] in ("waiting", "throttled") else None


async def _related(call: Call, job: Record) -> Record:
    """Return the jobs that this one waits for, and those that wait for it."""
    edges = [*job["after"], *job["waits"]]
    edges.sort(key=lambda each: each["state"] == "succeeded")
    ids = [each["id"] for each in edges[:MAX_RELATED]]
    known = {each["id"]: each for each in (await show_jobs(call, query=IdsQuery(ids))).items} if ids else {}
    fields = ["id", "state", "queue", "task"]
    below = await list_jobs(call, query=JobQuery(waits_for=job["id"], fields=fields, limit=MAX_RELATED))
    return {
        "after": [(each, known.get(each["id"])) for each in edges[:MAX_RELATED]],
        "after_count": len(edges),
        "dependents": below.items,
        "has_more": below.next is not None,
    }


async def _batch(call: Call, job: Record) -> Record | None:
    if not job["batch"] or not call.user.has_all_queues:
        return None
    try:
        found: Record = await show_batch(call, batch=job["batch"])
    except NotFound:
        return None
    return found


@pages.post("/jobs/{id}/stack", role="operator")
async def stack_page(call: Call, id: str) -> Page:
    """The stack of each thread of a running job, asked for now."""
    job = await show_job(call, id=id)
    found = await show_stack(call, id=id)
    return Page("job_stack.html", title=f"Stack of {id}", section="Jobs", job=job, stack=found["stack"])


@pages.get("/jobs/{id}/graph")
async def graph_page(call: Call, id: str) -> Page:
    """What a job waits for, what waits for it, and so on."""
    graph: Any = await show_graph(call, id=id)
    nodes = sorted(graph.nodes, key=lambda node: (node.level, node.id))
    chart = None if graph.truncated else network(call, id, graph.nodes, graph.edges)
    waits = {node.id: [edge.on for edge in graph.edges if edge.job == node.id] for node in nodes}
    return Page(
        "job_graph.html", title=f"Dependencies of {id}", section="Jobs", id=id, nodes=nodes, waits=waits,
        truncated=graph.truncated, chart=chart,
    )  # fmt: skip
