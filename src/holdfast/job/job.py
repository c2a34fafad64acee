"""A job: a frozen snapshot of its record, with methods that call the store.

job = transcode.enqueue("in.mov")
job.state                  # when the snapshot was taken
job.refresh().state        # now
job.result(timeout="60s")  # wait for its end
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar, Unpack, cast

import msgspec

from holdfast.codec import TypeCodec
from holdfast.errors import Invalid, JobNotFound, StoreUnavailable
from holdfast.hints import with_hints
from holdfast.job import explanation
from holdfast.job.as_dict import to_dict
from holdfast.job.explanation import UNREADABLE_REASONS, Explanation
from holdfast.job.failure import Failure
from holdfast.job.history import HistoryEntry, history_of
from holdfast.job.logs import Log
from holdfast.job.options import JobOptions, RunOptions
from holdfast.job.parts import (
    Attempt,
    Dependency,
    EnqueuedAs,
    Note,
    Parked,
    moment,
    read_attempts,
    read_dependencies,
    read_enqueued_as,
    read_notes,
    read_parked,
    trace_calls,
)
from holdfast.job.progress import Progress, read_progress
from holdfast.job.result import decode_result
from holdfast.job.retries import BUDGETS, Retries
from holdfast.job.usage import JobUsage
from holdfast.units import Duration, utc

R = TypeVar("R")

STATES = ("scheduled", "waiting", "blocked", "throttled", "running", "succeeded", "failed", "cancelled")
FINAL = ("succeeded", "failed", "cancelled")
PENDING = STATES[:5]
MAX_REASON = 1000  # characters
ITEM_TASK = "raw"  # the task name of an item, which no worker runs


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
    def retry(self, id: str, /, *, force: bool = False, to: str | None = None, from_start: bool = False) -> None: ...
    async def aretry(
        self, id: str, /, *, force: bool = False, to: str | None = None, from_start: bool = False
    ) -> None: ...
    def fork(self, id: str, /, *, from_start: bool = False, **options: Unpack[JobOptions]) -> Job[Any]: ...
    async def afork(self, id: str, /, *, from_start: bool = False, **options: Unpack[JobOptions]) -> Job[Any]: ...
    def delete(self, id: str, /) -> None: ...
    async def adelete(self, id: str, /) -> None: ...
    def dependents(self, id: str, /) -> list[str]: ...
    async def adependents(self, id: str, /) -> list[str]: ...
    def stack(self, id: str, /) -> str: ...
    async def astack(self, id: str, /) -> str: ...
    def usage(self, id: str, /) -> JobUsage | None: ...
    async def ausage(self, id: str, /) -> JobUsage | None: ...
    def explain(self, id: str, /) -> Explanation: ...
    async def aexplain(self, id: str, /) -> Explanation: ...


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
    updated_at: datetime  # when its state, queue, priority, dependencies or notes last changed
    priority: int = 0
    attempt: int = 0  # number of the last attempt; 0: none yet
    retries: int | None = None  # allowed retries after errors
    retry_policy: Retries | None = None  # the waits, exceptions ... of its retries, if they are not the defaults
    retries_used: int = 0  # retries that have started
    crashes: int | None = None  # allowed crashes of its process
    crashes_used: int = 0  # crashes so far
    lost: int | None = None  # allowed lost leases
    lost_used: int = 0  # leases lost so far
    timeouts: int | None = None  # allowed timeouts, if they do not use up retries
    timeouts_policy: Retries | None = None  # the waits after them, if they are not those of its retries
    timeouts_used: int = 0  # timeouts so far, if it has a budget for them
    stalls: int | None = None  # allowed attempts that stall; the same as of timeouts
    stalls_policy: Retries | None = None
    stalls_used: int = 0
    out_of_memory: int | None = None  # allowed attempts that exceed their memory; the same as of timeouts
    out_of_memory_policy: Retries | None = None
    out_of_memory_used: int = 0
    cancelling: bool = False  # its worker is stopping it
    due_at: datetime | None = None  # of a scheduled job
    lease_ends_at: datetime | None = None  # of a running job
    heartbeat_at: datetime | None = None  # when that was last renewed; None: unknown, after an outage of the server
    stalled: bool = False  # its lease has ended, and no worker has requeued it yet
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
    forked_from: str = ""  # id of the job that it was forked from
    keep: bool | timedelta = True  # how long its record is kept after its end; True: as its queue's settings say
    expires_at: datetime | None = None  # when the record of an ended job is removed, at the latest
    at_most_once: bool = False  # never retried
    payload: bytes | None = None  # its stored arguments; `list` leaves out this and the next eight fields
    result_bytes: bytes | None = None  # its stored result; `result()` decodes it
    checkpoint_bytes: bytes | None = None  # its last checkpoint
    attempts: tuple[Attempt, ...] = ()  # the last ones, oldest first; the setting `history` limits them
    notes: tuple[Note, ...] = ()  # events outside of its attempts
    parked: tuple[Parked, ...] = ()  # how limits parked it, before each attempt
    enqueued_as: EnqueuedAs | None = None  # queue, priority and task that it was enqueued with, if they have changed
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
            budget = exhausted_budget(self)
            reason = reason or (f" ({budget})" if budget else "")
            return f"{self.failure.type}: {self.failure.message}"[:MAX_REASON] + reason
        return (last.reason if last else "") or "see its history"

    @property
    def estimated_end(self) -> datetime | None:
        """When it will end, estimated from its last report; None if there is too little to estimate from."""
        report = self.progress
        if self.state != "running" or report is None or report.attempt != self.attempt:
            return None
        began = (self.attempts[-1].started_at if self.attempts else None) or self.since
        try:
            left = report.seconds_left
            return None if left is None else began + timedelta(seconds=report.after + left)
        except OverflowError:  # beyond any calendar
            return None

    @property
    def history(self) -> list[HistoryEntry]:
        """Everything that happened to the job, in order of time: its story.

        The setting `history` limits how many attempts and notes are kept; the first entry is always kept.
        """
        return [] if self.unreadable else history_of(self)

    @property
    def arguments(self) -> Any:
        """Its decoded arguments, by name; of an item, its bytes.

        Raises:
            Invalid: the job was listed without its arguments, or they cannot be decoded.
        """
        if self.payload is None:
            raise Invalid(f"the arguments of job {self.id} are not loaded, or lost; call job.refresh()")
        if self.codec == "raw":
            return self.payload
        try:
            return msgspec.json.decode(self.payload)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Invalid(f"the arguments of job {self.id} are not JSON: {error}; job.payload has the bytes") from None

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is known about the job, in values that JSON has.

        The keys are the fields that `holdfast show --json` documents, except those that need another call: `usage` and
        `explanation`.
        """
        return to_dict(self)

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

    def dependents(self) -> list[str]:
        """Return the ids of the jobs that are blocked until this job ends."""
        return self.app.dependents(self.id)

    async def adependents(self) -> list[str]:
        return await self.app.adependents(self.id)

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

    def retry(self, *, force: bool = False, to: str | None = None, from_start: bool = False) -> None:
        """Run an ended job again, in the queue `to` if given; with `force`, even if its work was done.

        It continues from its checkpoint and kept steps, or with `from_start` from the beginning.
        """
        self.app.retry(self.id, force=force, to=to, from_start=from_start)

    async def aretry(self, *, force: bool = False, to: str | None = None, from_start: bool = False) -> None:
        await self.app.aretry(self.id, force=force, to=to, from_start=from_start)

    def fork(self, *, from_start: bool = False, **options: Unpack[JobOptions]) -> Job[R]:
        """Store a new job with the call of this one, which starts from its checkpoint and kept steps: `jobs.fork`."""
        return self.app.fork(self.id, from_start=from_start, **options)

    async def afork(self, *, from_start: bool = False, **options: Unpack[JobOptions]) -> Job[R]:
        return await self.app.afork(self.id, from_start=from_start, **options)

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

    def explain(self) -> Explanation:
        """Explain why the job is not running, as of now."""
        if self.ran_inline:
            return explanation.ran_inline(self.id, self.state)
        try:
            return self.app.explain(self.id)
        except (JobNotFound, StoreUnavailable):
            if not self.in_outbox:
                raise
            return explanation.in_outbox(self.id)

    async def aexplain(self) -> Explanation:
        """Explain why the job is not running, as `explain` does."""
        if self.ran_inline:
            return explanation.ran_inline(self.id, self.state)
        try:
            return await self.app.aexplain(self.id)
        except (JobNotFound, StoreUnavailable):
            if not self.in_outbox:
                raise
            return explanation.in_outbox(self.id)


def exhausted_budget(job: Job[Any]) -> str:
    """Describe the budget that made a job fail, if it is one for a limit: `timeouts: 3, allowed: 2`."""
    name = BUDGETS.get(job.group, "") if job.final_reason == "exhausted" else ""
    allowed = getattr(job, name) if name else None
    return "" if allowed is None else f"{name}: {getattr(job, f'{name}_used')}, allowed: {allowed}"


_BUDGETS = (*BUDGETS.values(), *(f"{name}_used" for name in BUDGETS.values()))


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
        updated_at=unknown,
        unreadable=why,
        app=app,
    )


def _read_record(fields: dict[str, Any], app: App, returns: TypeCodec | None) -> Job[Any]:
    timer = moment(fields["timer"])
    state = fields["state"]
    return Job(
        id=fields["id"],
        state=state,
        queue=fields["queue"],
        task=fields["task"],
        created_at=utc(fields["created"]),
        since=utc(fields["since"]),
        updated_at=utc(fields["updated"]),
        priority=fields["priority"],
        attempt=fields["attempt"],
        retries_used=fields["retries_used"],
        retries=fields["retries"],
        crashes_used=fields["crashes_used"],
        crashes=fields["crashes"],
        lost_used=fields["lost_used"],
        lost=fields["lost"],
        **_read_budgets(fields),
        cancelling=fields["cancelling"] == 1,
        due_at=timer if state == "scheduled" else None,
        lease_ends_at=timer if state == "running" else None,
        heartbeat_at=moment(fields.get("heartbeat", 0)),
        stalled=fields.get("stalled") == 1,
        claimed_at=moment(fields["claimed"]),
        executor=fields["executor"],
        pid=fields["pid"],
        group=fields["group"],
        fingerprint=fields["fingerprint"],
        final_reason=fields["final_reason"],
        progress=read_progress(fields["progress"]),
        codec=fields["codec"],
        waits_for=fields["waits_for"],
        after=read_dependencies(fields.get("after", ())),
        waits=read_dependencies(fields.get("waits", ())),
        limits=tuple(fields["limits"].split()),
        throttled_by=fields["throttled_by"],
        share=fields["share"],
        **_read_marks(fields),
        deadline=moment(fields["deadline"]),
        unique=fields["unique"],
        forked_from=fields["forked_from"],
        keep=read_keep(fields["keep"]),
        expires_at=moment(fields["expires"]),
        at_most_once=fields["at_most_once"] == 1,
        payload=fields.get("payload"),
        result_bytes=fields.get("result"),
        checkpoint_bytes=fields.get("checkpoint"),
        **_read_history(fields),
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


def _read_budgets(fields: dict[str, Any]) -> dict[str, Any]:
    """Read the budgets for attempts that a limit stops, and the policies of these and of the retries."""
    found = {name: fields[name] for name in _BUDGETS if name in fields}
    if fields["run"]:
        run = RunOptions.decode(fields["run"].encode())
        found["retry_policy"] = Retries.of(fields["retries"], run.retry_policy)
        for name in BUDGETS.values():
            policy = f"{name}_policy"
            found[policy] = Retries.of(fields.get(name), getattr(run, policy))
    return found


def _read_history(fields: dict[str, Any]) -> dict[str, Any]:
    """Read attempts and notes, how limits parked the job, and how it was enqueued."""
    attempts, notes = read_attempts(fields), read_notes(fields.get("notes", ()))
    origin, forgotten = read_enqueued_as(fields.get("enqueued_as", []))
    if origin:
        attempts = trace_calls(attempts, notes, origin, forgotten)
    return {
        "attempts": attempts,
        "notes": notes,
        "parked": read_parked(fields.get("parked", ())),
        "enqueued_as": origin,
    }


def read_keep(keep: int) -> bool | timedelta:
    """Read how long a record is kept: 0 (not at all), 1 (as its queue's settings say), or milliseconds."""
    return bool(keep) if keep in (0, 1) else timedelta(milliseconds=keep)


def _read_pairs(flat: list[bytes]) -> dict[str, str]:
    return {flat[n].decode(): flat[n + 1].decode(errors="replace") for n in range(0, len(flat), 2)}
