"""A ledger outside of the store: a file to which jobs append a line when they start and when they end.

    start <job> <attempt> <pid>
    end <job> <attempt> <pid>

The demonstration and the kill tests compare it with what the store says. A line is one write to a file opened for
appending, so lines of many processes never mix, and a process killed between two lines leaves no half one.
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
    word: str
    job: str
    attempt: int
    pid: int


class Ledger:
    """A file of entries."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def start(self, job: RunningJob) -> None:
        self.note("start", job)

    def end(self, job: RunningJob) -> None:
        """Say that an attempt did its work: to be its last act before it returns."""
        self.note("end", job)

    def note(self, word: str, job: RunningJob) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{word} {job.id} {job.attempt} {os.getpid()}\n".encode())
        finally:
            os.close(descriptor)

    def read(self) -> list[Entry]:
        """Return all entries, in order."""
        if not self.path.exists():
            return []
        rows = (line.split() for line in self.path.read_text().splitlines())
        return [Entry(word, job, int(attempt), int(pid)) for word, job, attempt, pid in rows]


class Account(NamedTuple):
    """What came of the jobs that were enqueued. Each but the numbers of jobs is a list of what it counts.

    enqueued         jobs that the store acknowledged to the producer
    succeeded        those of them that have succeeded, by the store
    lost             those that have not succeeded, by the store, or that no attempt ended, by the ledger
    completed_twice  those of whose attempts the store accepted more than one as the success; and those with an `end` by
                     an attempt that the store does not know, or believes to be running still
    recovered        (job, attempt) that started, by the ledger, and did not succeed, by the store, but whose job did
    repeated         those of `recovered` that had written their `end` when they were killed, before the store heard of
                     it: the work was done again, as at-least-once says. The store accepted one completion.
    """

    enqueued: int
    succeeded: int
    lost: list[str]
    completed_twice: list[str]
    recovered: list[tuple[str, int]]
    repeated: list[tuple[str, int]]


def compare(enqueued: Sequence[str], jobs: Iterable[Job[Any] | None], entries: Sequence[Entry]) -> Account:
    """Compare the ledger with the store; `jobs` are the records of `enqueued`, None for one that is gone."""
    known = {job.id: job for job in jobs if job is not None}
    started = {(entry.job, entry.attempt) for entry in entries if entry.word == "start"}
    ended = {(entry.job, entry.attempt) for entry in entries if entry.word == "end"}
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
