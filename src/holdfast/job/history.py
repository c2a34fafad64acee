"""The history of a job: one time line of everything that happened to it.

The store records attempts, notes and how dependencies ended. When a job became due, or got a slot of a limit, is not
recorded on its own: it is when the job began to wait for a claim, which an attempt has anyway.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, Protocol

import msgspec

from holdfast.job.parts import Attempt, Dependency, EnqueuedAs, Note, Parked

WAITS_FOR_JOBS = "waits for other jobs"  # the reason of an attempt that ended with `wait_for`

_SCHEDULE = re.compile(r"([\w.:-]+)@\d{13}(-now)?", re.ASCII)  # the id of a job that a schedule enqueued
_HANDLER = re.compile(r"on:([\w.:-]+)@.+", re.ASCII)  # the id of a handler's job

# Kinds of entries. Between two of the same millisecond, their kinds decide which comes first.
_DURING_ATTEMPTS = ("reported", "cancelling")
_BEFORE_CLAIMS = ("claimed", "due", "queued", "throttled", "unthrottled")
_NEW_WAITS = ("retried", "moved", "priority", "dependencies")  # notes after which a job may begin to wait


class HistoryEntry(msgspec.Struct, frozen=True, gc=False):
    """One line of a job's history.

    `who` is the executor of an attempt, the user and host of an operator's program, or the schedule or subscription
    that enqueued the job; "" if time or another job did it. `attempt` is 0 for events outside of attempts, and `queue`
    is the queue in which an attempt ran.
    """

    at: datetime
    what: str
    text: str = ""
    attempt: int = 0
    who: str = ""
    queue: str = ""


class JobRecord(Protocol):
    """What is read of a job here."""

    @property
    def id(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def since(self) -> datetime: ...
    @property
    def group(self) -> str: ...
    @property
    def final_reason(self) -> str: ...
    @property
    def attempts(self) -> tuple[Attempt, ...]: ...
    @property
    def notes(self) -> tuple[Note, ...]: ...
    @property
    def parked(self) -> tuple[Parked, ...]: ...
    @property
    def after(self) -> tuple[Dependency, ...]: ...
    @property
    def waits(self) -> tuple[Dependency, ...]: ...
    @property
    def enqueued_as(self) -> EnqueuedAs | None: ...
    @property
    def is_final(self) -> bool: ...


def history_of(job: JobRecord) -> list[HistoryEntry]:
    """Return the events of a job, in order. The first is its creation, even if the clock went back since."""
    runs = list(_insert_waits(list(_attempts(job)), list(_waits(job))))
    notes = [*_ends_of_dependencies(job), *_notes(job)]
    if job.is_final and not any(entry.what == job.state and entry.at == job.since for entry in (*runs, *notes)):
        notes.append(_end(job))  # the note about it is no longer kept
    return [_creation(job), *_merge(runs, sorted(notes, key=lambda entry: entry.at))]


# What enqueued it


def schedule_of(id: str) -> str | None:
    """Return the schedule that enqueued a job: such ids consist of its name and a time."""
    match = _SCHEDULE.fullmatch(id)
    return match[1] if match else None


def _creation(job: JobRecord) -> HistoryEntry:
    queue, priority, task = job.enqueued_as or (job.queue, job.priority, job.task)
    text = f"task {task} in queue {queue}{f', priority {priority}' if priority else ''}"
    handler, schedule = _HANDLER.fullmatch(job.id), schedule_of(job.id)
    who = f"subscription {handler[1]}" if handler else f"schedule {schedule}" if schedule else ""
    return HistoryEntry(job.created_at, "created", text, who=who, queue=queue)


# Attempts


def _attempts(job: JobRecord) -> Iterator[HistoryEntry]:
    operators = {note.at: note for note in job.notes if note.what in ("released", "failed") and note.who}
    retries = [note.at for note in job.notes if note.what == "retried"]
    for attempt, after in zip_longest(job.attempts, job.attempts[1:]):
        common: dict[str, Any] = {"attempt": attempt.number, "queue": attempt.queue}
        yield HistoryEntry(attempt.claimed_at, "claimed", "", who=attempt.executor, **common)
        if attempt.started_at:
            text = f"process {attempt.pid}"
            yield HistoryEntry(attempt.started_at, "started", text, who=attempt.executor, **common)
        if not attempt.ended_at:
            continue
        operator = operators.get(attempt.ended_at) if attempt.outcome in ("released", "error") else None
        who = operator.who if operator else "" if attempt.outcome == "lost" else attempt.executor
        text = operator.text if operator and attempt.outcome == "released" else attempt.text
        yield HistoryEntry(attempt.ended_at, attempt.outcome, text, who=who, **common)
        yield from _final(job, attempt, after, retries)


def _final(job: JobRecord, attempt: Attempt, after: Attempt | None, retries: list[datetime]) -> Iterator[HistoryEntry]:
    """Yield the failure of the job, if it failed with this attempt, and the outcome does not say so."""
    end = attempt.ended_at
    if end is None or attempt.outcome in ("succeeded", "cancelled"):
        return
    was_cancelled = any(note.what == "cancelling" and attempt.claimed_at <= note.at <= end for note in job.notes)
    if attempt.outcome == "advanced" and not was_cancelled:
        return
    if any(note.at == end and note.what in ("failed", "cancelled") for note in job.notes):
        return
    if after is None and job.is_final and job.since == end:
        yield _end(job)
    elif any(end <= at and (after is None or at <= after.claimed_at) for at in retries) and not _ended_later(job, end):
        yield HistoryEntry(end, "cancelled" if was_cancelled else "failed")


def _end(job: JobRecord) -> HistoryEntry:
    return HistoryEntry(job.since, job.state, f"group {job.group}, {job.final_reason}" if job.state == "failed" else "")


def _ended_later(job: JobRecord, end: datetime) -> bool:
    """Whether the job ended after an attempt by something else, before it was retried."""
    later = (note.what for note in job.notes if note.at > end and note.what in ("retried", "failed", "cancelled"))
    return next(later, "retried") != "retried"


# Waits: since when the job could be claimed


def _waits(job: JobRecord) -> Iterator[HistoryEntry]:
    """Yield when the job became due, and when limits parked it and let it go."""
    explained = {job.created_at, *(attempt.ended_at for attempt in job.attempts)}
    explained |= {note.at for note in job.notes if note.what in _NEW_WAITS}
    explained |= {dependency.ended_at for dependency in (*job.after, *job.waits)}
    for parked in job.parked:
        times = f", {parked.times} times" if parked.times > 1 else ""
        yield HistoryEntry(parked.at, "throttled", f"limit {parked.limit} was full{times}")
    for time in sorted(_times_of_waiting(job) - explained):
        yield _wait(job, time)


def _times_of_waiting(job: JobRecord) -> set[datetime]:
    times = {attempt.queued_at for attempt in job.attempts} | {parked.since for parked in job.parked}
    times |= {note.at for note in job.notes if note.what == "queued"}
    return times | ({job.since} if job.state == "waiting" else set())


def _wait(job: JobRecord, time: datetime) -> HistoryEntry:
    before = next((attempt for attempt in reversed(job.attempts) if (attempt.ended_at or time) < time), None)
    since = before.ended_at if before and before.ended_at else job.created_at
    limit = next((each.limit for each in reversed(job.parked) if since <= each.at <= time and each.since != time), "")
    if limit:
        return HistoryEntry(time, "unthrottled", f"limit {limit}")
    if before and before.outcome == "snoozed" and before.reason == WAITS_FOR_JOBS:
        return HistoryEntry(time, "unblocked")
    later_stage = any(attempt.outcome == "advanced" and attempt.claimed_at >= time for attempt in job.attempts)
    is_due = not later_stage and (
        before is None or before.outcome in ("error", "released", "snoozed", "unknown", "advanced")
    )
    return HistoryEntry(time, "due" if is_due else "queued")


def _insert_waits(attempts: list[HistoryEntry], waits: list[HistoryEntry]) -> Iterator[HistoryEntry]:
    """Insert waits before the claims that ended them."""
    order = ("due", "queued", "unblocked", "throttled", "unthrottled")
    rest = deque(sorted(waits, key=lambda entry: (entry.at, order.index(entry.what))))
    for entry in attempts:
        while entry.what == "claimed" and rest and rest[0].at <= entry.at:
            yield rest.popleft()
        yield entry
    yield from rest


# Notes and dependencies


def _notes(job: JobRecord) -> Iterator[HistoryEntry]:
    ended = {attempt.ended_at for attempt in job.attempts if attempt.outcome == "released"}
    for note in job.notes:
        if note.what == "queued" or (note.what == "released" and note.at in ended):
            continue
        attempt = _attempt_at(job, note.at) if note.what in _DURING_ATTEMPTS else None
        number, queue = (attempt.number, attempt.queue) if attempt else (0, "")
        who = attempt.executor if attempt and note.what == "reported" else note.who
        yield HistoryEntry(note.at, note.what, note.text, number, who, queue)


def _attempt_at(job: JobRecord, time: datetime) -> Attempt | None:
    return next((each for each in reversed(job.attempts) if each.claimed_at <= time), None)


def _ends_of_dependencies(job: JobRecord) -> Iterator[HistoryEntry]:
    waited_since = _times_of_waiting(job)
    for group in (job.after, job.waits):
        ends = sorted(((each.ended_at, each) for each in group if each.ended_at), key=lambda end: end[0])
        for (time, each), after in zip_longest(ends, ends[1:]):
            is_last = after is None
            unblocks = (time in waited_since and (is_last or after[0] > time)) or (
                is_last and _unblocks(job, group, time)
            )
            yield HistoryEntry(time, "unblocked" if unblocks else "dependency", f"job {each.id} {each.state}")


def _unblocks(job: JobRecord, group: Sequence[Dependency], end: datetime) -> bool:
    """Whether the last end of a dependency unblocked the job, if nothing says when it began to wait."""
    if job.state == "blocked" and not _may_block_again(job, end):
        return False
    if all(each.state == "succeeded" for each in group):
        return True
    claim = next((attempt.claimed_at for attempt in job.attempts if attempt.claimed_at >= end), None)
    return claim is not None and not any(note.what == "dependencies" and end <= note.at <= claim for note in job.notes)


def _may_block_again(job: JobRecord, time: datetime) -> bool:
    """Whether something happened that may have blocked the job, now or later than `time`."""
    ends = (attempt.ended_at for attempt in job.attempts if attempt.ended_at)
    changes = (note.at for note in job.notes if note.what in ("retried", "dependencies"))
    return any(each >= time for each in (*ends, *changes))


# Order


def _merge(runs: Iterable[HistoryEntry], notes: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Merge the entries of attempts and all others, each sorted by time."""
    merged, rest = list[HistoryEntry](), deque(notes)
    for entry in runs:
        while rest and (rest[0].at < entry.at or (rest[0].at == entry.at and _note_comes_first(rest, entry))):
            merged.append(rest.popleft())
        merged.append(entry)
    return [*merged, *rest]


def _note_comes_first(rest: Sequence[HistoryEntry], entry: HistoryEntry) -> bool:
    """Order entries of the same millisecond: notes of the attempt come before its end, others before the next claim.

    The end of a job is the last entry.
    """
    note = rest[0]
    is_end = len(rest) == 1 and note.what in ("failed", "cancelled")
    if entry.what == "started" or is_end:
        return False
    return (entry.what not in _BEFORE_CLAIMS) == (note.what in _DURING_ATTEMPTS)
