"""What workers say: claim, renew, save, keep a step or a log, finish, and take back what the dead held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.constants import DEFAULT_LEASE
from holdfast.job.outcome import Advanced, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown, Waits
from holdfast.names import new_id
from holdfast.store.commands.command import Command, Fields, given, read_texts


class ClaimedJob(msgspec.Struct, frozen=True):
    """A job that was handed to an executor."""

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
    run: bytes = b""  # how to run it; see `run`


class ClaimReply(NamedTuple):
    """The jobs that a claim got; if none, how many ms to wait for a wake-up on which key."""

    wait: int
    wake_key: bytes
    jobs: list[ClaimedJob]


def claim_args(
    queues: Sequence[str],
    *,
    counter: int,
    limit: int,
    shares: Sequence[int] | None = None,
    lease: int | None = None,
    pid: int | None = None,
    idle: bool = False,
    leaves: bool = False,
) -> dict[str, Any]:
    said = given(shares=shares, lease=lease, pid=pid, idle=idle or None, leaves=leaves or None)
    return {"queues": list(queues), "counter": counter, "limit": limit, **said}


def claim(executor: str, request: dict[str, Any]) -> Command[ClaimReply]:
    """Hand waiting jobs to an executor; `request` is made by `claim_args`."""
    return Command("claim", {"executor": executor, **request}, _read_claim)


def _read_claim(reply: list[Any]) -> ClaimReply:
    if not reply:
        return ClaimReply(0, b"", [])
    wait, wake_key, flat, *rest = reply
    kinds = [_read_kind(flat[place : place + 7]) for place in range(0, len(flat), 7)]
    values = iter(rest)
    jobs = []
    for id, attempt, created, number, payload, checkpoint in zip(*[values] * 6, strict=True):
        queue, task, codec, timeout, alone, lease, run = kinds[number]
        jobs.append(
            ClaimedJob(
                id.decode(), attempt, queue, task, codec, payload, checkpoint, timeout, created, alone, lease, run
            )
        )
    return ClaimReply(wait, wake_key, jobs)


def _read_kind(part: list[Any]) -> tuple[str, str, str, int, bool, int, bytes]:
    """What jobs of one kind have in common: queue, task, codec, timeout, alone, lease, run."""
    queue, task, codec, timeout, alone, lease, run = part
    return queue.decode(), task.decode(), codec.decode(), timeout, alone == 1, lease, run


class Lease(NamedTuple):
    """A lease: who has it on what."""

    executor: str
    id: str
    attempt: int


class Started(NamedTuple):
    """That an attempt runs, in which process, so many milliseconds after it was claimed."""

    executor: str
    id: str
    attempt: int
    pid: int
    delay: int


class RenewReply(NamedTuple):
    inbox_key: bytes
    arrivals: int
    cancelled: list[Lease]
    lost: list[Lease]
    unnamed: list[Lease]
    refills: list[str] = []  # noqa: RUF012
    queues: int = 0  # another number when a queue was new, or forgotten
    undefined: int = 0  # another number when a job took part in a limit that nobody has defined


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
    matches: bool = False,
) -> Command[RenewReply]:
    """Prolong leases, each by its length, and hear which are lost or to be cancelled.

    `executors` are those that may hold nothing; `queues` are those that the worker serves;
    with `matches` by a pattern, so that it is told of new ones.
    """
    by_executor: dict[str, list[str | int]] = {executor: [] for executor in executors}
    for executor, id, attempt in held:
        by_executor.setdefault(executor, []).extend((id, attempt))
    flat = [part for pair in by_executor.items() for part in pair]
    starts = [part for start in started for part in start]
    args = given(worker=worker, held=flat, started=starts or None, about=about, queues=queues, arrivals=arrivals)
    args |= given(refills=refills, matches=matches or None)
    return Command("renew", args, _read_renewed)


def _read_renewed(reply: list[Any]) -> RenewReply:
    cancelled, lost, unnamed = (_read_held(part) for part in reply[2:5])
    return RenewReply(reply[0], reply[1], cancelled, lost, unnamed, read_texts(reply[5]), *reply[6:8])


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
    """Keep a checkpoint, the progress and notes of an attempt. Returns whether the job is to be cancelled."""
    said = given(progress=progress, notes=list(notes) or None, renew=renew or None, token=new_id() if notes else None)
    args = given(executor=held.executor, id=held.id, attempt=held.attempt, created=created, **said)
    return Command("save", args, lambda reply: reply == 1, () if checkpoint is None else (checkpoint,))


def detach(held: Lease, to: str, *, created: int | None = None) -> Command[bool]:
    """Hand a lease over to an executor that is no process. Returns whether the job is to be cancelled."""
    args = given(executor=held.executor, id=held.id, attempt=held.attempt, created=created, to=to)
    return Command("detach", args, lambda reply: reply == 1)


def once(held: Lease, step: str, result: bytes | None = None, *, created: int | None = None) -> Command[bytes | None]:
    """Return the result of a step that is kept; with a `result`, keep that if there is none."""
    args = given(executor=held.executor, id=held.id, attempt=held.attempt, created=created, step=step)
    return Command("once", args, lambda reply: reply, () if result is None else (result,))


class LogBlock(NamedTuple):
    """A part of the log of an attempt: `LOG_BLOCK` bytes, or fewer if it is the last. -1: its use of the machine."""

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
    """An attempt, how it ended, in which process, how long after the claim it started, and when its job was created.

    An id may be used again: without `created` the outcome could be taken for that of another job of the same id.
    `unstarted`: the task was certainly not called, so even a job that must not run twice may come back.
    """

    id: str
    attempt: int
    outcome: Outcome
    pid: int | None = None
    started: int | None = None
    created: int | None = None
    unstarted: bool = False


class FinishReply(NamedTuple):
    answers: list[str]
    claim: ClaimReply


def finish(
    executor: str, items: Sequence[Finish], *, request: dict[str, Any] | None = None, token: str | None = None
) -> Command[FinishReply]:
    """End attempts and, with a `request` made by `claim_args`, claim in the same call.

    An outcome that is said again, because the answer was lost, gets the same answer as long as the job's record is
    kept; with a token also if it is not.
    """
    rows: list[Any] = []
    blobs = []
    for item in items:
        if type(item.outcome) is Succeed and not item.outcome.note and None not in (values := _success(item)):
            rows.extend(values)
            blobs.append(item.outcome.result)
            continue
        row, blob = _outcome_row(item.outcome)
        fields = {"id": item.id, "attempt": item.attempt, "created": item.created, **row}
        rows.append(given(pid=item.pid, started=item.started, unstarted=item.unstarted or None, **fields))
        if blob is not None:
            rows[-1]["blob"] = True
            blobs.append(blob)
    args = given(executor=executor, items=rows, claim=request, token=token)
    return Command("finish", args, _read_finished, tuple(blobs))


def _success(item: Finish) -> tuple[Any, ...]:
    """What is said of most jobs, in short."""
    return item.id, item.attempt, item.created, item.pid, item.started


def _outcome_row(outcome: Outcome) -> tuple[Fields, bytes | None]:  # noqa: PLR0911 - one for each
    """Return what an outcome is called in the store, and its blob."""
    match outcome:
        case Succeed(result, note):
            return {"outcome": "succeed", "note": note or None}, result
        case Error(error, group, final, delay):
            return {"outcome": "error", "group": group, "final": final or None, "delay": delay}, error
        case Crash(error):
            return {"outcome": "crash"}, error
        case Release(reason, delay):
            return {"outcome": "release", "reason": reason or None, "delay": delay or None}, None
        case Advanced(task, batch, payload):
            return {"outcome": "advance", "next": given(task=task, **batch)}, payload
        case Waits(after):
            return {"outcome": "wait", "after": list(after)}, None
        case Snoozed(delay):
            return {"outcome": "snooze", "delay": delay}, None
    return {"outcome": _WORDS[type(outcome)]}, None


_WORDS: dict[type[Outcome], str] = {Unknown: "unknown", Cancelled: "cancelled"}


def _read_finished(reply: list[Any]) -> FinishReply:
    return FinishReply([answer.decode() for answer in reply[0]], _read_claim(reply[1]))


def requeue_orphaned(*, executor: str | None = None, worker: str | None = None, reason: str = "") -> Command[list[str]]:
    """Take back what a dead executor, or a dead worker, held. Repeat until it returns nothing."""
    return Command("requeue_orphaned", given(executor=executor, worker=worker, reason=reason), read_texts)
