"""What `enqueue` warns of: that nobody would run the job. No worker is there, serves its queue, or knows its task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from holdfast import Holdfast
from holdfast.cli.complaints import note
from holdfast.errors import HoldfastError
from holdfast.job.options import DEFAULT_QUEUE
from holdfast.store.commands import Worker
from holdfast.task.program import PROGRAM
from holdfast.text import did_you_mean

MAX_NAMES = 5  # of queues


def warn_if_nobody_runs(app: Holdfast, task: str, queue: str | None) -> None:
    """Say why jobs of a task would wait in a queue. They are stored already, so nothing fails here."""
    with suppress(HoldfastError):
        live = [worker for worker in app.workers() if worker.is_live and not worker.is_draining]
        if words := _obstacle(live, task, queue or DEFAULT_QUEUE):
            note(words)


def _obstacle(live: Sequence[Worker], task: str, queue: str) -> str:
    if not live:
        queues = "" if queue == DEFAULT_QUEUE else f" --queues {queue}"
        exec = " --allow-exec" if task == PROGRAM else ""
        return f"no worker is running, so it waits; start one: `holdfast work APP{queues}{exec}`"
    serving = [worker for worker in live if _serves(worker, queue)]
    if not serving:
        served = sorted({name for worker in live for name in worker.queue_patterns})
        more = "" if len(served) <= MAX_NAMES else " ..."
        meant = did_you_mean(queue, served) or f"; they serve {', '.join(served[:MAX_NAMES])}{more}"
        return f"no live worker serves queue {queue}, so it waits{meant}"
    if task == PROGRAM:
        allowing = any(worker.allows_exec for worker in serving)
        words = f"no live worker of queue {queue} runs programs: it waits for one that is started with --allow-exec"
        return "" if allowing else words
    if any(worker.tasks is None or task in worker.tasks for worker in serving):
        return ""
    known = sorted({name for worker in serving for name in worker.tasks or ()})
    return f"no live worker of queue {queue} knows task {task}, so it waits{did_you_mean(task, known)}"


def _serves(worker: Worker, queue: str) -> bool:
    """Whether a worker serves a queue, or would as soon as there is one."""
    from holdfast.worker.queue_patterns import Patterns

    return queue in worker.queues or Patterns(dict.fromkeys(worker.queue_patterns, 1)).serves(queue)
