"""What needs attention: found from the loads of queues, the latest failures, the workers and the doctor's findings.

The cost is that of a few calls, whatever the number of jobs: queues and workers are read in pages, failures are the
latest ones, and at most `MAX_EACH` matters of a kind are explained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.client.events import earlier_events
from holdfast.client.failures import failures_page
from holdfast.client.queues import Load
from holdfast.constants import MAX_BATCH
from holdfast.errors import NotFound
from holdfast.events.filter import EventFilter
from holdfast.job.failures import FailureGroup
from holdfast.records.attention import ATTENTION
from holdfast.records.table import Record
from holdfast.store.commands import BriefWorker
from holdfast.text import pluralize
from holdfast.web.call import Call
from holdfast.web.memo import shared
from holdfast.web.pages.commands import command_line
from holdfast.web.pages.formats import clock, duration, number, short_duration
from holdfast.web.resource import Listed, ListOf, Resources
from holdfast.web.resources.checks import read_findings
from holdfast.web.resources.workers import stalled_by_worker, visible_briefly
from holdfast.web.steps import run

routes = Resources()

MAX_EACH = 5  # matters of a kind; further ones are counted
FOR_SECONDS = 2.0  # for which findings are shared
USUAL_FOR_SECONDS = 60.0
PAUSES_FOR_SECONDS = 60.0
TARGET = 60.0  # seconds that a job may wait without anybody having to look
MUCH = 2.0  # how many times the usual wait is too long
UNUSUAL = 300.0  # seconds, where nothing is known about what is usual
USUAL_DAYS = 7  # before today: what is usual
NEW = timedelta(days=1)  # how long an error is new
ONGOING = timedelta(hours=1)  # an error that was last seen longer ago is over
MIN_FAILED = 3  # jobs of an error that is worth a sentence
MAX_LATEST = 100  # failed jobs or errors that are looked at
MAX_EVENT_PAGES = 10  # of 1,000 events each, that are searched for pauses
LEVELS = ("danger", "warning", "note")


@routes.get("/attention", reply=ListOf(ATTENTION), scope="visible", client=("load", "workers", "failures", "events"))
async def list_attention(call: Call) -> Listed:
    """List what needs attention, the worst first. An empty list says that all is well.

    Tasks that began to fail, queues that are behind or have no worker or are paused, silent workers, and what the
    doctor has found.
    """
    return await shared(call, "attention", FOR_SECONDS, lambda: _find(call))


async def _find(call: Call) -> Listed:
    now = datetime.now(UTC)
    found = await asyncio.gather(
        _failing(call, now), _of_queues(call, now), _of_workers(call, now), _of_server(call),
    )  # fmt: skip
    matters = [each for some in found for each in some]
    return Listed(items=sorted(matters, key=lambda each: LEVELS.index(each["level"])))


def _matter(level: str, code: str, about: tuple[str, str], text: str, detail: str = "", **more: Any) -> Record:
    made = {
        "level": level, "text": text, "detail": detail, "code": code, "kind": about[0], "name": about[1], "queue": None,
        "since": None, "command": "", "facts": {},
    } | more  # fmt: skip
    return {name: made[name] for name in ATTENTION.help}


def _first(matters: Iterable[Record], noun: str) -> Iterator[Record]:
    """Yield the first matters of a kind, and how many more there are."""
    rest = 0
    for place, each in enumerate(matters):
        if place < MAX_EACH:
            yield each
        else:
            rest, last = rest + 1, each
    if rest:
        what = f"{number(rest)} more {noun}"
        yield _matter(last["level"], last["code"], ("all", last["kind"]), what, facts={"count": rest})


# Failures


async def _failing(call: Call, now: datetime) -> list[Record]:
    """Return the errors that are new and go on."""
    groups = await (_latest_errors(call) if call.user.has_all_queues else _visible_errors(call))
    new = [
        each
        for each in groups
        if each.first_seen and each.last_seen and each.count >= MIN_FAILED
        and now - each.first_seen < NEW and now - each.last_seen < ONGOING
    ]  # fmt: skip
    new.sort(key=lambda each: -each.count)
    return [*_first((_error_matter(each, now) for each in new), "errors are new")]


def _error_matter(error: FailureGroup, now: datetime) -> Record:
    first = error.first_seen or now
    since = f"release {error.revision}" if error.revision else clock(first, now)
    short = error.type.rpartition(".")[2] or error.name
    return _matter(
        "danger", "failing", ("failure", error.name),
        f"{error.task} has failed with {short} since {since}",
        f"{pluralize(error.count, 'job')} in {short_duration(now - first)}",
        since=first, command=command_line("failures show", error.name),
        facts={
            "task": error.task, "error": short, "type": error.type, "revision": error.revision or None,
            "jobs": error.count,
        },
    )  # fmt: skip


async def _latest_errors(call: Call) -> Sequence[FailureGroup]:
    return (await run(call, failures_page(by="fingerprint", limit=MAX_LATEST))).groups


async def _visible_errors(call: Call) -> list[FailureGroup]:
    """Return the errors of the latest failed jobs that the user may see; their numbers are those of these jobs."""
    names = [each.name for each in call.visible(await call.app.aqueues(), lambda each: each.name)]
    if not names:
        return []
    page = await call.app.apage(limit=MAX_LATEST, queue=names, state="failed", newest=True)
    by_name: dict[str, list[datetime]] = {}
    for job in page.rows:
        by_name.setdefault(job.fingerprint, []).append(job.since)
    found = []
    for name, times in sorted(by_name.items(), key=lambda each: -len(each[1]))[:MAX_EACH]:
        try:
            known = await call.app.afailure(name)
        except NotFound:
            continue
        found.append(FailureGroup(
            by="fingerprint", name=name, count=len(times), first_seen=known.first_seen, last_seen=max(times),
            type=known.type, task=known.task, revision=known.revision,
        ))  # fmt: skip
    return found


# Queues


async def _of_queues(call: Call, now: datetime) -> list[Record]:
    loads = call.visible(await call.app.aload())
    waiting = sorted((each for each in loads if each.waiting and not each.paused), key=lambda each: -(each.oldest or 0))
    unserved = [each for each in waiting if not each.workers]
    slow = [each for each in waiting if each.workers and (each.oldest or 0) > TARGET]
    paused = [each for each in loads if each.paused]
    usual = await shared(
        call, ("usual", *(each.queue for each in slow[:MAX_EACH])), USUAL_FOR_SECONDS,
        lambda: asyncio.gather(*(_usual_wait(call, each.queue) for each in slow[:MAX_EACH])), lasts=True,
    )  # fmt: skip
    behind = [
        _behind_matter(load, wait)
        for load, wait in [*zip(slow, usual, strict=False), *((each, None) for each in slow[MAX_EACH:])]
        if (load.oldest or 0) > (UNUSUAL if wait is None else MUCH * wait)
    ]
    pauses = await _pauses(call, [each.queue for each in paused[:MAX_EACH]]) if paused else {}
    return [
        *_first(map(_unserved_matter, unserved), "queues have no live worker"),
        *_first(behind, "queues are behind"),
        *_first((_paused_matter(each, pauses.get(each.queue), now) for each in paused), "queues are paused"),
    ]


def _unserved_matter(load: Load) -> Record:
    return _matter(
        "danger", "unserved", ("queue", load.queue),
        f"Queue {load.queue} has no live worker",
        f"{pluralize(load.waiting, 'job')} waiting, the oldest for {duration(load.oldest)}",
        queue=load.queue, command=command_line("work", "APP", queues=load.queue),
        facts={"waiting": load.waiting, "oldest_seconds": load.oldest},
    )  # fmt: skip


def _behind_matter(load: Load, usual: float | None) -> Record:
    than = "" if usual is None else f"; up to {duration(max(usual, 0.001))} is usual"
    return _matter(
        "warning", "behind", ("queue", load.queue),
        f"Queue {load.queue} is behind: its oldest job has waited {duration(load.oldest)}{than}",
        f"{number(load.needed)} slots are needed, {number(load.running)} are busy",
        queue=load.queue, command=command_line("load", load.queue),
        facts={"oldest_seconds": load.oldest, "usual_seconds": usual, "needed": load.needed, "running": load.running},
    )  # fmt: skip


async def _usual_wait(call: Call, queue: str) -> float | None:
    """Return how long all but a few jobs of a queue waited in the days before today."""
    today = datetime.now(UTC).date()
    found = await call.app.astats(queue, since=today - timedelta(days=USUAL_DAYS), until=today - timedelta(days=1))
    quantile = found.wait.quantile(0.95)
    return None if quantile is None else quantile.value


def _paused_matter(load: Load, pause: tuple[str, datetime] | None, now: datetime) -> Record:
    by = f" by {pause[0]}" if pause and pause[0] else ""
    at = f" since {clock(pause[1], now)}" if pause else ""
    waiting = f"{pluralize(load.waiting, 'job')} waiting" if load.waiting else "No job waits"
    return _matter(
        "note", "paused", ("queue", load.queue), f"Queue {load.queue} is paused{at}{by}", waiting, queue=load.queue,
        since=pause[1] if pause else None, command=command_line("queues resume", load.queue),
        facts={"by": pause[0] if pause else None, "waiting": load.waiting},
    )  # fmt: skip


async def _pauses(call: Call, queues: Sequence[str]) -> dict[str, tuple[str, datetime]]:
    """Return who paused queues, and when, as far as the latest events tell."""

    async def read() -> dict[str, tuple[str, datetime]]:
        found: dict[str, tuple[str, datetime]] = {}
        before: str | None = None
        for _ in range(MAX_EVENT_PAGES):
            page = await run(call, earlier_events(before, limit=MAX_BATCH, selects=EventFilter.of(["paused"])))
            for event in page.events:
                for name in event.queues:
                    found.setdefault(name, (event.who, event.at))
            if not page.has_more or found.keys() >= set(queues):
                break
            before = page.position
        return found

    return await shared(call, ("pauses", tuple(queues)), PAUSES_FOR_SECONDS, read, lasts=True)


# Workers


async def _of_workers(call: Call, now: datetime) -> list[Record]:
    workers, stalled = await asyncio.gather(visible_briefly(call), stalled_by_worker(call))
    silent = sorted((each for each in workers if not each.is_live), key=lambda each: each.seen_at, reverse=True)
    stalling = [(each.name, stalled[each.name]) for each in workers if each.is_live and stalled.get(each.name)]
    return [
        *_first((_silent_matter(each, now) for each in silent), "workers are silent"),
        *_first((_stalled_matter(*each) for each in stalling), "workers have stalled jobs"),
    ]


def _silent_matter(worker: BriefWorker, now: datetime) -> Record:
    jobs = worker.holds
    detail = f"It holds {pluralize(jobs, 'job')} that nobody has requeued yet" if jobs else "It holds no jobs"
    return _matter(
        "danger" if jobs else "warning", "silent", ("worker", worker.name),
        f"Worker {worker.name} has been silent since {clock(worker.seen_at, now)}", detail,
        since=worker.seen_at, command=command_line("workers forget", worker.name), facts={"jobs": jobs},
    )  # fmt: skip


def _stalled_matter(worker: str, jobs: int) -> Record:
    return _matter(
        "danger", "stalled", ("worker", worker),
        f"Worker {worker} has {pluralize(jobs, 'job')} without a heartbeat",
        "Nobody has requeued them yet", command=command_line("workers show", worker), facts={"jobs": jobs},
    )  # fmt: skip


# The server


async def _of_server(call: Call) -> list[Record]:
    """Return the doctor's warnings, for those who may see what it found."""
    if not call.user.has_role("operator"):
        return []
    found = [each for each in await read_findings(call) if each.level in ("warning", "danger")]
    return [*_first((_finding_matter(each) for each in found), "findings of the doctor")]


def _finding_matter(finding: Any) -> Record:
    return _matter(
        finding.level, "server", ("server", finding.code), finding.means.removesuffix("."), finding.advice,
        command=command_line("doctor"), facts={"code": finding.code},
    )  # fmt: skip
