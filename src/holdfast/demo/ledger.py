"""A ledger outside of the store: a file to which attempts append a line when they start and when they end.

    start <job> <attempt> <pid>
    end <job> <attempt> <pid>

The demonstration and the kill tests compare it with the store. Each line is a single write to a file opened for
appending, so lines of different processes never mix, and a killed process leaves no partial line.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.job.job import Job
from holdfast.running.running_job import RunningJob


class Entry(NamedTuple):
    event: str  # start or end
    job: str
    attempt: int
    pid: int


class Ledger:
    """A file of entries."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def start(self, job: RunningJob) -> None:
        self.append("start", job)

    def end(self, job: RunningJob) -> None:
        """Record that an attempt did its work, immediately before it returns."""
        self.append("end", job)

    def append(self, event: str, job: RunningJob) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{event} {job.id} {job.attempt} {os.getpid()}\n".encode())
        finally:
            os.close(descriptor)

    def read(self) -> list[Entry]:
        """Return all entries, in order."""
        if not self.path.exists():
            return []
        rows = (line.split() for line in self.path.read_text().splitlines())
        return [Entry(event, job, int(attempt), int(pid)) for event, job, attempt, pid in rows]


class Account(NamedTuple):
    """The outcome of all enqueued jobs.

    enqueued         number of jobs that the store acknowledged
    succeeded        number of those that have succeeded, according to the store
    lost             jobs that have not succeeded according to the store, or have no `end` in the ledger
    completed_twice  jobs for which the store accepted more than one success, or with an `end` by an attempt that the
                     store does not know or considers running
    recovered        (job, attempt) that started according to the ledger and did not succeed, but whose job did
    repeated         those of `recovered` that were killed after their `end`, before the store recorded the outcome:
                     the work was repeated, as at-least-once allows; the store accepted one completion
    """

    enqueued: int
    succeeded: int
    lost: list[str]
    completed_twice: list[str]
    recovered: list[tuple[str, int]]
    repeated: list[tuple[str, int]]


def compare(enqueued: Sequence[str], jobs: Iterable[Job[Any] | None], entries: Sequence[Entry]) -> Account:
    """Compare the ledger with the store; `jobs` are the records of `enqueued`, None for a deleted one."""
    known = {job.id: job for job in jobs if job is not None}
    started = {(entry.job, entry.attempt) for entry in entries if entry.event == "start"}
    ended = {(entry.job, entry.attempt) for entry in entries if entry.event == "end"}
    outcomes = {(job.id, run.number): run.outcome for job in known.values() for run in job.attempts}
    successes = Counter(job for (job, _), outcome in outcomes.items() if outcome == "succeeded")
    unknown = {job for job, attempt in ended if outcomes.get((job, attempt), "running") == "running"}
    succeeded = {id for id in enqueued if id in known and known[id].state == "succeeded"}
    with_end = {job for job, _ in ended}
    recovered = sorted(run for run in started if run[0] in succeeded and outcomes.get(run) != "succeeded")
    return Account(
        enqueued=len(enqueued),
        succeeded=len(succeeded),
        lost=sorted(id for id in enqueued if id not in succeeded or id not in with_end),
        completed_twice=sorted({id for id, count in successes.items() if count > 1} | unknown),
        recovered=recovered,
        repeated=[run for run in recovered if run in ended],
    )
