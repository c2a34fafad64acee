"""The parts of a job's record: its attempts, the notes of its history, its dependencies, and how limits parked it.

They have gc=False: they contain text, numbers and times, which are never part of a reference cycle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.job import failure
from holdfast.job.failure import Example, Failure
from holdfast.units import utc

_STAGE = re.compile(r"(?:task (\S+) in )?queue (\S+)", re.ASCII)  # the reason of an attempt that advanced
_MOVED = re.compile(r"from (\S+) to \S+", re.ASCII)  # the text of a note


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One run of a job.

    `outcome` is running, succeeded, error, crash, lost, released, snoozed, advanced, unknown or cancelled.
    """

    number: int
    queued_at: datetime  # when the job began to wait
    claimed_at: datetime
    started_at: datetime | None  # when the task was called; None: never, or unknown
    ended_at: datetime | None  # None: still running
    outcome: str
    pid: int
    executor: str  # node/worker.number
    reason: str  # why it ended, or ""; if it advanced, the task and the queue that it leaves
    failure: Failure | None  # the exception that it raised, or the crash of its process
    queue: str = ""  # in which it ran; "" if the history no longer has that
    task: str = ""  # that it ran; likewise

    @property
    def node(self) -> str:
        return self.executor.partition("/")[0]

    @property
    def text(self) -> str:
        """The failure of the attempt as text, or the reason why it ended."""
        if self.failure is None:
            return self.reason
        return f"{self.failure.type}: {self.failure.message}{f' ({self.reason})' if self.reason else ''}"


class Note(msgspec.Struct, frozen=True, gc=False):
    """An event of a job outside of its attempts, or a note.

    `what` is cancelled, cancelling, retried, released, failed (by an operator or a deadline), moved, priority,
    dependencies (they were changed), queued (since when it waited, before something other than a claim ended that),
    reported (a note that the job wrote itself), noted (a note that somebody else wrote) or forked (from another job, or
    into one). `who` is the user and the host of the program that caused it; "" if that was the job, its worker, another
    job or time.
    """

    at: datetime
    what: str
    text: str
    who: str = ""


class Dependency(msgspec.Struct, frozen=True, gc=False):
    """A job that another one waits for; `state` is pending, succeeded, failed or cancelled."""

    id: str
    state: str
    ended_at: datetime | None = None  # when the dependent learned of its end; None: not yet, or it had ended before


class Parked(msgspec.Struct, frozen=True, gc=False):
    """How limits parked a job before one attempt."""

    since: datetime  # when the job began to wait
    at: datetime  # when it was parked first
    times: int
    limit: str  # that parked it last


class EnqueuedAs(NamedTuple):
    """What a job was enqueued with, if that has changed."""

    queue: str
    priority: int
    task: str


def read_attempts(fields: dict[str, Any]) -> tuple[Attempt, ...]:
    examples = {name: Example.read(*rest) for name, *rest in fields.get("examples", ())}
    return tuple(_read_attempt(fields, row, examples) for row in fields.get("attempts", ()))


def _read_attempt(fields: dict[str, Any], row: list[Any], examples: dict[bytes, Example]) -> Attempt:
    number, queued, claimed, started, ended, outcome, pid, executor, reason, error, fingerprint = row
    example = examples.get(fingerprint)
    return Attempt(
        number,
        utc(queued),
        utc(claimed),
        moment(started),
        moment(ended),
        outcome.decode(),
        pid,
        executor.decode(),
        reason.decode(errors="replace"),
        failure.restore(error, fingerprint.decode(), example, of=(fields["id"], number)) if error else None,
        fields["queue"],
        fields["task"],
    )


def read_notes(rows: Iterable[list[Any]]) -> tuple[Note, ...]:
    return tuple(
        Note(utc(at), what.decode(), text.decode(errors="replace"), who.decode(errors="replace"))
        for at, what, text, who in rows
    )


def read_dependencies(rows: Iterable[list[Any]]) -> tuple[Dependency, ...]:
    return tuple(Dependency(id.decode(), state.decode(), moment(ended)) for id, state, ended in rows)


def read_parked(rows: Iterable[list[Any]]) -> tuple[Parked, ...]:
    return tuple(Parked(utc(since), utc(at), times, limit.decode()) for since, at, times, limit in rows)


def read_enqueued_as(row: list[Any]) -> tuple[EnqueuedAs | None, datetime | None]:
    """Read what a job was enqueued with, and the time of the last move that its history no longer has."""
    return (EnqueuedAs(row[0].decode(), row[1], row[2].decode()), moment(row[3])) if row else (None, None)


def moment(ms: int) -> datetime | None:
    return utc(ms) if ms else None


# What each attempt ran, and in which queue


def trace_calls(
    attempts: tuple[Attempt, ...], notes: tuple[Note, ...], origin: EnqueuedAs, forgotten: datetime | None
) -> tuple[Attempt, ...]:
    """Return the attempts of a job that was moved or has advanced, with the task and the queue of each.

    Going back from the present, the text of a move and the reason of a stage say what was before; a reason has no long
    names. `forgotten` is the time of the last move that the history no longer has.
    """
    moves = [note for note in notes if note.what == "moved"]
    task, queue = (attempts[-1].task, attempts[-1].queue) if attempts else ("", "")
    traced: list[Attempt] = []
    for attempt in reversed(attempts):
        while moves and moves[-1].at > attempt.claimed_at:
            queue = _match(_MOVED, moves.pop().text)[0]
        if forgotten and attempt.claimed_at < forgotten:
            queue = ""
        if attempt.outcome == "advanced":
            task, queue = _match(_STAGE, attempt.reason)
        traced.append(msgspec.structs.replace(attempt, task=task, queue=queue))
    traced.reverse()
    count = _length_of_first_stage(traced)
    first = [msgspec.structs.replace(attempt, task=origin.task) for attempt in traced[:count]]
    return (*first, *traced[count:])


def _length_of_first_stage(attempts: list[Attempt]) -> int:
    """Return how many attempts ran the task that the job was enqueued with; 0 if that is unknown."""
    if not attempts or attempts[0].number > 1:
        return 0
    for count, attempt in enumerate(attempts, 1):
        if attempt.outcome == "advanced":
            return count if attempt.queue else 0  # an older release did not record it
    return len(attempts)


def _match(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    match = pattern.fullmatch(text)
    return tuple(group or "" for group in match.groups()) if match else ("",) * pattern.groups
