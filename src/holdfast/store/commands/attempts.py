"""Attempts: claim jobs, renew leases, save progress, steps and logs, finish, and requeue orphaned jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.constants import DEFAULT_LEASE
from holdfast.job.failure import decode, describe_attempt
from holdfast.job.outcome import Advanced, Blocked, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown
from holdfast.job.retries import RetryWait
from holdfast.store.commands.command import Command, Fields, omit_none, read_pairs, read_texts
from holdfast.store.tokens import new_token


class ClaimedJob(msgspec.Struct, frozen=True):
    """A job that an executor has claimed."""

    id: str
    attempt: int
    queue: str
    task: str
    codec: str
    payload: bytes
    checkpoint: bytes
    timeout: int
    created: int
    alone: bool
    lease: int = DEFAULT_LEASE
    run: bytes = b""  # options of the runner; see `RunOptions`
    marks: str = ""  # its tags, scope and batch, as its record has them


class ClaimReply(NamedTuple):
    """The claimed jobs; without any, the key to wait on for a wake-up, and for how many milliseconds."""

    wait: int
    wake_key: bytes
    jobs: list[ClaimedJob]


def claim_args(
    queues: Sequence[str] | None = None,
    *,
    pool: str | None = None,
    counter: int,
    limit: int,
    shares: Sequence[int] | None = None,
    weights: Sequence[int] | None = None,
    lease: int | None = None,
    pid: int | None = None,
    idle: bool = False,
    leaves: bool = False,
) -> dict[str, Any]:
    """Return the arguments of a claim from some queues, or from a pool, of which the store chooses."""
    options = omit_none(shares=shares, weights=weights, lease=lease, pid=pid, idle=idle or None, leaves=leaves or None)
    served = {"pool": pool} if pool else {"queues": list(queues or ())}
    return {**served, "counter": counter, "limit": limit, **options}


def claim(executor: str, request: dict[str, Any]) -> Command[ClaimReply]:
    """Claim waiting jobs for an executor; `claim_args` makes the `request`."""
    return Command("claim", {"executor": executor, **request}, _read_claim)


def _read_claim(reply: list[Any]) -> ClaimReply:
    if not reply:
        return ClaimReply(0, b"", [])
    wait, wake_key, flat, *rest = reply
    kinds = [_read_kind(flat[index : index + 7]) for index in range(0, len(flat), 7)]
    values = iter(rest)
    jobs = []
    for id, attempt, created, number, payload, checkpoint in zip(*[values] * 6, strict=True):
        queue, task, codec, timeout, alone, lease, run, marks = kinds[number]
        jobs.append(
            ClaimedJob(
                id.decode(),
                attempt,
                queue,
                task,
                codec,
                payload,
                checkpoint,
                timeout,
                created,
                alone,
                lease,
                run,
                marks,
            )
        )
    return ClaimReply(wait, wake_key, jobs)


def _read_kind(part: list[Any]) -> tuple[str, str, str, int, bool, int, bytes, str]:
    """Read what jobs of one kind have in common."""
    queue, task, codec, timeout, alone, lease, run = part
    run, marks = run if isinstance(run, list) else (run, b"")
    return (
        queue.decode(),
        task.decode(),
        codec.decode(),
        timeout,
        alone == 1,
        lease,
        run,
        marks.decode(errors="replace"),
    )


class Lease(NamedTuple):
    """A lease of an executor on an attempt of a job."""

    executor: str
    id: str
    attempt: int


class Started(NamedTuple):
    """An attempt that has started, its process, and the milliseconds from its claim to its start."""

    executor: str
    id: str
    attempt: int
    pid: int
    delay: int


class RenewReply(NamedTuple):
    inbox_key: bytes
    arrivals: int  # the highest arrival number
    cancelled: list[Lease]  # cancellation was requested
    lost: list[Lease]
    unreported: list[Lease]  # held in the store, but not among those to renew
    refills: list[str] = []  # noqa: RUF012 - schedules that need more firing times
    undefined: int = 0  # changes when a job names a limit that is not defined
    since: int = 0  # changes when the store has lost data


def renew(
    worker: str,
    held: Iterable[Lease],
    *,
    executors: Iterable[str] = (),
    started: Iterable[Started] = (),
    about: str | None = None,
    queues: Sequence[str] | None = None,
    arrivals: int | None = None,
    refills: int | None = None,
) -> Command[RenewReply]:
    """Renew leases, each by its own duration. Return those that are lost or cancelled.

    `executors` also names executors without a lease. `queues` are those that the worker serves: names, patterns and
    exclusions.
    """
    by_executor: dict[str, list[str | int]] = {executor: [] for executor in executors}
    for executor, id, attempt in held:
        by_executor.setdefault(executor, []).extend((id, attempt))
    flat = [part for pair in by_executor.items() for part in pair]
    starts = [part for start in started for part in start]
    args = omit_none(worker=worker, held=flat, started=starts or None, about=about, queues=queues, arrivals=arrivals)
    args |= omit_none(refills=refills)
    return Command("renew", args, _read_renewed)


def _read_renewed(reply: list[Any]) -> RenewReply:
    cancelled, lost, unreported = (_read_held(part) for part in reply[2:5])
    return RenewReply(reply[0], reply[1], cancelled, lost, unreported, read_texts(reply[5]), *reply[6:])


def _read_held(part: list[Any]) -> list[Lease]:
    return [Lease(part[n].decode(), part[n + 1].decode(), part[n + 2]) for n in range(0, len(part), 3)]


def save(
    held: Lease,
    checkpoint: bytes | None = None,
    *,
    progress: str | None = None,
    notes: Sequence[str] = (),
    created: int | None = None,
    renew: bool = False,
) -> Command[bool]:
    """Save a checkpoint, the progress and notes of an attempt. Return whether the job was cancelled."""
    options = omit_none(
        progress=progress, notes=list(notes) or None, renew=renew or None, token=new_token() if notes else None
    )
    args = omit_none(executor=held.executor, id=held.id, attempt=held.attempt, created=created, **options)
    return Command("save", args, lambda reply: reply == 1, () if checkpoint is None else (checkpoint,))


class Attached(NamedTuple):
    """Whether the job was cancelled, and all its fields."""

    cancelling: bool
    fields: dict[str, str]


def attach_held(
    held: Lease, fields: dict[str, str], *, remove: Sequence[str] = (), created: int | None = None
) -> Command[Attached]:
    """Change the fields of a running job, if the attempt still holds it."""
    args = omit_none(executor=held.executor, id=held.id, attempt=held.attempt, created=created)
    args |= {"fields": fields} | omit_none(remove=list(remove) or None)
    return Command("save", args, lambda reply: Attached(reply[0] == 1, read_pairs(reply[1])))


class Tagged(NamedTuple):
    """Whether the job was cancelled, and all its tags."""

    cancelling: bool
    tags: list[str]


def tag_held(
    held: Lease, tags: Sequence[str], *, remove: Sequence[str] = (), created: int | None = None
) -> Command[Tagged]:
    """Change the tags of a running job, if the attempt still holds it."""
    args = omit_none(executor=held.executor, id=held.id, attempt=held.attempt, created=created)
    args |= {"tags": list(tags)} | omit_none(untags=list(remove) or None)
    return Command("save", args, lambda reply: Tagged(reply[0] == 1, read_texts(reply[1])))


def detach(held: Lease, to: str, *, created: int | None = None) -> Command[bool]:
    """Transfer a lease to an executor without a process. Return whether the job was cancelled."""
    args = omit_none(executor=held.executor, id=held.id, attempt=held.attempt, created=created, to=to)
    return Command("detach", args, lambda reply: reply == 1)


def once(held: Lease, step: str, result: bytes | None = None, *, created: int | None = None) -> Command[bytes | None]:
    """Return the stored result of a step; store `result` if there is none."""
    args = omit_none(executor=held.executor, id=held.id, attempt=held.attempt, created=created, step=step)
    return Command("once", args, lambda reply: reply, () if result is None else (result,))


class LogBlock(NamedTuple):
    """A block of an attempt's log: `LOG_BLOCK` bytes, the last one fewer. Number -1 holds its resource usage."""

    id: str
    created: int
    attempt: int
    number: int
    data: bytes


def log(blocks: Sequence[LogBlock]) -> Command[list[str]]:
    rows = [part for block in blocks for part in block[:4]]
    return Command("log", {"blocks": rows}, read_texts, tuple(block.data for block in blocks))


def respond(inbox: str, text: bytes) -> Command[None]:
    return Command("respond", {"inbox": inbox}, lambda _: None, (text,))


class Finish(msgspec.Struct, frozen=True):
    """The end of an attempt: its outcome, its process, and the milliseconds from its claim to its start.

    `created` identifies the job: its id may have been reused meanwhile. `unstarted` means that the task was certainly
    not called, so even a job that runs at most once may be requeued.
    """

    id: str
    attempt: int
    outcome: Outcome
    pid: int | None = None
    started: int | None = None
    created: int | None = None
    unstarted: bool = False


class FinishReply(NamedTuple):
    answers: list[str]  # per item: OK, LOST, or why it was refused
    claim: ClaimReply


def finish(
    executor: str,
    items: Sequence[Finish],
    *,
    request: dict[str, Any] | None = None,
    revision: int = 0,
    token: str | None = None,
) -> Command[FinishReply]:
    """Finish attempts and, with a `request` made by `claim_args`, claim in the same call.

    `revision` is that of the app, if it has one; the store notes it with an error that it sees for the first time. A
    repeated outcome gets the same answer while the job's record is retained; with a token also after that.
    """
    rows: list[Any] = []
    blobs = []
    for item in items:
        if type(item.outcome) is Succeed and not item.outcome.note and None not in (values := _success(item)):
            rows.extend(values)
            blobs.append(item.outcome.result)
            continue
        row, blob = _outcome_row(item.outcome)
        if isinstance(item.outcome, Error | Crash):
            origin, blob, traceback = _split_error(item.outcome.error)
            row |= origin | {"revision": revision or None}
        fields = {"id": item.id, "attempt": item.attempt, "created": item.created, **row}
        rows.append(omit_none(pid=item.pid, started=item.started, unstarted=item.unstarted or None, **fields))
        if blob is not None:
            rows[-1]["blob"] = True
            blobs.append(blob)
        if rows[-1].get("traceback"):
            blobs.append(traceback)
    args = omit_none(executor=executor, items=rows, claim=request, token=token)
    return Command("finish", args, _read_finished, tuple(blobs))


def _success(item: Finish) -> tuple[Any, ...]:
    """Return the short form, which most jobs need."""
    return item.id, item.attempt, item.created, item.pid, item.started


def _outcome_row(outcome: Outcome) -> tuple[Fields, bytes | None]:  # noqa: PLR0911 - one for each
    """Return the fields of an outcome, and its blob."""
    match outcome:
        case Succeed(result, note):
            return {"outcome": "succeed", "note": note or None}, result
        case Error(_, group, final, delay, reason, wait):
            row = {"outcome": "error", "group": group, "final": final or None, "delay": delay, "reason": reason or None}
            return {**row, **_wait_row(wait)} if wait else row, None
        case Crash():
            return {"outcome": "crash"}, None
        case Release(reason, delay):
            return {"outcome": "release", "reason": reason or None, "delay": delay or None}, None
        case Advanced(task, batch, payload):
            return {"outcome": "advance", "next": omit_none(task=task, **batch)}, payload
        case Blocked(after):
            return {"outcome": "wait", "after": list(after)}, None
        case Snoozed(delay):
            return {"outcome": "snooze", "delay": delay}, None
    return {"outcome": _NAMES[type(outcome)]}, None


def _split_error(error: bytes) -> tuple[Fields, bytes, bytes]:
    """Split the failure of an attempt into what identifies it, what is kept with the attempt, and its traceback."""
    failure = decode(error)
    if failure.type == "Unreadable":
        return {}, error, b""
    origin: Fields = {"fingerprint": failure.fingerprint or None, "type": failure.type, "place": failure.place or None}
    origin |= {"traceback": bool(failure.traceback) or None}
    return origin, describe_attempt(failure), failure.traceback.encode()


def _wait_row(wait: RetryWait) -> Fields:
    return {"waits": list(wait.waits) or None, "cap": wait.cap, "spread": wait.spread or None}


_NAMES: dict[type[Outcome], str] = {Unknown: "unknown", Cancelled: "cancelled"}


def _read_finished(reply: list[Any]) -> FinishReply:
    return FinishReply([answer.decode() for answer in reply[0]], _read_claim(reply[1]))


def requeue_orphaned(*, executor: str | None = None, worker: str | None = None, reason: str = "") -> Command[list[str]]:
    """Requeue jobs of a dead executor or worker. Return their ids; repeat until there are none."""
    return Command("requeue_orphaned", omit_none(executor=executor, worker=worker, reason=reason), read_texts)
