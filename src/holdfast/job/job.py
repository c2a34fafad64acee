"""A job: a frozen snapshot of its record, with methods that call the store.

job = transcode.enqueue("in.mov")
job.state                  # when the snapshot was taken
job.refresh().state        # now
job.result(timeout="60s")  # wait for its end
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from holdfast.codec import TypeCodec
from holdfast.hints import with_hints
from holdfast.job import failure
from holdfast.job.failure import Example, Failure
from holdfast.job.history import HistoryEntry, merge_by_time
from holdfast.job.logs import Log
from holdfast.job.options import RunOptions
from holdfast.job.progress import Progress, read_progress
from holdfast.job.result import decode_result
from holdfast.job.retries import Retries
from holdfast.job.usage import JobUsage
from holdfast.units import Duration, utc

R = TypeVar("R")

STATES = ("scheduled", "waiting", "blocked", "throttled", "running", "succeeded", "failed", "cancelled")
FINAL = ("succeeded", "failed", "cancelled")
PENDING = STATES[:5]
MAX_REASON = 1000  # characters
ITEM_TASK = "raw"  # the task name of an item, which no worker runs

# The parts of a job have gc=False: they contain text, numbers and times, which are never part of a reference cycle.


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
    reason: str  # why it ended, or ""
    failure: Failure | None  # the exception that it raised, or the crash of its process

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

    `what` is cancelled, cancelling, retried, failed (by an operator or a deadline), reported (a note that the
    job wrote itself) or noted (a note that somebody else wrote).
    """

    at: datetime
    what: str
    text: str


class Dependency(msgspec.Struct, frozen=True, gc=False):
    """A job that another one waits for; `state` is pending, succeeded, failed or cancelled."""

    id: str
    state: str


class App(Protocol):
    """The client methods that a job calls."""

    def get(self, id: str, /) -> Job[Any]: ...
    async def aget(self, id: str, /) -> Job[Any]: ...
    def result(self, job: Job[R], /, timeout: Duration | None = None) -> R: ...
    async def aresult(self, job: Job[R], /, timeout: Duration | None = None) -> R: ...
    def cancel(self, id: str, /, *, reason: str = "", unless_awaited: bool = False) -> str: ...
    async def acancel(self, id: str, /, *, reason: str = "", unless_awaited: bool = False) -> str: ...
    def logs(self, id: str, /, *, attempt: int | None = None) -> Log: ...
    async def alogs(self, id: str, /, *, attempt: int | None = None) -> Log: ...
    def retry(self, id: str, /, *, force: bool = False, to: str | None = None) -> None: ...
    async def aretry(self, id: str, /, *, force: bool = False, to: str | None = None) -> None: ...
    def delete(self, id: str, /) -> None: ...
    async def adelete(self, id: str, /) -> None: ...
    def stack(self, id: str, /) -> str: ...
    async def astack(self, id: str, /) -> str: ...
    def usage(self, id: str, /) -> JobUsage | None: ...
    async def ausage(self, id: str, /) -> JobUsage | None: ...


@with_hints
class Job(msgspec.Struct, Generic[R], frozen=True, kw_only=True, eq=False, repr_omit_defaults=True):
    """A job's record. Times are aware datetimes in UTC.

    If the server was unreachable when the job was enqueued, it may be in the outbox on disk (`in_outbox`), or may have
    run in the process that enqueued it (`ran_inline`).
    """

    id: str
    state: str  # scheduled, waiting, blocked, throttled, running, succeeded, failed or cancelled; or unreadable
    queue: str
    task: str
    created: bool = False  # whether the call that returned this job stored it
    created_at: datetime
    since: datetime  # when it entered its state
    priority: int = 0
    attempt: int = 0  # number of the last attempt; 0: none yet
    retries: int | None = None  # allowed retries after errors
    retry_policy: Retries | None = None  # the waits, exceptions ... of its retries, if they are not the defaults
    retries_used: int = 0  # retries that have started
    crashes: int | None = None  # allowed crashes of its process
    crashes_used: int = 0  # crashes so far
    lost: int | None = None  # allowed lost leases
    lost_used: int = 0  # leases lost so far
    cancelling: bool = False  # its worker is stopping it
    due_at: datetime | None = None  # of a scheduled job
    lease_ends_at: datetime | None = None  # of a running job
    claimed_at: datetime | None = None  # of the last attempt, like executor and pid
    executor: str = ""  # node/worker.number
    pid: int = 0  # of its process; before that has started, of its executor
    group: str = ""  # group of its failure
    fingerprint: str = ""  # of its failure: see `jobs.failures(by="fingerprint")`
    final_reason: str = ""  # why: exhausted, not_retryable, declared, refused, at_most_once, deadline, operator, inline
    progress: Progress | None = None  # its last report
    codec: str = "json"  # of its arguments: `json`, or `raw` for the bytes of an item
    waits_for: int = 0  # number of jobs that a blocked job still waits for
    after: tuple[Dependency, ...] = ()  # dependencies that it was enqueued with
    waits: tuple[Dependency, ...] = ()  # dependencies that it added while it ran: `wait_for`
    limits: tuple[str, ...] = ()  # limits that it takes part in
    throttled_by: str = ""  # the limit that a throttled job waits for
    batch: str = ""  # the batch that it belongs to, or at whose end it runs
    share: str = ""  # key of its share of a fair queue
    tags: tuple[str, ...] = ()  # in the order in which it got them
    scope: str = ""  # a path such as /tenant/7
    tracked: bool = False  # see `jobs.track`
    deadline: datetime | None = None  # no attempt starts after it
    unique: str = ""  # its unique key
    keep: bool | timedelta = True  # how long its record is kept after its end; True: as its queue's settings say
    expires_at: datetime | None = None  # when the record of an ended job is removed, at the latest
    at_most_once: bool = False  # never retried
    payload: bytes | None = None  # its stored arguments; `list` leaves out this and the next six fields
    result_bytes: bytes | None = None  # its stored result; `result()` decodes it
    checkpoint_bytes: bytes | None = None  # its last checkpoint
    attempts: tuple[Attempt, ...] = ()  # the last ones, oldest first; the setting `history` limits them
    notes: tuple[Note, ...] = ()  # events outside of its attempts
    fields: dict[str, str] = {}  # given at its enqueue, and attached since
    in_outbox: bool = False  # the server was unreachable: it is sent later
    unreadable: str = ""  # why its record cannot be read; then only its id is known
    ran_inline: bool = False  # the server was unreachable: it ran in the process that enqueued it
    app: App
    returns: TypeCodec | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.task} {self.state}>"

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def failure(self) -> Failure | None:
        """The failure of the last attempt that failed or crashed."""
        return next((attempt.failure for attempt in reversed(self.attempts) if attempt.failure), None)

    @property
    def why(self) -> str:
        """Why it failed, as a sentence; "" if it has not failed."""
        if self.state != "failed":
            return ""
        last = self.attempts[-1] if self.attempts else None
        if self.group == "interrupted" and last:
            how = f"{last.outcome}{f' ({last.reason})' if last.reason else ''}"
            return f"it runs at most once, and its attempt was {how}, so it cannot continue; `retry` starts it again"
        reasons = [note.text for note in self.notes if note.what == "failed" and note.at == self.since]
        if reasons:  # it did not fail by an attempt
            return reasons[-1] or "an operator failed it"
        if self.failure:
            reason = f" ({last.reason})" if last and last.reason and self.final_reason == "not_retryable" else ""
            return f"{self.failure.type}: {self.failure.message}"[:MAX_REASON] + reason
        return (last.reason if last else "") or "see its history"

    @property
    def estimated_end(self) -> datetime | None:
        """When it will end, estimated from its last report; None if there is too little to estimate from."""
        report = self.progress
        if self.state != "running" or report is None or report.attempt != self.attempt:
            return None
        began = (self.attempts[-1].started_at if self.attempts else None) or self.since
        left = report.seconds_left
        return None if left is None else began + timedelta(seconds=report.after + left)

    @property
    def history(self) -> list[HistoryEntry]:
        """The events of the job, in order: its creation, its attempts and its notes.

        The setting `history` limits how many attempts and notes are kept.
        """
        entries = [HistoryEntry(self.created_at, "created")]
        for attempt in self.attempts:
            entries.append(HistoryEntry(attempt.claimed_at, "claimed", attempt.executor, attempt.number))
            if attempt.started_at:
                entries.append(HistoryEntry(attempt.started_at, "started", f"process {attempt.pid}", attempt.number))
            if attempt.ended_at:
                entries.append(HistoryEntry(attempt.ended_at, attempt.outcome, attempt.text, attempt.number))
        return merge_by_time(entries, [HistoryEntry(note.at, note.what, note.text) for note in self.notes])

    @property
    def worker(self) -> str:
        return self.executor.rpartition(".")[0]

    @property
    def node(self) -> str:
        return self.executor.partition("/")[0]

    def decoded_result(self) -> R:
        """Return the result of a job that has succeeded, as the type that its task returns."""
        if self.codec == "raw" and self.task == ITEM_TASK:
            raw: Any = self.result_bytes or b""
            return cast("R", raw)
        result_codec = self.returns or TypeCodec.of(Any)
        result: R = decode_result(result_codec, self.result_bytes or b"null", f"the result of job {self.id}")
        return result

    def result(self, timeout: Duration | None = None) -> R:
        """Wait until the job has ended, and return its result.

        Raises:
            JobFailed: the job failed, for the reason in the message.
            JobCancelled: the job was cancelled.
            ResultTimeout: the job has not ended within the timeout; it continues.
            JobNotFound: the job does not exist, or no longer exists.
        """
        return self.app.result(self, timeout)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Wait until the job has ended, and return its result, as `result` does."""
        return await self.app.aresult(self, timeout)

    def refresh(self) -> Job[R]:
        """Return a new snapshot of the job. This one does not change."""
        return self.app.get(self.id)

    async def arefresh(self) -> Job[R]:
        return await self.app.aget(self.id)

    def cancel(self, *, reason: str = "", unless_awaited: bool = False) -> str:
        """Cancel the job, unless it has ended. Return `cancelled`, or `cancelling` if its worker still has to stop it.

        With `unless_awaited`, raise JobBlocked if other jobs wait for it.
        """
        return self.app.cancel(self.id, reason=reason, unless_awaited=unless_awaited)

    async def acancel(self, *, reason: str = "", unless_awaited: bool = False) -> str:
        return await self.app.acancel(self.id, reason=reason, unless_awaited=unless_awaited)

    def logs(self, *, attempt: int | None = None) -> Log:
        """Return the log of an attempt; by default, of the last one that printed anything."""
        return self.app.logs(self.id, attempt=attempt)

    async def alogs(self, *, attempt: int | None = None) -> Log:
        return await self.app.alogs(self.id, attempt=attempt)

    def retry(self, *, force: bool = False, to: str | None = None) -> None:
        """Run an ended job again, in the queue `to` if given; with `force`, even if its work was done."""
        self.app.retry(self.id, force=force, to=to)

    async def aretry(self, *, force: bool = False, to: str | None = None) -> None:
        await self.app.aretry(self.id, force=force, to=to)

    def delete(self) -> None:
        """Delete an ended job."""
        self.app.delete(self.id)

    async def adelete(self) -> None:
        await self.app.adelete(self.id)

    def stack(self) -> str:
        """Return the current stack of each thread of the job's process."""
        return self.app.stack(self.id)

    async def astack(self) -> str:
        return await self.app.astack(self.id)

    def usage(self) -> JobUsage | None:
        """Return memory and CPU of its last attempt over time; None if it was short or had no process of its own."""
        return self.app.usage(self.id)

    async def ausage(self) -> JobUsage | None:
        return await self.app.ausage(self.id)


UNREADABLE_REASONS = {
    "NEWER": "a newer release wrote its record: upgrade this one",
    "DAMAGED": "its record is damaged; no other job is affected",
    "NOTFOUND": "an index lists it, but its record is gone; workers remove such entries",
}


def read_job(fields: dict[str, Any], app: App, returns: TypeCodec | None = None) -> Job[Any]:
    """Make a snapshot from the fields of a record. If the record cannot be read, the state is `unreadable`."""
    code = fields.get("unreadable")
    if code is None:
        try:
            return _read_record(fields, app, returns)
        except (ValueError, LookupError, TypeError, OverflowError, msgspec.MsgspecError):
            code = "DAMAGED"
    unknown, why = utc(0), UNREADABLE_REASONS[code]
    return Job(
        id=fields["id"],
        state="unreadable",
        queue="",
        task="",
        created_at=unknown,
        since=unknown,
        unreadable=why,
        app=app,
    )


def _read_record(fields: dict[str, Any], app: App, returns: TypeCodec | None) -> Job[Any]:
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
        retry_policy=_read_retry_policy(fields["retries"], fields["run"]),
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
        fingerprint=fields["fingerprint"],
        final_reason=fields["final_reason"],
        progress=read_progress(fields["progress"]),
        codec=fields["codec"],
        waits_for=fields["waits_for"],
        after=_read_dependencies(fields.get("after", ())),
        waits=_read_dependencies(fields.get("waits", ())),
        limits=tuple(fields["limits"].split()),
        throttled_by=fields["throttled_by"],
        share=fields["share"],
        **_read_marks(fields),
        deadline=_moment(fields["deadline"]),
        unique=fields["unique"],
        keep=read_keep(fields["keep"]),
        expires_at=_moment(fields["expires"]),
        at_most_once=fields["at_most_once"] == 1,
        payload=fields.get("payload"),
        result_bytes=fields.get("result"),
        checkpoint_bytes=fields.get("checkpoint"),
        attempts=_read_attempts(fields),
        notes=tuple(map(_read_note, fields.get("notes", ()))),
        fields=_read_pairs(fields.get("fields", [])),
        app=app,
        returns=returns,
    )


def _read_marks(fields: dict[str, Any]) -> dict[str, Any]:
    """Read tags, scope, batch, and whether the job is tracked, if it has any of these."""
    if "tags" not in fields:
        return {}
    texts = {name: fields[name] for name in ("scope", "batch")}
    return {"tags": tuple(fields["tags"]), "tracked": fields["tracked"] == 1, **texts}


def _read_retry_policy(retries: int, run: str) -> Retries | None:
    return Retries.of(retries, RunOptions.decode(run.encode()).retry_policy) if run else None


def read_keep(keep: int) -> bool | timedelta:
    """Read how long a record is kept: 0 (not at all), 1 (as its queue's settings say), or milliseconds."""
    return bool(keep) if keep in (0, 1) else timedelta(milliseconds=keep)


def _read_attempts(fields: dict[str, Any]) -> tuple[Attempt, ...]:
    examples = {name: Example.read(*rest) for name, *rest in fields.get("examples", ())}
    return tuple(_read_attempt(fields["id"], row, examples) for row in fields.get("attempts", ()))


def _read_attempt(id: str, row: list[Any], examples: dict[bytes, Example]) -> Attempt:
    number, queued, claimed, started, ended, outcome, pid, executor, reason, error, fingerprint = row
    example = examples.get(fingerprint)
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
        failure.restore(error, fingerprint.decode(), example, of=(id, number)) if error else None,
    )


def _read_dependencies(rows: Iterable[list[bytes]]) -> tuple[Dependency, ...]:
    return tuple(Dependency(id.decode(), state.decode()) for id, state in rows)


def _read_note(row: list[Any]) -> Note:
    at, what, text = row
    return Note(utc(at), what.decode(), text.decode(errors="replace"))


def _read_pairs(flat: list[bytes]) -> dict[str, str]:
    return {flat[n].decode(): flat[n + 1].decode(errors="replace") for n in range(0, len(flat), 2)}


def _moment(ms: int) -> datetime | None:
    return utc(ms) if ms else None
