"""Workers, and the machines they run on."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from holdfast.records.formatting import short_duration, short_size
from holdfast.records.table import Output, Record, Table, Time, column, done_column, field, list_of

MAX_SHOWN = 3  # ids or queues of a worker, on a terminal


def _state(record: Record, _: Output) -> str:
    return ("draining" if record.get("draining") else "live") if record["live"] else "silent"


def _memory(record: Record, output: Output) -> str:
    count = record["memory_bytes"]
    return str(count) if not output.on_terminal else short_size(count) if count else ""


def _cpu(record: Record, output: Output) -> str:
    seconds = record["cpu_seconds"]
    return f"{seconds:.1f}" if not output.on_terminal else short_duration(seconds) if seconds else ""


def _served(record: Record, output: Output) -> Sequence[str]:
    """On a terminal, show patterns with the queues that they match now."""
    patterns, queues = record["queue_patterns"], record["queues"]
    if patterns == queues or not output.on_terminal:
        return list(queues)
    more = f" and {len(queues) - MAX_SHOWN} more" if len(queues) > MAX_SHOWN else ""
    return [f"{','.join(patterns)} (now {','.join(queues[:MAX_SHOWN]) or 'none'}{more})"]


def _job_ids(record: Record, output: Output) -> Sequence[str]:
    ids = [job["id"] for job in record["jobs"]]
    if not output.on_terminal or len(ids) <= MAX_SHOWN:
        return ids
    return [*ids[:MAX_SHOWN], f"and {len(ids) - MAX_SHOWN} more"]


def _reported(name: str, type: type) -> Any:
    """Return a reader of what a worker reports about itself; null if it reports something else."""

    def read(worker: Any) -> Any:
        value = worker.about.get(name)
        return value if isinstance(value, type) else None

    return read


_NAME = column("worker", str, "name of the worker", attrgetter("name"), whole=True)

HELD_JOBS = Table(
    "held job",
    field("executor", str, "executor that runs it"),
    field("id", str, "id of the job"),
    field("attempt", int, "number of the attempt"),
    field("queue", str, "name of the queue"),
    field("task", str, "name of the task"),
    field("pid", int, "its process; 0: not yet known"),
    field("claimed_at", Time, "when it was claimed"),
    field("heartbeat_at", Time | None, "when its lease was last renewed; null: unknown"),
    field("stalled", bool, "whether its lease has ended"),
)
WORKERS = Table(
    "worker",
    _NAME,
    field("node", str, "machine that it runs on"),
    column(
        "live", bool, "whether its last heartbeat is less than half a minute old", attrgetter("is_live"),
        title="STATE", show=_state, coloured=True, whole=True,
    ),
    field(
        "draining", bool, "whether it claims no more jobs and exits when its jobs have ended",
        attrgetter("is_draining"),
    ),
    field("idle", bool, "whether it is live and has no jobs", attrgetter("is_idle")),
    column("seen_at", Time, "time of its last heartbeat", title="SEEN", right=True, volatile=True),
    column("started_at", Time | None, "when it started", title="SINCE", right=True),
    column("pid", int | None, "its process id", _reported("pid", int), right=True),
    column("app", str | None, "app whose jobs it runs", _reported("app", str)),
    column(
        "allow_exec", bool, "whether it runs any program that is enqueued", attrgetter("allows_exec"), title="EXEC",
        show=lambda record, _: "yes" * record["allow_exec"], right=True, on_terminal_only=True,
    ),
    column("queues", list[str], "names of the queues that it serves", show=_served),
    field("queue_patterns", list[str], "queues of its configuration: names, patterns and exclusions"),
    column(
        "memory_bytes", int, "memory of all its processes", attrgetter("memory"), title="MEMORY", show=_memory,
        right=True, volatile=True,
    ),
    column("cpu_seconds", float, "CPU time of all its processes", title="CPU", show=_cpu, right=True, volatile=True),
    column(
        "jobs", list_of(HELD_JOBS), "jobs that it holds; of each: id, attempt, executor, queue, task, pid, "
        "claimed_at, heartbeat_at (null: unknown), stalled (its lease has ended)",
        lambda worker: HELD_JOBS.records(worker.held), show=_job_ids,
    ),
    field("stalled", int, "number of these whose leases have ended", lambda worker: len(worker.stalled)),
    field("about", dict[str, Any], "everything that it reports about itself", volatile=True),
)  # fmt: skip
NODES = Table(
    "node",
    column("node", str, "name of the machine", attrgetter("name"), whole=True),
    column(
        "live", bool, "whether one of its workers is live", attrgetter("is_live"), title="STATE", show=_state,
        coloured=True, whole=True,
    ),
    column("seen_at", Time, "time of the last heartbeat of its workers", title="SEEN", right=True, volatile=True),
    column(
        "workers", list[str], "names of its workers", lambda node: [worker.name for worker in node.workers],
        show=lambda record, _: len(record["workers"]), right=True,
    ),
    column(
        "jobs", int, "number of jobs that they hold", attrgetter("holds"), right=True,
    ),
    column("queues", list[str], "names of the queues that its live workers serve"),
    column(
        "memory_bytes", int, "memory of its live workers", attrgetter("memory"), title="MEMORY", show=_memory,
        right=True, volatile=True,
    ),
    column("cpu_seconds", float, "CPU time of its live workers", title="CPU", show=_cpu, right=True, volatile=True),
)  # fmt: skip
RELEASES = Table(
    "release",
    field("revision", int, "revision of the app"),
    field("live", int, "number of live workers that have it"),
    field("since", Time | None, "when the first of its workers started that are still known"),
    name="ReleaseOfWorkers",
)
WORKER_SUMMARY = Table(
    "count",
    field("workers", int, "number of workers"),
    field("nodes", int, "number of machines that they run on"),
    field("live", int, "number of live workers"),
    field("draining", int, "number of these that claim no more jobs"),
    field("jobs", int, "number of jobs that live workers hold"),
    field("slots", int | None, "number of jobs that they run at once, as far as they report it; null: none does"),
    field("memory_bytes", int, "memory of live workers"),
    field("stalled", int, "number of jobs of workers whose leases have ended"),
    field(
        "releases", list_of(RELEASES), "revisions that workers have, the oldest first; of each: revision, live, since"
    ),
    name="WorkerSummary",
)
DRAINED = Table(
    "worker",
    _NAME,
    column("state", str, "draining or ended", coloured=True),
    column("jobs", int, "number of jobs that it holds", right=True),
    name="DrainedWorker",
)
FORGOTTEN = Table("worker", _NAME, done_column("forgotten"), name="ForgottenWorker")
STALLED = Table(
    "count",
    field("total", int, "number of running jobs whose leases have ended, and that no worker has requeued yet"),
    field("queues", dict[str, int], "their number in each queue, the most first"),
    field("workers", dict[str, int], "their number by the worker that held the lease, the most first"),
    name="StalledJobs",
)
