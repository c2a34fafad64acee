"""`holdfast show` and `holdfast peek`: everything about one job, or about the next jobs of a queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids, complete_queue
from holdfast.cli.describe import describe
from holdfast.cli.errors import print_note
from holdfast.cli.exit_codes import INTERRUPTED
from holdfast.cli.formatting import decoded
from holdfast.cli.jobs import JOBS
from holdfast.cli.options import limit_option
from holdfast.cli.suggestions import find_queue, suggesting_ids
from holdfast.cli.table import Record, field
from holdfast.cli.usage import usage_record
from holdfast.cli.watch import View, Watched, watch, watch_option
from holdfast.constants import MAX_BATCH
from holdfast.job.failure import Failure
from holdfast.job.job import Attempt, Job, Note
from holdfast.job.retries import Retries
from holdfast.job.usage import JobUsage

MAX_UNREADABLE = 20  # records that `peek` skips


def failure_record(failure: Failure | None) -> Record | None:
    return None if failure is None else msgspec.structs.asdict(failure)


def _attempts(attempts: Sequence[Attempt], notes: Sequence[Note]) -> Iterator[Record]:
    retries = [note.at for note in notes if note.what == "retried"]
    before: Attempt | None = None
    for attempt in attempts:
        yield {
            **{name: getattr(attempt, name) for name in ("number", "outcome")},
            "because": _because(attempt, before, retries),
            **{name: getattr(attempt, name) for name in ("reason", "executor", "node", "pid")},
            **{name: getattr(attempt, name) for name in ("queued_at", "claimed_at", "started_at", "ended_at")},
            "failure": failure_record(attempt.failure),
        }
        before = attempt


def _because(attempt: Attempt, before: Attempt | None, retries: Sequence[datetime]) -> str | None:
    """Return why an attempt was made: the outcome of the previous one, or a user's retry; None if no longer stored."""
    if attempt.number == 1:
        return "first"
    if before is None or before.number != attempt.number - 1 or before.ended_at is None:
        return None
    if any(before.ended_at <= at <= attempt.queued_at for at in retries):
        return "retry"
    return before.outcome


def _retry_policy(retries: Retries | None) -> Record | None:
    return (
        None
        if retries is None
        else {
            "waits_seconds": [wait.total_seconds() for wait in retries.waits],
            "cap_seconds": retries.cap.total_seconds() if retries.cap else None,
            **{name: getattr(retries, name) for name in ("jitter", "on", "not_on")},
        }
    )


JOB_DETAILS = JOBS.extended(
    field("codec", "how its arguments are encoded"),
    field("arguments", "its arguments, by name", lambda job: decoded(job.payload, job.codec)),
    field(
        "after", "jobs it was enqueued after; of each: id, state (pending, succeeded, failed or cancelled)",
        lambda job: [msgspec.structs.asdict(each) for each in job.after],
    ),
    field(
        "waits", "jobs it has waited for since it ran; the same of each",
        lambda job: [msgspec.structs.asdict(each) for each in job.waits],
    ),
    field("result", "its result", lambda job: decoded(job.result_bytes)),
    field("checkpoint", "its latest checkpoint", lambda job: decoded(job.checkpoint_bytes)),
    field(
        "usage", "memory and CPU of the latest attempt, if it ran for some seconds: attempt, seconds, "
        "peak_memory_bytes, mean_cpu (1: one core), cpu_seconds; series of memory_bytes and cpu, every_seconds apart",
    ),
    field("why", "why it failed, in a sentence"),
    field(
        "failure", "latest failure: type, message, notes, traceback, traceback_of (whose it is, if it is that of "
        "another attempt with the same fingerprint: id of the job, number), group, fingerprint, place",
        lambda job: failure_record(job.failure),
    ),
    field("retries", "allowed retries after errors"),
    field("retries_used", "retries that have started"),
    field(
        "retry_policy", "how it is retried, if it has a policy: waits_seconds, cap_seconds, jitter, on, not_on",
        lambda job: _retry_policy(job.retry_policy),
    ),
    field("crashes", "allowed crashes of its process"),
    field("crashes_used", "crashes so far"),
    field("lost", "allowed lost leases"),
    field("lost_used", "leases lost so far"),
    field(
        "attempts", "of each: number, outcome, because, reason, executor, node, pid, queued_at, claimed_at, "
        "started_at, ended_at, failure", lambda job: list(_attempts(job.attempts, job.notes)),
    ),
    field(
        "notes", "other events; of each: at, what, text",
        lambda job: [{"at": note.at, "what": note.what, "text": note.text} for note in job.notes],
    ),
    field("fields", "fields attached to it, by name"),
)  # fmt: skip


def details(job: Job[Any], usage: JobUsage | None = None) -> Record:
    return JOB_DETAILS.record(job, usage=usage_record(usage))


@command(
    "show", "holdfast show 0QwErTyUiOpAsDfG", "holdfast show 0QwErTyUiOpAsDfG -w",
    "holdfast show 0QwErTyUiOpAsDfG --json | jq '.attempts[].because'", output=JOB_DETAILS, in_columns=False,
)  # fmt: skip
@click.argument("id", shell_complete=complete_ids)
@watch_option("Refresh until the job has ended; in a pipe, print each change.")
@pass_client
def show(client: Client, id: str, watching: bool) -> int:
    """Show everything about a job, and why it is not running.

    Below the state is what a job waits for: other jobs and how they ended, a limit without a free slot, a paused queue,
    or a queue without workers.

    Each attempt has an outcome (succeeded, advanced, error, crash, lost, released, snoozed, unknown, cancelled,
    running) and a cause: `first`, the outcome of the previous attempt, or `retry` if a user asked for it. A terminal
    shows the beginning of long values; pipes and --json get all.

    With --watch the command ends when the job has ended. In a pipe it prints the columns of `jobs`, or JSON objects.
    """
    output, job = client.output, _get(client, id)
    if watching and not _watch(client, id):
        return INTERRUPTED
    if watching and not output.on_terminal:
        return 0
    job = _get(client, id) if watching else job
    record = details(job, _usage(client, job))
    if output.mode == "json":
        output.json(record)
    else:
        output.facts(describe(record, output, _hint(client, record)))
    return 0


def _get(client: Client, id: str) -> Job[Any]:
    with suggesting_ids(client.app, id):
        return client.app.get(id)


def _usage(client: Client, job: Job[Any]) -> JobUsage | None:
    return None if job.unreadable else client.app.usage(job.id)


def _hint(client: Client, record: Record) -> str:
    """Return why a waiting job is not started, if the reason is its queue."""
    name = record["queue"]
    queue = next((each for each in client.app.queues() if each.name == name), None)
    if record["state"] != "waiting" or queue is None:
        return ""
    if queue.paused:
        return f"queue {name} is paused; `holdfast queues resume {name}`"
    return "" if queue.workers else f"no live worker serves queue {name}"


def _watch(client: Client, id: str) -> bool:
    output = client.output

    def load() -> View:
        job = client.app.get(id)
        usage = _usage(client, job) if output.on_terminal else None
        return View([details(job, usage)], final=job.is_final or job.unreadable != "")

    def draw(view: View) -> Any:
        return output.grid(describe(view.records[0], output))

    return watch(output, Watched(load, draw, JOB_DETAILS))


@command(
    "peek", "holdfast peek mail", "holdfast peek mail -n 10 --json | jq '.[].arguments'", output=JOB_DETAILS,
    in_columns=False,
)  # fmt: skip
@click.argument("queue", shell_complete=complete_queue)
@limit_option("Maximum number of jobs, up to 1,000.", default=1, maximum=MAX_BATCH)
@pass_client
def peek(client: Client, queue: str, limit: int) -> None:
    """Show the next jobs of a queue without claiming them.

    In a pipe, each is described as by `show`. Jobs whose records cannot be read are skipped.
    """
    find_queue(client.app, queue)
    ids, unreadable = _next_ids(client, queue, limit)
    records = [details(job) for job in (client.app.get_many(ids) if ids else []) if job]
    if client.output.mode == "json":
        client.output.list(records, JOB_DETAILS)
    for record in records if client.output.mode != "json" else []:
        client.output.facts(describe(record, client.output))
    if unreadable:
        print_note(f"skipped jobs whose records are missing or cannot be read: {', '.join(unreadable)}")
    elif not records:
        print_note(f"queue {queue} has no waiting job")


def _next_ids(client: Client, queue: str, limit: int) -> tuple[list[str], list[str]]:
    """Return the ids of the next jobs, and those of up to `MAX_UNREADABLE` jobs among them that cannot be read."""
    readable: list[str] = []
    unreadable: list[str] = []
    for job in client.app.list(queue=queue, state="waiting", limit=limit + MAX_UNREADABLE):
        (unreadable if job.unreadable else readable).append(job.id)
        if len(readable) == limit or len(unreadable) == MAX_UNREADABLE:
            break
    return readable, unreadable
