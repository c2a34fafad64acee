"""Jobs: what lists have of each, and everything about one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.job.as_dict import BRIEF, FIELDS
from holdfast.job.explanation import Explanation
from holdfast.job.job import Job
from holdfast.job.usage import JobUsage
from holdfast.records.explanations import EXPLANATIONS, explanation_record
from holdfast.records.progress import PROGRESS, progress_line
from holdfast.records.table import Field, Record, Table, Time, column, field, list_of, optional

JOBS = Table(
    "job",
    column("id", str, "id of the job", whole=True),
    column("task", str, "name of the task"),
    column("queue", str, "name of the queue"),
    column(
        "state", str, "scheduled, waiting, blocked, throttled, running, succeeded, failed, cancelled or unreadable",
        show=lambda record, _: "cancelling" if record["cancelling"] else record["state"], coloured=True, whole=True,
    ),
    field("cancelling", bool, "whether its worker is stopping it"),
    field("priority", int, "-256 to 255; lower runs first"),
    column("attempt", int, "number of the latest attempt, 0 before the first", title="TRY", right=True, whole=True),
    field("created_at", Time | None, "when it was enqueued"),
    column("since", Time | None, "when it entered its state", right=True, whole=True),
    field("updated_at", Time | None, "when its state, queue, priority, dependencies or notes last changed"),
    field("due_at", Time | None, "when it is due, if it is scheduled"),
    field("claimed_at", Time | None, "when the latest attempt was claimed"),
    field(
        "heartbeat_at", Time | None, "when the lease was last renewed, if it is running; null: unknown",
        volatile=True,
    ),
    field("stalled", bool, "whether its lease has ended, and no worker has requeued it yet"),
    field("lease_ends_at", Time | None, "when it is lost, unless its worker renews the lease", volatile=True),
    column(
        "progress", optional(PROGRESS), "reported progress: fraction (0 to 1), message, done and total (items of "
        "`each`), counts, per_second (rates of the counts), estimated_end", show=progress_line,
    ),
    field("executor", str, "executor of the latest attempt"),
    column(
        "worker", str, "worker of that executor",
        show=lambda record, _: record["worker"] if record["state"] == "running" else "",
    ),
    field("node", str, "machine of that worker"),
    field("pid", int, "process of the latest attempt; the executor's if the job has no process of its own yet"),
    field("group", str, "group of its failure"),
    field("fingerprint", str, "fingerprint of its failure; see `failures show`"),
    field(
        "final_reason", str,
        "why it failed for good: exhausted, not_retryable, declared, refused, at_most_once, deadline or operator",
    ),
    field("waits_for", int, "number of jobs it waits for, if it is blocked"),
    field("limits", list[str], "its limits, some with a key"),
    field("throttled_by", str, "limit it waits for, if it is throttled"),
    field("batch", str, "batch that it belongs to, or at whose end it runs; empty if none"),
    field("share", str, "its share of the queue"),
    field("tags", list[str], "its tags"),
    field("scope", str, "its scope, a path; empty if it has none"),
    field("tracked", bool, "whether it is tracked: see `track`"),
    field("deadline", Time | None, "latest start of an attempt; after that the job fails"),
    field("schedule", str | None, "schedule that enqueued it, if any"),
    field("unique", str, "its unique key, if any"),
    field("keep", bool, "whether its record is retained when it has ended"),
    field("keep_seconds", float | None, "how long, if it has a time of its own and not that of its queue"),
    field("expires_at", Time | None, "when the record of an ended job is removed, at the latest"),
    field("at_most_once", bool, "whether it runs at most once and is never retried"),
    field("unreadable", str, "why its record cannot be read; then only its id is known"),
    readers=BRIEF,
)  # fmt: skip
JOB_PAGE = Table(
    "page",
    field("jobs", list_of(JOBS), "the jobs of the page"),
    field("cursor", str | None, "where the next page begins; null: this is the last"),
    name="JobPage",
)
COUNT = Table("job", field("count", int, "number of jobs"), name="JobCount")


# The parts of a job, as `Job.to_dict` has them, too

ENQUEUED_AS = Table(
    "call",
    field("queue", str, "name of the queue"),
    field("priority", int, "-256 to 255; lower runs first"),
    field("task", str, "name of the task"),
    name="EnqueuedAs",
)
DEPENDENCIES = Table(
    "dependency",
    field("id", str, "id of the other job"),
    field("state", str, "pending, succeeded, failed or cancelled"),
    field("ended_at", Time | None, "when the job learned of its end"),
)
JOB_FAILURES = Table(
    "failure",
    field("type", str, "type of the exception"),
    field("message", str, "its message"),
    field("notes", list[str], "its notes"),
    field("traceback", str, "its traceback"),
    field(
        "traceback_of", tuple[str, int] | None,
        "whose traceback it is, if it is that of another attempt with the same fingerprint: id of the job, number",
    ),
    field("group", str, "group of the failure"),
    field("fingerprint", str, "fingerprint of the failure"),
    field("place", str, "innermost function of user code, as module:function; how a process crashed"),
    name="JobFailure",
)  # fmt: skip
RETRY_POLICIES = Table(
    "retry policy",
    field("waits_seconds", list[float], "waits before the first retry, the second and so on"),
    field("cap_seconds", float | None, "the longest wait"),
    field("jitter", float, "how much waits vary at random, 0 to 1"),
    field("on", list[str], "only these exceptions are retried; empty: all"),
    field("not_on", list[str], "these exceptions are not retried"),
)
ATTEMPTS = Table(
    "attempt",
    field("number", int, "its number, from 1"),
    field(
        "outcome", str,
        "running, succeeded, error, crash, lost, released, snoozed, advanced, unknown or cancelled",
    ),
    field(
        "because", str | None,
        "why it was made: first, retry (by a user), or the outcome of the one before; null: no longer known",
    ),
    field("reason", str, "why it ended"),
    field("task", str, "task that it ran"),
    field("queue", str, "queue in which it ran"),
    field("executor", str, "executor that ran it"),
    field("node", str, "machine of the executor"),
    field("pid", int, "its process"),
    field("queued_at", Time, "when the job began to wait"),
    field("claimed_at", Time, "when it was claimed"),
    field("started_at", Time | None, "when the task was called; null: never, or unknown"),
    field("ended_at", Time | None, "when it ended; null: it is running"),
    field("failure", optional(JOB_FAILURES), "why it failed"),
)  # fmt: skip
NOTES = Table(
    "note",
    field("at", Time, "when it was written"),
    field("what", str, "what happened"),
    field("text", str, "its text"),
    field("who", str, "user and host of the program that caused it; empty if none did"),
)
HISTORY = Table(
    "history entry",
    field("at", Time, "when it happened"),
    field("what", str, "what happened"),
    field("text", str, "more about it"),
    field("attempt", int, "number of the attempt, or 0"),
    field("who", str, "executor, user and host of a program, a schedule, a subscription, or empty"),
    field("queue", str, "queue of the attempt"),
)
USAGE = Table(
    "usage",
    field("attempt", int, "number of the attempt"),
    field("seconds", float, "time that the samples cover"),
    field("peak_memory_bytes", int, "highest memory use of all samples", lambda usage: usage.peak_memory),
    field("mean_cpu", float, "busy processors on average; 1: one core", lambda usage: round(usage.mean_cpu, 3)),
    field("cpu_seconds", float, "CPU time"),
    field("every_seconds", float, "time that each point of the series covers", lambda usage: usage.every),
    field("memory_bytes", list[int], "series of the memory use", lambda usage: usage.memory),
    field("cpu", list[float], "series of the number of busy processors"),
    name="JobUsage",
)


def usage_record(usage: JobUsage | None) -> Record | None:
    return None if usage is None else USAGE.record(usage)


BUDGETS_SHOWN = (
    ("timeouts", "timeouts"),
    ("stalls", "attempts that stall"),
    ("out_of_memory", "attempts that exceed their memory"),
)


def _budget_fields(name: str, what: str) -> Iterator[Field]:
    yield field(name, int | None, f"allowed {what}; null: they use up retries")
    yield field(f"{name}_used", int, f"{what} so far, if it has a budget for them")
    yield field(f"{name}_policy", optional(RETRY_POLICIES), "their policy, if it has one, as of `retry_policy`")


JOB_DETAILS = JOBS.extended(
    field("forked_from", str | None, "id of the job that it was forked from"),
    field("enqueued_as", ENQUEUED_AS, "queue, priority and task that it was enqueued with"),
    field("codec", str, "how its arguments are encoded"),
    field("arguments", Any, "its arguments, by name"),
    field(
        "after", list_of(DEPENDENCIES), "jobs it was enqueued after; of each: id, state (pending, succeeded, failed or "
        "cancelled), ended_at (when it learned of that)",
    ),
    field("waits", list_of(DEPENDENCIES), "jobs it has waited for since it ran; the same of each"),
    field("result", Any, "its result"),
    field("checkpoint", Any, "its latest checkpoint"),
    field(
        "usage", optional(USAGE), "memory and CPU of the latest attempt, if it ran for some seconds: attempt, seconds, "
        "peak_memory_bytes, mean_cpu (1: one core), cpu_seconds; series of memory_bytes and cpu, every_seconds apart",
    ),
    field("why", str, "why it failed, in a sentence"),
    field(
        "failure", optional(JOB_FAILURES), "latest failure: type, message, notes, traceback, traceback_of (whose it "
        "is, if it is that of another attempt with the same fingerprint: id of the job, number), group, fingerprint, "
        "place",
    ),
    field("retries", int | None, "allowed retries after errors"),
    field("retries_used", int, "retries that have started"),
    field(
        "retry_policy", optional(RETRY_POLICIES),
        "how it is retried, if it has a policy: waits_seconds, cap_seconds, jitter, on, not_on",
    ),
    field("crashes", int | None, "allowed crashes of its process"),
    field("crashes_used", int, "crashes so far"),
    field("lost", int | None, "allowed lost leases"),
    field("lost_used", int, "leases lost so far"),
    *(each for name, what in BUDGETS_SHOWN for each in _budget_fields(name, what)),
    field(
        "attempts", list_of(ATTEMPTS), "of each: number, outcome, because, reason, task, queue (in which it ran), "
        "executor, node, pid, queued_at, claimed_at, started_at, ended_at, failure",
    ),
    field("notes", list_of(NOTES), "other events; of each: at, what, text, who"),
    field(
        "history", list_of(HISTORY), "everything that happened to it, in order; of each: at, what, text, attempt (or "
        "0), who (executor, user and host of a program, a schedule, a subscription, or empty), queue (of an attempt)",
    ),
    field("fields", dict[str, str], "fields attached to it, by name"),
    field(
        "explanation", optional(EXPLANATIONS),
        "why it is not running; null if it has ended",
    ),
    name="JobDetails",
    readers=FIELDS,
)  # fmt: skip


def details(job: Job[Any], usage: JobUsage | None = None, explanation: Explanation | None = None) -> Record:
    return JOB_DETAILS.record(job, usage=usage_record(usage), explanation=explanation_record(explanation))
