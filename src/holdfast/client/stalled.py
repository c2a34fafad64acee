"""Stalled jobs: running ones whose lease has ended, and that no worker has requeued yet.

While workers claim or send heartbeats, such a job is requeued at once. If all workers are dead or cut off, jobs stay
stalled until one is back.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.constants import MAX_BATCH
from holdfast.store import Steps, Stores, commands


class StalledJobs(msgspec.Struct, frozen=True):
    """How many jobs have stalled, by queue and by worker, the most first. `jobs.list(stalled=True)` has the jobs."""

    total: int
    queues: dict[str, int]
    workers: dict[str, int]  # node/name of those that held the leases


def stalled(_: Stores) -> Steps[StalledJobs]:
    """Count the running jobs whose leases have ended, and that no worker has requeued yet."""
    queues, workers = Counter[str](), Counter[str]()
    cursor: str | None = None
    while True:
        page = yield commands.list_rows(["queue", "worker"], limit=MAX_BATCH, cursor=cursor, stalled=True)
        queues.update(queue for queue, _ in page.rows)
        workers.update(worker for _, worker in page.rows)
        cursor = page.cursor
        if cursor is None:
            return StalledJobs(queues.total(), dict(queues.most_common()), dict(workers.most_common()))
