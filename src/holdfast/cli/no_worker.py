"""The warning of `enqueue` that no worker will run the job: none is live, serves its queue, or knows its task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from holdfast import Holdfast
from holdfast.cli.errors import print_note
from holdfast.errors import HoldfastError
from holdfast.job.options import DEFAULT_QUEUE
from holdfast.store.commands import Worker
from holdfast.task.program import PROGRAM
from holdfast.text import did_you_mean

MAX_NAMES = 5  # of queues


def warn_without_worker(app: Holdfast, task: str, queue: str | None, path: str | None) -> None:
    """Warn if no worker will run the jobs that were just stored; `path` names the app. Never fails: they are stored."""
    with suppress(HoldfastError):
        live = [worker for worker in app.workers() if worker.is_live and not worker.is_draining]
        if reason := _reason(live, task, queue or DEFAULT_QUEUE, path or "APP"):
            print_note(reason)


def _reason(live: Sequence[Worker], task: str, queue: str, path: str) -> str:
    if not live:
        queues = "" if queue == DEFAULT_QUEUE else f" --queues {queue}"
        exec = " --allow-exec" if task == PROGRAM else ""
        return f"no worker is running, so the job waits; start one: `holdfast work {path}{queues}{exec}`"
    serving = [worker for worker in live if _serves(worker, queue)]
    if not serving:
        served = sorted({name for worker in live for name in worker.queue_patterns})
        more = "" if len(served) <= MAX_NAMES else " ..."
        meant = did_you_mean(queue, served) or f"; they serve {', '.join(served[:MAX_NAMES])}{more}"
        return f"no live worker serves queue {queue}, so the job waits{meant}"
    if task == PROGRAM:
        allowed = any(worker.allows_exec for worker in serving)
        return "" if allowed else f"no live worker of queue {queue} runs programs; start one with --allow-exec"
    if any(worker.tasks is None or task in worker.tasks for worker in serving):
        return ""
    known = sorted({name for worker in serving for name in worker.tasks or ()})
    return f"no live worker of queue {queue} knows task {task}, so the job waits{did_you_mean(task, known)}"


def _serves(worker: Worker, queue: str) -> bool:
    """Return whether a worker serves a queue, or will once it exists."""
    from holdfast.client.queue_patterns import Patterns

    return queue in worker.queues or Patterns(dict.fromkeys(worker.queue_patterns, 1)).serves(queue)
