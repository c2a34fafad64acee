"""What happens in a namespace now, at a glance: throughput, queues, workers, running jobs, failures.

The cost is bounded: it depends on the number of queues and workers, never on the number of jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast import Holdfast
from holdfast.job.job import PENDING, STATES, Job
from holdfast.records.failures import FINGERPRINTS
from holdfast.records.jobs import JOBS
from holdfast.records.queues import QUEUE_LOADS
from holdfast.records.status import overdue_problems, queue_problems, worker_problems
from holdfast.records.table import Record, Table, Time, column, field, list_of
from holdfast.store.commands import Worker
from holdfast.units import utc

MAX_QUEUES, MAX_RUNNING, MAX_FAILURES, MAX_PROBLEMS = 100, 50, 10, 100
MINUTES = 60  # of the series
SERIES_INTERVAL = timedelta(seconds=5)
MAX_SERIES = 50  # queues; with more, each minute would cost too many calls

TOP_QUEUES = QUEUE_LOADS.extended(
    column("failed", int, "number of retained jobs that failed", right=True), name="TopQueue"
)
TOP_WORKERS = Table(
    "workers",
    field("live", int, "number of live workers"),
    field("draining", int, "how many of these are draining"),
    field("silent", int, "number of workers without a recent heartbeat"),
    field("slots", int, "number of jobs that live workers can run at once, in processes and concurrently"),
    field("busy", int, "number of jobs that they hold"),
    field("memory_bytes", int, "memory of all their processes"),
    name="TopWorkers",
)
_RUNNING = ("id", "task", "queue", "state", "cancelling", "attempt", "claimed_at", "stalled", "progress", "worker")
TOP_RUNNING = Table("job", *(each for each in JOBS.fields if each.name in _RUNNING), name="TopJob")
TOP = Table(
    "moment",
    column("time", Time, "the time of the server"),
    field("namespace", str, "namespace of the jobs"),
    field("jobs", dict[str, int], "number of jobs in each state"),
    field("arriving", float, "jobs that arrive per second"),
    field("ending", float, "attempts that end per second"),
    field(
        "ended_by_minute", list[int] | None,
        f"attempts that ended in each of the last minutes, up to {MINUTES}; the last one is not over; null: there are "
        f"more than {MAX_SERIES} queues",
    ),
    field("overdue", int, "number of timers that are due and not processed"),
    field(
        "workers", TOP_WORKERS, f"workers together: {', '.join(TOP_WORKERS.help)}"
    ),
    field("queue_count", int, "number of queues"),
    field(
        "queues", list_of(TOP_QUEUES),
        f"up to {MAX_QUEUES} queues, those with most pending jobs first; of each the fields of `load`, and failed",
    ),
    field(
        "running", list_of(TOP_RUNNING),
        f"up to {MAX_RUNNING} running jobs, those that run longest first; of each: {', '.join(TOP_RUNNING.help)}",
    ),
    field(
        "failures", list_of(FINGERPRINTS),
        f"up to {MAX_FAILURES} kinds of failures, the latest first; of each the fields of `failures`",
    ),
    field("problems", list[str], f"up to {MAX_PROBLEMS} sentences about what needs attention"),
)  # fmt: skip


class Top:
    """Reads moments, one after the other."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._ended_by_minute: list[int] | None = None
        self._series_read_at: datetime | None = None

    def read(self) -> Record:
        app = self._app
        queues, loads, workers, overdue = app.queues(), app.load(), app.workers(), app.overdue()
        failed = {queue.name: queue.counts["failed"] for queue in queues}
        rows = [TOP_QUEUES.record(load, failed=failed.get(load.queue, 0)) for load in loads]
        now = self._now()
        problems = [*overdue_problems(overdue, workers), *worker_problems(workers), *queue_problems(queues)]
        return {
            "time": now,
            "namespace": app.address.namespace,
            "jobs": {state: sum(queue.counts[state] for queue in queues) for state in STATES},
            "arriving": sum(load.arriving for load in loads),
            "ending": sum(load.ending for load in loads),
            "ended_by_minute": self._series(now, len(queues)),
            "overdue": overdue,
            "workers": _workers(workers),
            "queue_count": len(rows),
            "queues": sorted(rows, key=lambda row: (-_pending(row), row["queue"]))[:MAX_QUEUES],
            "running": TOP_RUNNING.records(self._longest_running(workers)),
            "failures": FINGERPRINTS.records(app.failures(by="fingerprint", limit=MAX_FAILURES)),
            "problems": problems[:MAX_PROBLEMS],
        }

    def _now(self) -> datetime:
        seconds, microseconds = self._app.store.execute("TIME")
        return utc(int(seconds) * 1000 + int(microseconds) // 1000)

    def _series(self, now: datetime, queues: int) -> list[int] | None:
        if self._series_read_at is None or now - self._series_read_at >= SERIES_INTERVAL:
            points = self._app.stats_series(since=timedelta(minutes=MINUTES - 1)) if queues <= MAX_SERIES else None
            self._ended_by_minute = None if points is None else [point.ended for point in points]
            self._series_read_at = now
        return self._ended_by_minute

    def _longest_running(self, workers: Sequence[Worker]) -> list[Job[Any]]:
        held = sorted((job for worker in workers for job in worker.held), key=lambda job: job.claimed_at)
        ids = list(dict.fromkeys(job.id for job in held[:MAX_RUNNING]))
        found = self._app.get_many(ids) if ids else []
        return [job for job in found if job and job.state == "running"]


def _pending(row: Record) -> int:
    return sum(row[state] for state in PENDING)


def _workers(workers: Sequence[Worker]) -> Record:
    from holdfast.planning.fleet import shape_of

    live = [worker for worker in workers if worker.is_live]
    pools = [pool for worker in live for pool in shape_of(worker).pools]
    return {
        "live": len(live),
        "draining": sum(worker.is_draining for worker in live),
        "silent": len(workers) - len(live),
        "slots": sum(pool.processes + pool.concurrency for pool in pools),
        "busy": sum(len(worker.held) for worker in live),
        "memory_bytes": sum(worker.memory for worker in live),
    }
