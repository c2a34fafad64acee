"""A job as it was at one moment: a frozen snapshot, with verbs that ask the store.

job = transcode.enqueue("in.mov")
job.state                  # as it was then
job.refresh().state        # as it is now
job.result(timeout="60s")  # as soon as it ends
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from holdfast.codec import Shape
from holdfast.job import failure
from holdfast.job.failure import Failure
from holdfast.job.logs import Log
from holdfast.job.progress import Progress, read_progress
from holdfast.job.result import decode_result
from holdfast.job.usage import JobUsage
from holdfast.units import Duration, utc

R = TypeVar("R")

STATES = ("scheduled", "waiting", "blocked", "throttled", "running", "succeeded", "failed", "cancelled")
FINAL = ("succeeded", "failed", "cancelled")
PENDING = STATES[:5]
MAX_REASON = 1000  # characters, in a sentence

# What a job is made of has gc=False: texts, numbers and times, which are in no cycle.


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One run of a job.

    `outcome` is how it ended: succeeded, error, crash, lost, released, snoozed, advanced, unknown or cancelled.
    """

    number: int
    queued_at: datetime  # since when it had waited
    claimed_at: datetime
    started_at: datetime | None  # when the task was called; None: it was not, or is not known
    ended_at: datetime | None  # None: it is running
    outcome: str
    pid: int  # the process
    executor: str  # who: node/worker.number
    reason: str  # why it ended, if there is more to say
    failure: Failure | None  # what it raised, or how its process died

    @property
    def node(self) -> str:
        return self.executor.partition("/")[0]

    @property
    def words(self) -> str:
        """Why it ended so."""
        return f"{self.failure.type}: {self.failure.message}" if self.failure else self.reason


class Note(msgspec.Struct, frozen=True, gc=False):
    """What happened to a job outside of its attempts.

    `what` is cancelled, cancelling, retried, failed (by an operator or a deadline), said (by the job itself) or noted
    (by somebody else).
    """

    at: datetime
    what: str
    words: str


class Dependency(msgspec.Struct, frozen=True, gc=False):
    """A job that another waits for; `state` is pending, succeeded, failed or cancelled."""

    id: str
    state: str


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line of a job's history. `attempt` is 0 for what happened outside of attempts."""

    at: datetime
    what: str
    words: str = ""
    attempt: int = 0


class App(Protocol):
    """What a job asks of the client it came from."""

    def get(self, id: str, /) -> Job[Any]: ...
    async def aget(self, id: str, /) -> Job[Any]: ...
    def result(self, job: Job[R], /, timeout: Duration | None = None) -> R: ...
    async def aresult(self, job: Job[R], /, timeout: Duration | None = None) -> R: ...
    def cancel(self, id: str, /, *, reason: str = "", unless_awaited: bool = False) -> str: ...
    async def acancel(self, id: str, /, *, reason: str = "", unless_awaited: bool = False) -> str: ...
    def logs(self, id: str, /, *, attempt: int | None = None) -> Log: ...
    async def alogs(self, id: str, /, *, attempt: int | None = None) -> Log: ...
    def retry(self, id: str, /, *, force: bool = False) -> None: ...
    async def aretry(self, id: str, /, *, force: bool = False) -> None: ...
    def delete(self, id: str, /) -> None: ...
    async def adelete(self, id: str, /) -> None: ...
    def stack(self, id: str, /) -> str: ...
    async def astack(self, id: str, /) -> str: ...
    def usage(self, id: str, /) -> JobUsage | None: ...
    async def ausage(self, id: str, /) -> JobUsage | None: ...


class Job(msgspec.Struct, Generic[R], frozen=True, kw_only=True, eq=False, repr_omit_defaults=True):
    """A job's record. `created` says whether the call that returned it stored it; times are aware datetimes, in UTC.

    If the store could not be reached, it may have been kept on disk, to be sent later, or have run in the process that
    enqueued it.
    """

    id: str  # its own, or yours
    state: str  # scheduled, waiting, blocked, throttled, running, succeeded, failed or cancelled; or unreadable
    queue: str
    task: str
    created: bool = False  # whether the call that returned it stored it
    created_at: datetime
    since: datetime  # when it entered its state
    priority: int = 0
    attempt: int = 0  # the number of the last one; 0: none yet
    retries: int | None = None  # allowed retries after errors
    retries_used: int = 0  # retries that have started
    crashes: int | None = None  # allowed crashes of its process
    crashes_used: int = 0  # crashes so far
    lost: int | None = None  # allowed lost leases
    lost_used: int = 0  # leases lost so far
    cancelling: bool = False  # it is to be cancelled, and its worker is stopping it
    due_at: datetime | None = None  # if it is scheduled
    lease_ends_at: datetime | None = None  # if it is running, unless it is renewed
    claimed_at: datetime | None = None  # of the last attempt, as are executor and pid
    executor: str = ""  # who claimed it: node/worker.number
    pid: int = 0  # the process that it runs in; until it has started, its executor's
    group: str = ""  # of its failure
    final_reason: str = (
        ""  # why it failed for good: exhausted, declared, refused, at_most_once, deadline, operator, inline
    )
    progress: Progress | None = None  # what it said last of how far it is
    codec: str = "json"  # `json`, or `raw` for items
    waits_for: int = 0  # if it is blocked, so many jobs
    after: tuple[Dependency, ...] = ()  # those that it was enqueued to wait for
    waits: tuple[Dependency, ...] = ()  # those that it waits for since it ran: `wait_for`
    limits: tuple[str, ...] = ()  # those in which it takes part
    throttled_by: str = ""  # the limit by which it was parked
    share: str = ""  # whose it is, among those that share its queue
    deadline: datetime | None = None  # no attempt may start after it
    unique: str = ""  # its unique key
    keep: bool = True  # whether its record stays after it has ended well
    at_most_once: bool = False  # never started a second time
    payload: bytes | None = None  # its arguments as they are stored; None in what `list` yields, as are the next
    result_bytes: bytes | None = None  # its result as it is stored; `result()` decodes it
    checkpoint_bytes: bytes | None = None  # what it saved last
    attempts: tuple[Attempt, ...] = ()  # the last ones, oldest first; how many is a setting, `history`
    notes: tuple[Note, ...] = ()  # what happened outside of its attempts
    fields: dict[str, str] = {}  # what programs attached to it
    in_outbox: bool = False  # the store could not be reached: it is sent later
    unreadable: str = ""  # why its record cannot be read; then nothing else is known of it but its id
    ran_inline: bool = False  # the store could not be reached: it ran in the process that enqueued it
    app: App
    returns: Shape | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.task} {self.state}>"

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def failure(self) -> Failure | None:
        """What the last attempt that went wrong said."""
        return next((attempt.failure for attempt in reversed(self.attempts) if attempt.failure), None)

    @property
    def why(self) -> str:
        """Why it failed, in some words; '' if it has not."""
        if self.state != "failed":
            return ""
        last = self.attempts[-1] if self.attempts else None
        if self.group == "interrupted" and last:
            how = f"{last.outcome}{f' ({last.reason})' if last.reason else ''}"
            return f"it is to run at most once, and its attempt was {how}, so it cannot go on; `retry` starts it anew"
        words = [note.words for note in self.notes if note.what == "failed" and note.at == self.since]
        if words:  # no attempt says why
            return words[-1] or "it was failed by an operator"
        if self.failure:
            return f"{self.failure.type}: {self.failure.message}"[:MAX_REASON]
        return (last.reason if last else "") or "see its history"

    @property
    def estimated_end(self) -> datetime | None:
        """When it will end if it goes on as it does, by what it last said of its progress; None if nobody can tell."""
        said = self.progress
        if self.state != "running" or said is None or said.attempt != self.attempt:
            return None
        began = (self.attempts[-1].started_at if self.attempts else None) or self.since
        left = said.seconds_left
        return None if left is None else began + timedelta(seconds=said.after + left)

    @property
    def history(self) -> list[Entry]:
        """What happened to the job, in order: its creation, its attempts and its notes.

        How many of them are kept is a setting, `history`.
        """
        entries = [Entry(self.created_at, "created")]
        for attempt in self.attempts:
            entries.append(Entry(attempt.claimed_at, "claimed", attempt.executor, attempt.number))
            if attempt.started_at:
                entries.append(Entry(attempt.started_at, "started", f"process {attempt.pid}", attempt.number))
            if attempt.ended_at:
                entries.append(Entry(attempt.ended_at, attempt.outcome, attempt.words, attempt.number))
        return _merged(entries, [Entry(note.at, note.what, note.words) for note in self.notes])

    @property
    def worker(self) -> str:
        return self.executor.rpartition(".")[0]

    @property
    def node(self) -> str:
        return self.executor.partition("/")[0]

    def decoded_result(self) -> R:
        """Return the result of a job that has succeeded, as the type that its task is annotated to return."""
        if self.codec == "raw":
            raw: Any = self.result_bytes or b""
            return cast("R", raw)
        shape = self.returns or Shape.of(Any)
        result: R = decode_result(shape, self.result_bytes or b"null", f"the result of job {self.id}")
        return result

    def result(self, timeout: Duration | None = None) -> R:
        """Wait until the job has ended, and return its result.

        Raises:
            JobFailed: the job failed; the message says why.
            JobCancelled: the job was cancelled.
            ResultTimeout: it has not ended in time. It goes on.
            JobNotFound: there is no such job, or no more.
        """
        return self.app.result(self, timeout)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Wait until the job has ended, and return its result, as `result` does."""
        return await self.app.aresult(self, timeout)

    def refresh(self) -> Job[R]:
        """Return the job as it is now: a new snapshot. This one stays as it was."""
        return self.app.get(self.id)

    async def arefresh(self) -> Job[R]:
        return await self.app.aget(self.id)

    def cancel(self, *, reason: str = "", unless_awaited: bool = False) -> str:
        """Stop the job, wherever it is. Returns `cancelled`, or `cancelling` while its worker stops it.

        With `unless_awaited` it is not cancelled while others wait for it.
        """
        return self.app.cancel(self.id, reason=reason, unless_awaited=unless_awaited)

    async def acancel(self, *, reason: str = "", unless_awaited: bool = False) -> str:
        return await self.app.acancel(self.id, reason=reason, unless_awaited=unless_awaited)

    def logs(self, *, attempt: int | None = None) -> Log:
        """Return what the last attempt that printed anything printed, or another, as it is now."""
        return self.app.logs(self.id, attempt=attempt)

    async def alogs(self, *, attempt: int | None = None) -> Log:
        return await self.app.alogs(self.id, attempt=attempt)

    def retry(self, *, force: bool = False) -> None:
        """Run a job that has ended once more; with `force` also one whose work was done."""
        self.app.retry(self.id, force=force)

    async def aretry(self, *, force: bool = False) -> None:
        await self.app.aretry(self.id, force=force)

    def delete(self) -> None:
        """Remove a job that has ended."""
        self.app.delete(self.id)

    async def adelete(self) -> None:
        await self.app.adelete(self.id)

    def stack(self) -> str:
        """Return what the job does just now, if it runs: the stack of each thread of its process."""
        return self.app.stack(self.id)

    async def astack(self) -> str:
        return await self.app.astack(self.id)

    def usage(self) -> JobUsage | None:
        """Return memory and CPU of its last attempt over time; None if it is short, or has no process of its own."""
        return self.app.usage(self.id)

    async def ausage(self) -> JobUsage | None:
        return await self.app.ausage(self.id)


def _merged(runs: list[Entry], notes: list[Entry]) -> list[Entry]:
    """Put what happened in attempts and the notes into one order."""
    merged, left = [], deque(notes)
    for entry in runs:
        while left and (left[0].at < entry.at or (left[0].at == entry.at and _came_first(left[0], entry))):
            merged.append(left.popleft())
        merged.append(entry)
    return [*merged, *left]


def _came_first(note: Entry, entry: Entry) -> bool:
    """Of what happened in one millisecond: what a job said comes before its end, other notes before the next claim."""
    if entry.what in ("created", "started"):
        return False
    return (entry.what != "claimed") == (note.what in ("said", "cancelling"))


UNREADABLE = {
    "NEWER": "a newer release wrote its record: upgrade this one",
    "DAMAGED": "its record is damaged; no other job is concerned",
    "NOTFOUND": "it stands in an index, but its record is gone; workers remove such entries",
}


def read_job(fields: dict[str, Any], app: App, returns: Shape | None = None) -> Job[Any]:
    """Make a snapshot of what the store says of a job; of one that cannot be read, in the state `unreadable`."""
    fault = fields.get("unreadable")
    if fault is None:
        try:
            return _read_whole(fields, app, returns)
        except (ValueError, LookupError, TypeError, OverflowError, msgspec.MsgspecError):
            fault = "DAMAGED"
    never, why = utc(0), UNREADABLE[fault]
    return Job(
        id=fields["id"], state="unreadable", queue="", task="", created_at=never, since=never, unreadable=why, app=app
    )


def _read_whole(fields: dict[str, Any], app: App, returns: Shape | None) -> Job[Any]:
    timer = _moment(fields["timer"])
    state = fields["state"]
    return Job(
        id=fields["id"],
        state=state,
        queue=fields["queue"],
        task=fields["task"],
        created_at=utc(fields["created"]),
        since=utc(fields["since"]),
        priority=fields["priority"],
        attempt=fields["attempt"],
        retries_used=fields["retries_used"],
        retries=fields["retries"],
        crashes_used=fields["crashes_used"],
        crashes=fields["crashes"],
        lost_used=fields["lost_used"],
        lost=fields["lost"],
        cancelling=fields["cancelling"] == 1,
        due_at=timer if state == "scheduled" else None,
        lease_ends_at=timer if state == "running" else None,
        claimed_at=_moment(fields["claimed"]),
        executor=fields["executor"],
        pid=fields["pid"],
        group=fields["group"],
        final_reason=fields["final_reason"],
        progress=read_progress(fields["progress"]),
        codec=fields["codec"],
        waits_for=fields["waits_for"],
        after=_read_dependencies(fields.get("after", ())),
        waits=_read_dependencies(fields.get("waits", ())),
        limits=tuple(fields["limits"].split()),
        throttled_by=fields["throttled_by"],
        share=fields["share"],
        deadline=_moment(fields["deadline"]),
        unique=fields["unique"],
        keep=fields["keep"] == 1,
        at_most_once=fields["at_most_once"] == 1,
        payload=fields.get("payload"),
        result_bytes=fields.get("result"),
        checkpoint_bytes=fields.get("checkpoint"),
        attempts=tuple(map(_read_attempt, fields.get("attempts", ()))),
        notes=tuple(map(_read_note, fields.get("notes", ()))),
        fields=_read_pairs(fields.get("fields", [])),
        app=app,
        returns=returns,
    )


def _read_attempt(row: list[Any]) -> Attempt:
    number, queued, claimed, started, ended, outcome, pid, executor, reason, error = row
    return Attempt(
        number,
        utc(queued),
        utc(claimed),
        _moment(started),
        _moment(ended),
        outcome.decode(),
        pid,
        executor.decode(),
        reason.decode(errors="replace"),
        failure.decode(error) if error else None,
    )


def _read_dependencies(rows: Iterable[list[bytes]]) -> tuple[Dependency, ...]:
    return tuple(Dependency(id.decode(), word.decode()) for id, word in rows)


def _read_note(row: list[Any]) -> Note:
    at, what, words = row
    return Note(utc(at), what.decode(), words.decode(errors="replace"))


def _read_pairs(flat: list[bytes]) -> dict[str, str]:
    return {flat[place].decode(): flat[place + 1].decode(errors="replace") for place in range(0, len(flat), 2)}


def _moment(ms: int) -> datetime | None:
    return utc(ms) if ms else None
