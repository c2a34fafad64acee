"""The log lines of a worker when it is ready and when it stops, and its tally of jobs per second.

The first shows tasks, queues, slots and store, so that a wrong one is noticed at once; the last the jobs that it waits
for. The tally replaces a line per job when there are too many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

from holdfast.store import Address
from holdfast.text import printable
from holdfast.worker import messages
from holdfast.worker.settings import Pool, WorkerSettings

log = logging.getLogger("holdfast.worker")

MAX_NAMES = 12  # of tasks
MAX_JOBS = 10  # that are named at a shutdown
NO_TASKS = "no tasks: does the module import them?"


def log_banner(
    worker: str,
    settings: WorkerSettings,
    tasks: Sequence[str],
    address: Address,
    server: str,
    *,
    starts_processes: bool = True,
) -> None:
    """Log that a worker is ready; as a warning if its app has no tasks."""
    rows = [("tasks", _tasks(tasks)), *_pools(settings.pools, starts_processes)]
    rows.append(("store", f"{server or 'server'} at {address.display}, namespace {address.namespace}"))
    lines = "".join(f"\n    {label:<7} {text}" for label, text in rows)
    log.log(logging.INFO if tasks else logging.WARNING, "worker %s is ready%s", worker, lines)


def log_stop(worker: str, seconds: float, running: Sequence[tuple[str, str]]) -> None:
    """Log that a worker stops, and the ids and tasks of the jobs that it waits for."""
    if not running:
        log.info("worker %s is stopping within %g s: no job is running", worker, seconds)
        return
    more = f" and {len(running) - MAX_JOBS} more" if len(running) > MAX_JOBS else ""
    log.info(
        "worker %s is stopping within %g s: waiting for %s%s; a second Ctrl-C or SIGTERM requeues them at once",
        worker,
        seconds,
        ", ".join(f"{id} ({printable(task)})" for id, task in running[:MAX_JOBS]),
        more,
    )


def _tasks(names: Sequence[str]) -> str:
    if not names:
        return NO_TASKS
    more = len(names) - MAX_NAMES
    return f"{len(names)}: {', '.join(names[:MAX_NAMES])}{f' and {more} more' if more > 0 else ''}"


def _pools(pools: Sequence[Pool], starts_processes: bool) -> list[tuple[str, str]]:
    slots = [_slots(pool, starts_processes) for pool in pools]
    if len(pools) == 1:
        return [("queues", _queues(pools[0])), ("slots", slots[0])]
    pairs = zip(pools, slots, strict=True)
    return [("pool", f"{pool.name}: queues {_queues(pool)}; slots {each}") for pool, each in pairs]


def _queues(pool: Pool) -> str:
    return ", ".join(pool.queues)


def _slots(pool: Pool, starts_processes: bool) -> str:
    processes = f"{pool.processes} process{'es' * (pool.processes != 1)}, " if starts_processes else ""
    each = f"{processes}{pool.concurrency} coroutines or threads"
    return each if pool.executors == 1 else f"{each}, in each of {pool.executors} executors"


GATHER_TIME = 0.25  # seconds within which all executors report the same second


class Tally:
    """Adds up the counts that executors report every second, and logs the sums."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def handle(self, message: messages.FromExecutor) -> None:
        if not isinstance(message, messages.AttemptCounts):
            return
        if not self._counts:
            asyncio.get_running_loop().call_later(GATHER_TIME, self.log)
        self._counts.update(message.counts)

    def log(self) -> None:
        """Log the sums; called at once when the worker ends."""
        if self._counts:
            counts, self._counts = self._counts, Counter()
            parts = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
            log.info("ran %s in the last second: %s", f"{counts.total():,} job{'s' * (counts.total() != 1)}", parts)
