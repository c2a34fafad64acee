"""What the JSON objects of the commands have: shown by --help, and compared with the real ones by a test.

Times are text in UTC, like 2024-07-01T02:00:00Z; what does not apply is null.
"""

from __future__ import annotations

JOB = {
    "id": "id of the job",
    "task": "name of the task",
    "queue": "name of the queue",
    "state": "scheduled, waiting, blocked, throttled, running, succeeded, failed or cancelled; or unreadable",
    "cancelling": "whether it is about to be cancelled",
    "priority": "-256 to 255; lower runs first",
    "attempt": "number of the last attempt, 0 before the first",
    "created_at": "when it was stored",
    "since": "since when it has its state",
    "due_at": "when it starts, if it is scheduled",
    "claimed_at": "when the last attempt was claimed",
    "lease_ends_at": "when it is lost, unless its worker gives a sign of life",
    "executor": "who ran it last",
    "worker": "worker of that executor",
    "node": "machine of that worker",
    "pid": "process of the last attempt: its own or, before it has started and if it has none, its executor's",
    "group": "group of its failure",
    "final_reason": "why it failed for good: exhausted, declared, refused, at_most_once, deadline or operator",
    "progress": "what it said of its progress: fraction (0 to 1), message, done and total (items of `each`), counts, "
    "per_second (of what it counts), estimated_end",
    "waits_for": "for how many jobs it waits, if it is blocked",
    "limits": "limits in which it takes part, each perhaps with a key",
    "throttled_by": "the limit that it waits for, if it is throttled",
    "share": "whose it is, among those that share the queue",
    "deadline": "no attempt starts after it; then the job fails",
    "schedule": "schedule that made it, if one did",
    "unique": "its unique key, if it has one",
    "keep": "whether its record is kept when it has ended",
    "at_most_once": "whether it is rather not run at all than twice",
    "unreadable": "why its record cannot be read, if it is unreadable: then there is no more than its id",
}
FULL_JOB = {
    **JOB,
    "codec": "how its arguments are stored",
    "arguments": "its arguments, by name",
    "after": "jobs that it was to wait for: id, state (pending, succeeded, failed or cancelled) of each",
    "waits": "jobs that it waits for since it ran: the same of each",
    "result": "what it returned",
    "checkpoint": "what it saved last",
    "usage": "memory and CPU of the last attempt, if it ran for some seconds: attempt, seconds, peak_memory_bytes, "
    "mean_cpu (1: one core), cpu_seconds; memory_bytes and cpu over time, every_seconds apart",
    "why": "why it failed, in a sentence",
    "failure": "what went wrong last: type, message, notes, traceback, group, fingerprint",
    "retries": "allowed retries after errors",
    "retries_used": "retries that have started",
    "crashes": "allowed crashes of its process",
    "crashes_used": "crashes so far",
    "lost": "allowed lost leases",
    "lost_used": "leases lost so far",
    "attempts": "each with number, outcome, because, reason, executor, node, pid, queued_at, claimed_at, started_at, "
    "ended_at, failure",
    "notes": "what else happened: at, what, text",
    "fields": "what was attached to it, by name",
}
ANSWER = {
    "id": "id of the job",
    "answer": "its new state, or deleted; jobs that were refused are on the standard error",
}
WAITED = {"id": "id of the job", "state": "succeeded, failed or cancelled"}
ENQUEUED = {
    "id": "id of the job",
    "created": "whether it was stored now; false if a job of this id was there",
}
CLAIMED_ITEM = {
    "token": "by which it is renewed and ended",
    "id": "id of the item",
    "queue": "name of the queue",
    "attempt": "how often it was claimed, with this time",
    "lease_seconds": "how long it is yours, unless you renew it",
    "payload": "its bytes, as text, or as base64 in an object",
    "data": "what an earlier attempt has saved, in the same way; empty if nothing",
}
RENEWED_ITEM = {"id": "id of the item", "cancelled": "whether somebody has cancelled it: then stop, and release it"}
ENDED_ITEM = {"id": "id of the item", "ended": "completed, failed or released"}
COUNT = {"count": "how many jobs"}
QUEUE = {
    "queue": "name of the queue",
    "paused": "whether no more of its jobs are started",
    "listeners": "how many live workers serve it",
    "pending": "how many jobs have not ended",
    "scheduled": "how many start later",
    "waiting": "how many wait for a worker",
    "blocked": "how many wait for other jobs",
    "throttled": "how many wait for a limit",
    "running": "how many run",
    "succeeded": "how many succeeded, of those kept",
    "failed": "how many failed, of those kept",
    "cancelled": "how many were cancelled, of those kept",
}
PAUSED = {
    "queue": "name of the queue",
    "paused": "whether it is paused now",
    "changed": "whether that is new",
}
FORGOTTEN = {"queue": "name of the queue", "forgotten": "whether something was known of it"}
UPKEPT = {
    "moved": "how many due jobs, schedules, deadlines, leases and limits were moved",
    "overdue": "how many could not be",
}
LOAD = {
    "needed": "how many jobs have to run at once, in all",
    "target_seconds": "within which time a job is to start",
    "overdue": "how much of the namespace is due and nobody has moved: jobs, leases, schedules, limits, deadlines",
    "queues": "of each: queue, paused, workers that serve it; how many jobs are waiting, running, scheduled, blocked, "
    "throttled; overdue: jobs, schedules, limits and deadlines that are due and nobody has moved; oldest: for how many "
    "seconds the first waits; arriving, ending: jobs per second; run_time: seconds that a job takes; needed",
}
LIMIT = {
    "limit": "name of the limit",
    "slots": "how many jobs may run at once, or start in a period; null if nobody has defined it",
    "per_seconds": "length of the period; null if it is so many at once",
    "held": "how many jobs have a slot",
    "parked": "how many jobs wait for one",
    "keys": "of how many of its keys jobs wait; without a key counts as one",
}
CHANGED_LIMIT = {**{name: LIMIT[name] for name in ("limit", "slots", "per_seconds")}, "changed": "whether that is new"}
UNLIMITED = {"limit": "name of the limit", "removed": "true"}
WEIGHED = {
    "queue": "name of the queue",
    "share": "key of the share",
    "weight": "its weight",
    "changed": "whether that is new",
}
SCHEDULE = {
    "schedule": "name of the schedule",
    "cron": "cron expression, unless it is an interval",
    "tz": "time zone of that",
    "every_seconds": "interval, unless it is a cron expression",
    "offset_seconds": "a time in 1970 from which intervals are counted",
    "task": "name of the task",
    "queue": "name of the queue",
    "paused": "whether it does not fire now",
    "next_at": "when it fires next, without the jitter; null while it is paused",
    "last_at": "when it fired last",
    "last_job": "id of the job that it made last",
    "fired": "how many jobs it has made",
    "skipped": "how many times it did not fire, because it was missed or the last job had not ended",
    "missed": "which of missed times are made up for: one, all or skip",
    "overlap": "what happens if the last job has not ended: allow or skip",
}
FULL_SCHEDULE = {
    **SCHEDULE,
    "backlog": "how many missed times are made up for at most, if all are",
    "late_seconds": "how late it fires, if others are skipped",
    "jitter_seconds": "up to how much later a job is due, so that not all come at once",
    "revision": "release that declared it; an older one does not change it",
    "arguments": "arguments of the job, by name",
    "options": "what else the job is given: priority, retries, limits ...",
    "firings": "when it fires next: at, and local (in its time zone) of each",
}
TRIGGERED = {"schedule": "name of the schedule", "id": "id of the job"}
UNSCHEDULED = {"schedule": "name of the schedule", "removed": "true"}
STACK = {"id": "its id", "stack": "what it does, as text of several lines"}
DRAINED = {
    "worker": "name of the worker",
    "state": "draining, or ended",
    "jobs": "how many jobs it holds",
}
WORKER = {
    "worker": "name of the worker",
    "node": "machine that it runs on",
    "live": "whether it gave a sign of life within half a minute",
    "draining": "whether it claims no more, and ends when its jobs have",
    "idle": "whether it is live and has nothing to do",
    "allow_exec": "whether it runs any program that is enqueued",
    "seen_at": "when it gave its last sign of life",
    "started_at": "when it started",
    "pid": "its process",
    "app": "app whose jobs it runs",
    "queues": "names of the queues that it serves",
    "told": "which it was told to serve: names, patterns, and what is excluded",
    "memory_bytes": "memory of all its processes",
    "cpu_seconds": "CPU time of all its processes",
    "jobs": "what it holds: id, attempt, executor, queue, task, pid, claimed_at of each",
    "about": "all that it says of itself",
}
NODE = {
    "node": "name of the machine",
    "live": "whether one of its workers is live",
    "seen_at": "when one of them gave its last sign of life",
    "workers": "names of its workers",
    "queues": "names of the queues that the live ones serve",
    "memory_bytes": "memory of the live ones",
    "cpu_seconds": "CPU time of the live ones",
    "jobs": "ids of the jobs that they hold",
}
SETTING = {
    "name": "name of the setting",
    "value": "its value; milliseconds if its unit is ms",
    "default": "what it is if nobody sets it",
    "least": "the least that it can be",
    "most": "the most that it can be",
    "unit": "ms, or nothing for a number",
    "per_queue": "whether a queue may have its own",
    "source": "where the value comes from: default, global or queue",
    "explanation": "what it means",
}
LOG = {
    "id": "id of the job",
    "attempt": "number of the attempt; 0 if none has printed anything",
    "attempts": "attempts that have a log; null with --follow",
    "left_out_bytes": "how much is left out in the middle, or with --follow before this",
    "text": "what it printed",
    "failure": "what went wrong in this attempt, as in `show`; null with --follow",
}
ATTACHED = {"id": "id of the job", "fields": "all that is attached to it, by name"}
NOTED = {"id": "id of the job", "note": "what was noted"}
KEPT = {
    "id": "id of the job that it will be",
    "task": "name of the task",
    "queue": "name of the queue",
    "kept_at": "when it was written to disk",
    "due_at": "when it starts, if that is later",
    "refused": "why the store refused it when it was sent, if it did",
}
SENT = {"sent": "how many calls were sent"}
EVENT = {
    "event": "id of the event",
    "at": "when it happened",
    "type": "what happened",
    "who": "who did it",
    "jobs": "ids of the jobs, or names of the queues",
}
FINDING = {
    "code": "what was looked at; see docs/doctor.md",
    "level": "ok, note, unknown, warning or danger",
    "means": "what it means",
    "advice": "what to do",
}
SERVER = {
    "home": "directory of the data",
    "socket": "where it listens",
    "running": "whether it runs",
    "data_bytes": "size of its data on disk",
    "pid": "its process",
    "version": "its version",
    "uptime": "for how many seconds it runs",
    "clients": "how many clients are connected",
    "memory_bytes": "memory that it uses",
}
