"""Parts of a job: its result, why it is not running, its story, dependencies, usage, log, and stored bytes."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from holdfast.client.logs import LogReader, afollow, last_lines
from holdfast.client.results import NotEnded
from holdfast.errors import NotFound
from holdfast.job.as_dict import decoded
from holdfast.job.job import Job
from holdfast.job.logs import LogPart, gap
from holdfast.records.explanations import EXPLANATIONS
from holdfast.records.jobs import HISTORY, USAGE
from holdfast.records.logs import LOG, log_record
from holdfast.records.table import Record, Table, field
from holdfast.web.api import NDJSON
from holdfast.web.background import background_of
from holdfast.web.call import Call
from holdfast.web.explanations import without_other_queues
from holdfast.web.graph import Graph, GraphReader
from holdfast.web.problems import Problem
from holdfast.web.resource import Chunks, Listed, ListOf, Resources, Stream, about
from holdfast.web.security.redaction import redacted_json
from holdfast.web.streaming import (
    EVENT_STREAM,
    HEADERS,
    LAST_EVENT_ID,
    PREFER,
    preferred,
    sse,
    until_end,
    wait_of,
    with_comments,
)  # fmt: skip
from holdfast.web.tracebacks import without_foreign_tracebacks

routes = Resources()

TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
LATEST = "latest"  # in place of the number of an attempt
_SENT = re.compile(r"([1-9]\d{0,8})\.(\d{1,15})", re.ASCII)

RESULT = Table(
    "job",
    field("id", str, "id of the job"),
    field("state", str, "its state"),
    field("result", Any, "its result, if it has succeeded"),
    field("why", str, "why it failed, in a sentence"),
    name="JobResult",
)

Number = Annotated[int, msgspec.Meta(ge=1)]
Lines = Annotated[int, about("only the last lines, this many", ge=0, le=1_000_000)]


class LogQuery(msgspec.Struct, frozen=True):
    attempt: Annotated[Number | None, about("number of the attempt; else the latest with output")] = None
    tail: Lines | None = None


class StreamedLogQuery(msgspec.Struct, frozen=True):
    follow: Annotated[bool, about("send new output until the attempt has ended")] = False
    tail: Lines | None = None


class UsageQuery(msgspec.Struct, frozen=True):
    attempt: Annotated[Number | None, about("number of the attempt; else the latest")] = None


# Result


@routes.get("/jobs/{id}/result", reply=RESULT, scope="job", status=(200, 202), client="result", headers=PREFER)
async def show_result(call: Call, id: str) -> Record:
    """Show the result of a job: 200 once it has ended in any way, 202 before.

    `Prefer: wait=30` waits for its end, up to that number of seconds, and 60.
    """
    job = await call.app.aget(id)
    seconds = wait_of(call.request)
    if seconds is not None:
        call.headers["Preference-Applied"] = f"wait={seconds:.0f}"
        job = await _wait(call, job, seconds)
    if not (job.is_final or job.unreadable):
        call.respond(202)
    return {"id": id, "state": job.state, "result": decoded(job.result_bytes), "why": job.why}


async def _wait(call: Call, job: Job[Any], seconds: float) -> Job[Any]:
    """Wait until a job has ended, or the time is over."""
    if job.is_final or job.unreadable:
        return job
    with suppress(NotEnded):
        await background_of(call.app).unless_ending(call.app.loop_inbox.wait(job.id, time.monotonic() + seconds))
    return await call.app.aget(job.id)


# What is known about it


@routes.get("/jobs/{id}/explain", reply=EXPLANATIONS, scope="job", client="explain")
async def explain_job(call: Call, id: str) -> Record:
    """Explain why a job is not running, by the rules by which jobs are handed out."""
    [found] = await without_other_queues(call, [await call.app.aexplain(id)])
    return EXPLANATIONS.record(found)


@routes.get("/jobs/{id}/timeline", reply=ListOf(HISTORY), scope="job", client="get")
async def show_timeline(call: Call, id: str) -> Listed:
    """Show everything that happened to a job, in order of time."""
    return Listed(items=HISTORY.records((await call.app.aget(id)).history))


@routes.get("/jobs/{id}/graph", reply=Graph, scope="job", client="dependents")
async def show_graph(call: Call, id: str) -> Graph:
    """Show the jobs that a job waits for, those that wait for it, and so on, up to 300."""
    return await GraphReader(call).read(id)


@routes.get("/jobs/{id}/usage", reply=USAGE, scope="job", status=(200, 204), client="usage")
async def show_usage(call: Call, id: str, query: UsageQuery) -> Record | None:
    """Show memory and CPU of an attempt over time; nothing (204) if nothing was recorded."""
    found = await call.app.ausage(id, attempt=query.attempt)
    if found is None:
        call.respond(204)
        return None
    return USAGE.record(found)


# Log


@routes.get("/jobs/{id}/log", reply=LOG, scope="job", client="logs")
async def show_log(call: Call, id: str, query: LogQuery) -> Record:
    """Show the output of an attempt, with the failure with which it ended."""
    [job] = await without_foreign_tracebacks(call, [await call.app.aget(id)])
    _check_attempt(job, query.attempt)
    log = await call.app.alogs(id, attempt=query.attempt)
    failure = next((each.failure for each in job.attempts if each.number == log.attempt), None)
    data = log.data if query.tail is None else last_lines(log.data, query.tail)
    return log_record(id, log.attempt, data, log.left_out, attempts=log.attempts, failure=failure)


@routes.get(
    "/jobs/{id}/attempts/{attempt}/log",
    reply=Stream(TEXT),
    scope="job",
    client=("logs", "follow_logs"),
    headers=LAST_EVENT_ID,
)
async def stream_log(call: Call, id: str, attempt: str, query: StreamedLogQuery) -> Chunks:
    """Send the output of an attempt, or of the `latest` one, as it was printed; with `follow`, as it is printed.

    With `Accept: application/x-ndjson` or `text/event-stream` each part is a record with the number of its attempt.
    """
    call.check_data()
    number = _attempt_number(attempt)
    _check_attempt(await call.app.aget(id), number)
    media_type = preferred(call.request, TEXT, NDJSON, EVENT_STREAM)
    if media_type == EVENT_STREAM:
        call.headers |= HEADERS
        return Chunks(EVENT_STREAM, with_comments(call, _events(call, id, number, query.tail)))
    follows = query.follow and call.request.method == "GET"  # the answer to HEAD has an end
    parts = _follow(call, id, number, query.tail) if follows else _once(call, id, number, query.tail)
    if media_type == NDJSON:
        return Chunks(NDJSON, _lines(id, parts))
    return Chunks(TEXT, _text(parts))


def _attempt_number(text: str) -> int | None:
    if text == LATEST:
        return None
    if not text.isascii() or not text.isdecimal() or not int(text[:9]) >= 1 or len(text) > 9:
        raise NotFound(f"{text[:20]!r} is not the number of an attempt, nor {LATEST}")
    return int(text)


def _check_attempt(job: Job[Any], number: int | None) -> None:
    if number is not None and number > job.attempt:
        latest = f"the latest is {job.attempt}" if job.attempt else "none has begun"
        raise NotFound(f"job {job.id} has no attempt {number}; {latest}")


async def _once(call: Call, id: str, number: int | None, tail: int | None) -> AsyncIterator[LogPart]:
    log = await call.app.alogs(id, attempt=number)
    data = log.data if tail is None else last_lines(log.data, tail)
    yield LogPart(log.attempt, data, data.decode(errors="replace"))


def _follow(call: Call, id: str, number: int | None, tail: int | None) -> AsyncIterator[LogPart]:
    return until_end(call, call.app.afollow_logs(id, attempt=number, tail=tail))


async def _text(parts: AsyncIterator[LogPart]) -> AsyncIterator[bytes]:
    async for part in parts:
        yield gap(part.left_out, b"\n") + part.data


async def _lines(id: str, parts: AsyncIterator[LogPart]) -> AsyncIterator[bytes]:
    async for part in parts:
        yield msgspec.json.encode(_record(id, part)) + b"\n"


async def _events(call: Call, id: str, number: int | None, tail: int | None) -> AsyncIterator[bytes]:
    """Yield parts of a log as events. The id of each says where to resume: the attempt, and how much of it was sent."""
    resumed = _resumed(call.request.headers.get("last-event-id", ""))
    reader = LogReader(id, number, None if resumed else tail, read=resumed)
    attempt, sent = resumed or (0, 0)
    async for part in afollow(call.app.async_store, reader):
        is_tail = not attempt and tail is not None
        before = sent if part.attempt == attempt else 0
        attempt, sent = part.attempt, reader.read if is_tail else before + part.left_out + len(part.data)
        yield sse(_record(id, part), id=f"{attempt}.{sent}")
    yield sse({"id": id}, event="end")


def _resumed(text: str) -> tuple[int, int] | None:
    """Return the attempt, and how many of its bytes were sent before."""
    found = _SENT.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def _record(id: str, part: LogPart) -> Record:
    return log_record(id, part.attempt, part.data, part.left_out)


# Stored bytes


@routes.get("/jobs/{id}/payload", reply=Stream(BYTES), scope="job", client="get")
async def show_payload(call: Call, id: str) -> Chunks:
    """Send the arguments of a job, as they are stored."""
    return _stored(call, (await call.app.aget(id)).payload, f"job {id} has lost its arguments")


@routes.get("/jobs/{id}/checkpoint", reply=Stream(BYTES), scope="job", client="get")
async def show_checkpoint(call: Call, id: str) -> Chunks:
    """Send the latest checkpoint of a job, as it is stored."""
    return _stored(call, (await call.app.aget(id)).checkpoint_bytes, f"job {id} has no checkpoint")


def _stored(call: Call, data: bytes | None, missing: str) -> Chunks:
    call.check_data()
    if data is None:
        raise NotFound(missing)
    shown = redacted_json(data, call.site.redact) if call.site.redact else data
    if shown is None:
        raise Problem(403, "FORBIDDEN", "this is not JSON, so the names that are hidden here cannot be found in it")
    return Chunks(BYTES, _whole(shown))


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
