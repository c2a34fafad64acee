"""The status of a namespace: its server, queues, workers and problems at a glance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.job.job import PENDING, STATES
from holdfast.records.queues import QUEUES
from holdfast.records.table import Record, Table, column, field, list_of, optional
from holdfast.store.commands import Queue, Worker
from holdfast.text import pluralize

if TYPE_CHECKING:
    from holdfast.doctor import ServerFacts

FAILED_JOBS = 100  # the latest ones, whose groups are counted


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


class Snapshot(NamedTuple):
    """What the status is made of."""

    queues: Sequence[Queue]
    workers: Sequence[Worker]
    overdue: int
    failed_groups: dict[str, int]
    outbox: Sequence[Record] | None  # None: it cannot be read


def server_summary(facts: ServerFacts, url: str) -> Record:
    """Return a server and what it guarantees, which changes rarely."""
    from holdfast.doctor import run_checks, server_name, worst_level

    findings = run_checks(facts)
    return {
        "name": server_name(facts),
        "url": url,
        "guarantee": next((each.means for each in findings if each.code == "persistence"), ""),
        "level": worst_level(findings),
        "findings": [each.code for each in findings if each.level in ("warning", "danger")],
    }


def status_record(namespace: str, server: Record, found: Snapshot) -> Record:
    """Return the status of a namespace on a server, of which `server_summary` made the record."""
    queues, workers, outbox = found.queues, found.workers, found.outbox
    live = [worker for worker in workers if worker.is_live]
    refused = sum(call["refused"] is not None for call in outbox or ())
    record = {
        "namespace": namespace,
        "server": server,
        "jobs": {state: sum(queue.counts[state] for queue in queues) for state in STATES},
        "queues": QUEUES.records(queues),
        "workers": {
            "live": len(live),
            "draining": sum(worker.is_draining for worker in live),
            "silent": len(workers) - len(live),
            "running_jobs": sum(len(worker.held) for worker in live),
        },
        "overdue": found.overdue,
        "failed_groups": found.failed_groups,
        "outbox": None if outbox is None else {"waiting": len(outbox) - refused, "refused": refused},
    }
    return {**record, "problems": list(_problems(record, queues, workers))}


def _problems(record: Record, queues: Sequence[Queue], workers: Sequence[Worker]) -> Iterator[str]:
    if codes := record["server"]["findings"]:
        yield f"the server needs attention ({', '.join(codes)}); see `holdfast doctor`"
    for queue in queues:
        if not (count := queue.counts["waiting"]):
            continue
        waiting = pluralize(count, "waiting job")
        if queue.paused:
            yield f"queue {queue.name} is paused with {waiting}; `holdfast queues resume {queue.name}`"
        elif not queue.workers:
            yield f"queue {queue.name} has {waiting}, but no live worker serves it"
    for worker in workers:
        if worker.held and not worker.is_live:
            held = pluralize(len(worker.held), "job")
            yield f"worker {worker.name} sends no heartbeat and holds {held} until the leases end"
    if record["overdue"] and not record["workers"]["live"]:
        yield f"{pluralize(record['overdue'], 'overdue timer')}; start a worker, or `holdfast upkeep`"
    if record["outbox"] is None:
        yield "the outbox of this directory cannot be read; see `holdfast outbox`"
        return
    if waiting := record["outbox"]["waiting"]:
        yield f"the outbox has {pluralize(waiting, 'call')} to send; see `holdfast outbox`"
    if refused := record["outbox"]["refused"]:
        yield f"the outbox has {pluralize(refused, 'call')} that the store refused; see `holdfast outbox`"
