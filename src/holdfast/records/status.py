"""The status of a namespace: its server, queues, workers and problems at a glance.

The cost is bounded: it depends on the number of queues and workers, never on the number of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast
from holdfast.client.paging import read_first
from holdfast.client.queries import list_jobs
from holdfast.client.queues import overdue, queues
from holdfast.client.workers import brief_workers
from holdfast.errors import HoldfastError
from holdfast.job.job import PENDING, STATES, Job
from holdfast.records.outbox import outbox_records
from holdfast.records.queues import QUEUES
from holdfast.records.table import Record, Table, column, field, list_of, optional
from holdfast.store import Pages, Steps, client_method, in_thread
from holdfast.store.commands import BriefWorker, Queue, Reported, Worker
from holdfast.text import pluralize

if TYPE_CHECKING:
    from holdfast.doctor import ServerFacts

FAILED_JOBS = 100  # the latest ones, whose groups are counted
FAILED_QUEUES = 10  # those with most failures, in which they are looked for


def _length(name: str) -> Any:
    return lambda record, _: len(record[name])


def _pending(record: Record, _: Any) -> int:
    return sum(record["jobs"][state] for state in PENDING)


SERVER_SUMMARY = Table(
    "server",
    field("name", str, "its name with the version"),
    field("url", str, "its address, without a password"),
    field("guarantee", str, "what survives a crash"),
    field("level", str, "the worst finding of the doctor: ok, note, unknown, warning or danger"),
    field("findings", list[str], "codes of the findings that need attention"),
    name="ServerSummary",
)
WORKER_COUNTS = Table(
    "workers",
    field("live", int, "number of live workers"),
    field("draining", int, "how many of these are draining"),
    field("silent", int, "number of workers without a recent heartbeat"),
    field("running_jobs", int, "number of jobs that live workers hold"),
    name="WorkerCounts",
)
OUTBOX_COUNTS = Table(
    "outbox",
    field("waiting", int, "number of calls to send"),
    field("refused", int, "number of calls that the store refused"),
    name="OutboxCounts",
)
STATUS = Table(
    "status",
    column("namespace", str, "namespace of the jobs", whole=True),
    field(
        "server", SERVER_SUMMARY,
        "its name with the version, url, guarantee (what survives a crash), level, findings (codes)",
    ),
    column("jobs", dict[str, int], "number of jobs in each state", title="PENDING", show=_pending),
    column(
        "queues", list_of(QUEUES), f"an array; of each queue: {', '.join(QUEUES.help)}", show=_length("queues"),
        right=True,
    ),
    column(
        "workers", WORKER_COUNTS, "number of workers: live, draining, silent; and of the jobs they are running",
        show=lambda record, _: record["workers"]["live"], right=True,
    ),
    column("overdue", int, "number of timers that are due and not processed", right=True),
    field("failed_groups", dict[str, int], f"groups of the latest {FAILED_JOBS} failed jobs, with their number"),
    field(
        "outbox", optional(OUTBOX_COUNTS), "number of calls waiting on this machine, and of those that were refused"
    ),
    column(
        "problems", list[str], "sentences about what needs attention", show=_length("problems"), right=True
    ),
)  # fmt: skip


def server_summary(app: Holdfast) -> Record:
    """Return the server and what it guarantees, which changes rarely."""
    from holdfast.doctor import probe_server

    return _summary(app, probe_server(app.store))


async def aserver_summary(app: Holdfast) -> Record:
    from holdfast.doctor import aprobe_server

    return _summary(app, await aprobe_server(app.async_store))


def _summary(app: Holdfast, facts: ServerFacts) -> Record:
    from holdfast.doctor import run_checks, server_name, worst_level

    findings = run_checks(facts)
    return {
        "name": server_name(facts),
        "url": app.address.display,
        "guarantee": next((each.means for each in findings if each.code == "persistence"), ""),
        "level": worst_level(findings),
        "findings": [each.code for each in findings if each.level in ("warning", "danger")],
    }


def _status_record(app: Holdfast, server: Record) -> Steps[Record]:
    """Return the status; `server` is its summary."""
    found: list[Queue] = yield from queues(app)
    crew = yield from brief_workers()
    outbox: list[Record] | None = yield in_thread(partial(readable_outbox, app))
    live = [worker for worker in crew if worker.is_live]
    refused = sum(call["refused"] is not None for call in outbox or ())
    record = {
        "namespace": app.address.namespace,
        "server": server,
        "jobs": {state: sum(queue.counts[state] for queue in found) for state in STATES},
        "queues": QUEUES.records(found),
        "workers": {
            "live": len(live),
            "draining": sum(worker.is_draining for worker in live),
            "silent": len(crew) - len(live),
            "running_jobs": sum(worker.holds for worker in live),
        },
        "overdue": (yield from overdue(app)),
        "failed_groups": (yield from _failed_groups(app, found)),
        "outbox": None if outbox is None else {"waiting": len(outbox) - refused, "refused": refused},
    }
    return {**record, "problems": list(_problems(record, found, crew))}


status_record, astatus_record = client_method(_status_record)


def readable_outbox(app: Holdfast) -> list[Record] | None:
    """Return the calls in the outbox; None if it cannot be read, for example because others may write there."""
    try:
        return outbox_records(app)
    except (OSError, HoldfastError):
        return None


def _failed_groups(app: Holdfast, found: Sequence[Queue]) -> Steps[dict[str, int]]:
    failed = sorted((each for each in found if each.counts["failed"]), key=lambda each: -each.counts["failed"])
    if not failed:
        return {}
    names = [each.name for each in failed[:FAILED_QUEUES]]
    pages: Pages[Job[Any]] = list_jobs(app, queue=names, state="failed", newest=True, limit=FAILED_JOBS)
    jobs = yield from read_first(pages, FAILED_JOBS)
    return dict(Counter(job.group or "unreadable" for job in jobs).most_common())


def _problems(record: Record, found: Sequence[Queue], crew: Sequence[BriefWorker]) -> Iterator[str]:
    if codes := record["server"]["findings"]:
        yield f"the server needs attention ({', '.join(codes)}); see `holdfast doctor`"
    yield from queue_problems(found)
    yield from worker_problems(crew)
    yield from overdue_problems(record["overdue"], crew)
    yield from _outbox_problems(record)


def queue_problems(queues: Sequence[Queue]) -> Iterator[str]:
    for queue in queues:
        if not (count := queue.counts["waiting"]):
            continue
        waiting = pluralize(count, "waiting job")
        if queue.paused:
            yield f"queue {queue.name} is paused with {waiting}; `holdfast queues resume {queue.name}`"
        elif not queue.workers:
            yield f"queue {queue.name} has {waiting}, but no live worker serves it"


def worker_problems(workers: Sequence[Worker | BriefWorker]) -> Iterator[str]:
    for worker in workers:
        if worker.holds and not worker.is_live:
            held = pluralize(worker.holds, "job")
            yield f"worker {worker.name} sends no heartbeat and holds {held} until the leases end"


def overdue_problems(overdue: int, workers: Sequence[Reported]) -> Iterator[str]:
    if overdue and not any(worker.is_live for worker in workers):
        yield f"{pluralize(overdue, 'overdue timer')}; start a worker, or `holdfast upkeep`"


def _outbox_problems(record: Record) -> Iterator[str]:
    if record["outbox"] is None:
        yield "the outbox of this directory cannot be read; see `holdfast outbox`"
        return
    if waiting := record["outbox"]["waiting"]:
        yield f"the outbox has {pluralize(waiting, 'call')} to send; see `holdfast outbox`"
    if refused := record["outbox"]["refused"]:
        yield f"the outbox has {pluralize(refused, 'call')} that the store refused; see `holdfast outbox`"
