"""`holdfast show` and `holdfast peek`: everything about one job, or about the next jobs of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids, complete_queue
from holdfast.cli.describe import describe
from holdfast.cli.errors import print_note
from holdfast.cli.exit_codes import INTERRUPTED
from holdfast.cli.jobs import JOBS
from holdfast.cli.options import limit_option
from holdfast.cli.suggestions import find_queue, suggesting_ids
from holdfast.cli.table import Field, Record, field
from holdfast.cli.usage import usage_record
from holdfast.cli.watch import View, Watched, watch, watch_option
from holdfast.cli.why import explanation_record
from holdfast.constants import MAX_BATCH
from holdfast.job.as_dict import FIELDS
from holdfast.job.explanation import Explanation
from holdfast.job.job import Job
from holdfast.job.usage import JobUsage

MAX_UNREADABLE = 20  # records that `peek` skips


BUDGETS_SHOWN = (
    ("timeouts", "timeouts"),
    ("stalls", "attempts that stall"),
    ("out_of_memory", "attempts that exceed their memory"),
)


def _budget_fields(name: str, what: str) -> Iterator[Field]:
    yield field(name, f"allowed {what}; null: they use up retries")
    yield field(f"{name}_used", f"{what} so far, if it has a budget for them")
    yield field(f"{name}_policy", "their policy, if it has one, as of `retry_policy`")


JOB_DETAILS = JOBS.extended(
    field("forked_from", "id of the job that it was forked from"),
    field("enqueued_as", "queue, priority and task that it was enqueued with"),
    field("codec", "how its arguments are encoded"),
    field("arguments", "its arguments, by name"),
    field(
        "after", "jobs it was enqueued after; of each: id, state (pending, succeeded, failed or cancelled), ended_at "
        "(when it learned of that)",
    ),
    field("waits", "jobs it has waited for since it ran; the same of each"),
    field("result", "its result"),
    field("checkpoint", "its latest checkpoint"),
    field(
        "usage", "memory and CPU of the latest attempt, if it ran for some seconds: attempt, seconds, "
        "peak_memory_bytes, mean_cpu (1: one core), cpu_seconds; series of memory_bytes and cpu, every_seconds apart",
    ),
    field("why", "why it failed, in a sentence"),
    field(
        "failure", "latest failure: type, message, notes, traceback, traceback_of (whose it is, if it is that of "
        "another attempt with the same fingerprint: id of the job, number), group, fingerprint, place",
    ),
    field("retries", "allowed retries after errors"),
    field("retries_used", "retries that have started"),
    field(
        "retry_policy", "how it is retried, if it has a policy: waits_seconds, cap_seconds, jitter, on, not_on",
    ),
    field("crashes", "allowed crashes of its process"),
    field("crashes_used", "crashes so far"),
    field("lost", "allowed lost leases"),
    field("lost_used", "leases lost so far"),
    *(each for name, what in BUDGETS_SHOWN for each in _budget_fields(name, what)),
    field(
        "attempts", "of each: number, outcome, because, reason, task, queue (in which it ran), executor, node, pid, "
        "queued_at, claimed_at, started_at, ended_at, failure",
    ),
    field("notes", "other events; of each: at, what, text, who"),
    field(
        "history", "everything that happened to it, in order; of each: at, what, text, attempt (or 0), who (executor, "
        "user and host of a program, a schedule, a subscription, or empty), queue (of an attempt)",
    ),
    field("fields", "fields attached to it, by name"),
    field("explanation", "why it is not running, as `why --json` prints it; null if it has ended"),
    readers=FIELDS,
)  # fmt: skip


def details(job: Job[Any], usage: JobUsage | None = None, explanation: Explanation | None = None) -> Record:
    return JOB_DETAILS.record(job, usage=usage_record(usage), explanation=explanation_record(explanation))


@command(
    "show", "holdfast show 0QwErTyUiOpAsDfG", "holdfast show 0QwErTyUiOpAsDfG -w",
    "holdfast show 0QwErTyUiOpAsDfG --json | jq '.attempts[].because'", output=JOB_DETAILS, in_columns=False,
)  # fmt: skip
@click.argument("id", shell_complete=complete_ids)
@watch_option("Refresh until the job has ended; in a pipe, print each change.")
@pass_client
def show(client: Client, id: str, watching: bool) -> int:
    """Show everything about a job, and why it is not running.

    Below the state is why the job is not running, as `why` says it: other jobs and how they ended, a limit without a
    free slot, a paused queue, missing workers, jobs that come first ...

    The history has everything that happened to the job, in order of time: when, what, in which attempt, why, and who
    did it. An attempt ends with an outcome: succeeded, advanced, error, crash, lost, released, snoozed, unknown or
    cancelled. A terminal shows the beginning of long values; pipes and --json get all.

    With --watch the command ends when the job has ended. In a pipe it prints the columns of `jobs`, or JSON objects.
    """
    output, job = client.output, _get(client, id)
    if watching and not _watch(client, id):
        return INTERRUPTED
    if watching and not output.on_terminal:
        return 0
    job = _get(client, id) if watching else job
    record = details(job, _usage(client, job), _explanation(client, job))
    if output.mode == "json":
        output.json(record)
    else:
        output.facts(describe(record, output))
    return 0


def _get(client: Client, id: str) -> Job[Any]:
    with suggesting_ids(client.app, id):
        return client.app.get(id)


def _usage(client: Client, job: Job[Any]) -> JobUsage | None:
    return None if job.unreadable else client.app.usage(job.id)


def _explanation(client: Client, job: Job[Any]) -> Explanation | None:
    """Return why a job is not running; None if it has ended, or was deleted meanwhile."""
    if job.is_final or job.unreadable:
        return None
    return client.app.explain_many([job.id])[0]


def _watch(client: Client, id: str) -> bool:
    output = client.output

    def load() -> View:
        job = client.app.get(id)
        usage = _usage(client, job) if output.on_terminal else None
        explanation = _explanation(client, job) if output.on_terminal else None
        return View([details(job, usage, explanation)], final=job.is_final or job.unreadable != "")

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
