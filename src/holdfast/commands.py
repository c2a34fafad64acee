"""A command is a value: which function of the library to call, with what, and how to read its reply.

One plain function per verb builds it, without I/O. The sync and the async store run the same values. What each verb
does, takes and returns is said at the head of `lua/<verb>.lua`; here stands only how Python writes it down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.budget import Budget
from holdfast.names import new_id
from holdfast.outcome import (
    Advanced,
    Cancelled,
    Crash,
    Error,
    Outcome,
    Release,
    Snoozed,
    Succeed,
    Unknown,
    Waits,
)

T_co = TypeVar("T_co", covariant=True)
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command(Generic[T_co]):
    """One call of one function of the library; with a `budget` it takes no longer than that, in all."""

    verb: str
    args: dict[str, Any]
    read: Callable[[Any], T_co]
    blobs: tuple[bytes, ...] = ()
    budget: Budget | None = None


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be stored. What is None is left to the store."""

    id: str
    payload: bytes
    queue: str
    task: str
    priority: int | None = None
    delay: int | None = None
    due: int | None = None
    retries: int | None = None
    crashes: int | None = None
    lost: int | None = None
    backoff: int | None = None
    timeout: int | None = None
    codec: str | None = None
    unique: str | None = None
    unique_for: str | int | None = None
    unkept: bool | None = None
    once: bool | None = None
    after: tuple[str, ...] | None = None
    on_failed: str | None = None
    limits: tuple[str, ...] | None = None
    share: str | None = None
    deadline: int | None = None
    start_by: int | None = None
    run: str | None = None


_SHARED = tuple(field for field in NewJob.__struct_fields__ if field not in ("id", "payload"))


def _shared(job: NewJob) -> tuple[Any, ...]:
    return tuple(getattr(job, field) for field in _SHARED)


class Stored(NamedTuple):
    """The server's time; for each job whether it was stored, and its id: its own, or that of its unique key."""

    now: int
    created: list[bool]
    ids: list[str]


def enqueue(jobs: Sequence[NewJob], *, exists: str = "return", fresh: bool = False) -> Command[Stored]:
    """Store jobs, all or none. Jobs that stand together and differ only in id and payload share what is sent.

    `fresh`: all ids were made for this call, so the store looks for them all at once: all are there, or none.
    """
    batches = []
    for (shared, _), group in groupby(jobs, key=lambda job: (_shared(job), job.id if job.unique else "")):
        batch = _given(**dict(zip(_SHARED, shared, strict=True)))
        count = len(list(group))
        batches.append(batch if count == 1 else {**batch, "count": count})
    is_risky = fresh or exists != "return" or any(job.unkept for job in jobs)  # repeated, it could be done twice
    args = _given(batches=batches, exists=exists, fresh=fresh or None, token=new_id() if is_risky else None)
    ids = [job.id for job in jobs]
    blobs = (" ".join(ids).encode(), *(job.payload for job in jobs))
    return Command("enqueue", args, lambda reply: _read_stored(reply, ids), blobs)


def _read_stored(reply: list[Any], ids: list[str]) -> Stored:
    """Of each job the store says 1 or 0, or, if it has another id because of its unique key, `+id` or `=id`."""
    answers = reply[1:]
    stored = [answer == 1 or (answer != 0 and answer.startswith(b"+")) for answer in answers]
    names = [id if isinstance(answer, int) else answer[1:].decode() for id, answer in zip(ids, answers, strict=True)]
    return Stored(reply[0], stored, names)


class Claimed(msgspec.Struct, frozen=True):
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
    lease: int = 30_000
    run: bytes = b""  # how to run it; see `run`


class Claim(NamedTuple):
    """The jobs that a claim got; if none, how many ms to wait for a wake-up on which key."""

    wait: int
    wake_key: bytes
    jobs: list[Claimed]


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
    said = _given(shares=shares, lease=lease, pid=pid, idle=idle or None, leaves=leaves or None)
    return {"queues": list(queues), "counter": counter, "limit": limit, **said}


def claim(executor: str, request: dict[str, Any]) -> Command[Claim]:
    """Hand waiting jobs to an executor; `request` is made by `claim_args`."""
    return Command("claim", {"executor": executor, **request}, _read_claim)


def _read_claim(reply: list[Any]) -> Claim:
    if not reply:
        return Claim(0, b"", [])
    jobs = [_read_claimed(reply[place : place + 12]) for place in range(2, len(reply), 12)]
    return Claim(reply[0], reply[1], jobs)


def _read_claimed(part: list[Any]) -> Claimed:
    job, attempt, queue, task, codec, payload, checkpoint, timeout, created, alone, lease, run = part
    text = bytes.decode
    return Claimed(
        text(job),
        attempt,
        text(queue),
        text(task),
        text(codec),
        payload,
        checkpoint,
        timeout,
        created,
        alone == 1,
        lease,
        run,
    )


class Held(NamedTuple):
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


class Renewed(NamedTuple):
    inbox_key: bytes
    arrivals: int
    cancelled: list[Held]
    lost: list[Held]
    unnamed: list[Held]
    refills: list[str] = []  # noqa: RUF012
    queues: int = 0  # another number when a queue was new, or forgotten


def renew(
    worker: str,
    held: Iterable[Held],
    *,
    executors: Iterable[str] = (),
    started: Iterable[Started] = (),
    about: str | None = None,
    queues: Sequence[str] | None = None,
    arrivals: int | None = None,
    refills: int | None = None,
    matches: bool = False,
) -> Command[Renewed]:
    """Prolong leases, each by its length, and hear which are lost or to be cancelled.

    `executors` are those that may hold nothing; `queues` are those that the worker serves;
    with `matches` by a pattern, so that it is told of new ones.
    """
    by_executor: dict[str, list[str | int]] = {executor: [] for executor in executors}
    for executor, id, attempt in held:
        by_executor.setdefault(executor, []).extend((id, attempt))
    flat = [part for pair in by_executor.items() for part in pair]
    starts = [part for start in started for part in start]
    args = _given(worker=worker, held=flat, started=starts or None, about=about, queues=queues, arrivals=arrivals)
    args |= _given(refills=refills, matches=matches or None)
    return Command("renew", args, _read_renewed)


def _read_renewed(reply: list[Any]) -> Renewed:
    cancelled, lost, unnamed = (_read_held(part) for part in reply[2:5])
    return Renewed(reply[0], reply[1], cancelled, lost, unnamed, _read_texts(reply[5]), reply[6])


def _read_held(part: list[Any]) -> list[Held]:
    return [Held(part[n].decode(), part[n + 1].decode(), part[n + 2]) for n in range(0, len(part), 3)]


def save(
    held: Held,
    checkpoint: bytes | None = None,
    *,
    progress: str | None = None,
    notes: Sequence[str] = (),
    created: int | None = None,
    renew: bool = False,
) -> Command[bool]:
    """Keep a checkpoint, the progress and notes of an attempt. Returns whether the job is to be cancelled."""
    said = _given(progress=progress, notes=list(notes) or None, renew=renew or None, token=new_id() if notes else None)
    args = _given(executor=held.executor, id=held.id, attempt=held.attempt, created=created, **said)
    return Command("save", args, lambda reply: reply == 1, () if checkpoint is None else (checkpoint,))


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


def once(held: Held, step: str, result: bytes | None = None, *, created: int | None = None) -> Command[bytes | None]:
    """Return the result of a step that is kept; with a `result`, keep that if there is none."""
    args = _given(executor=held.executor, id=held.id, attempt=held.attempt, created=created, step=step)
    return Command("once", args, lambda reply: reply, () if result is None else (result,))


class Block(NamedTuple):
    """A part of the log of an attempt: `BLOCK_SIZE` bytes, or fewer if it is the last. -1: its use of the machine."""

    id: str
    created: int
    attempt: int
    number: int
    data: bytes


def log(blocks: Sequence[Block]) -> Command[list[str]]:
    rows = [part for block in blocks for part in block[:4]]
    return Command("log", {"blocks": rows}, _read_texts, tuple(block.data for block in blocks))


class Log(NamedTuple):
    """Blocks of an attempt's log, by number; whether it has ended; and the attempts that have one."""

    attempt: int
    has_ended: bool
    attempts: list[int]
    blocks: dict[int, bytes]


def logs(id: str, attempt: int | None = None, *, block: int = 0) -> Command[Log]:
    return Command("logs", _given(id=id, attempt=attempt, block=block), _read_log)


def _read_log(reply: list[Any]) -> Log:
    attempt, ended, attempts, parts = reply
    return Log(attempt, ended == 1, attempts, dict(zip(parts[::2], parts[1::2], strict=True)))


def ask(word: str, *, inbox: str, worker: str | None = None, id: str | None = None) -> Command[tuple[str, bytes]]:
    """Have a worker do something. Returns its name, and the key of the list on which it answers."""
    args = _given(word=word, inbox=inbox, worker=worker, id=id)
    return Command("ask", args, lambda reply: (reply[0].decode(), reply[1]))


def answer(inbox: str, text: bytes) -> Command[None]:
    return Command("answer", {"inbox": inbox}, lambda _: None, (text,))


class Finished(NamedTuple):
    answers: list[str]
    claim: Claim


def finish(
    executor: str, items: Sequence[Finish], *, request: dict[str, Any] | None = None, token: str | None = None
) -> Command[Finished]:
    """End attempts and, with a `request` made by `claim_args`, claim in the same call.

    An outcome that is said again, because the answer was lost, gets the same answer as long as the job's record is
    kept; with a token also if it is not.
    """
    rows, blobs = [], []
    for item in items:
        row, blob = _outcome_row(item.outcome)
        fields = {"id": item.id, "attempt": item.attempt, "created": item.created, **row}
        rows.append(_given(pid=item.pid, started=item.started, unstarted=item.unstarted or None, **fields))
        if blob is not None:
            rows[-1]["blob"] = True
            blobs.append(blob)
    args = _given(executor=executor, items=rows, claim=request, token=token)
    return Command("finish", args, _read_finished, tuple(blobs))


def _outcome_row(outcome: Outcome) -> tuple[Fields, bytes | None]:  # noqa: PLR0911 - one for each
    """Return what an outcome is called in the store, and its blob."""
    match outcome:
        case Succeed(result):
            return {"outcome": "succeed"}, result
        case Error(error, group, final, delay):
            return {"outcome": "error", "group": group, "final": final or None, "delay": delay}, error
        case Crash(error):
            return {"outcome": "crash"}, error
        case Release(reason, delay):
            return {"outcome": "release", "reason": reason or None, "delay": delay or None}, None
        case Advanced(task, batch, payload):
            return {"outcome": "advance", "next": _given(task=task, **batch)}, payload
        case Waits(after):
            return {"outcome": "wait", "after": list(after)}, None
        case Snoozed(delay):
            return {"outcome": "snooze", "delay": delay}, None
    return {"outcome": _WORDS[type(outcome)]}, None


_WORDS: dict[type[Outcome], str] = {Unknown: "unknown", Cancelled: "cancelled"}


def _read_finished(reply: list[Any]) -> Finished:
    return Finished([answer.decode() for answer in reply[0]], _read_claim(reply[1]))


def lose(*, executor: str | None = None, worker: str | None = None, reason: str = "") -> Command[list[str]]:
    """Take back what a dead executor, or a dead worker, held. Repeat until it returns nothing."""
    return Command("lose", _given(executor=executor, worker=worker, reason=reason), _read_texts)


def cancel(ids: Sequence[str], *, reason: str = "", dependents: bool = False) -> Command[list[str]]:
    args = _given(ids=list(ids), reason=reason, token=new_id(), dependents=dependents or None)
    return Command("cancel", args, _read_texts)


def depend(
    id: str, *, add: Sequence[str] = (), remove: Sequence[str] = (), on_failed: str | None = None
) -> Command[tuple[str, int]]:
    """Have a job wait for more jobs, or for fewer. Returns its state, and how many it waits for."""
    args = _given(id=id, add=list(add) or None, remove=list(remove) or None, on_failed=on_failed, token=new_id())
    return Command("depend", args, lambda reply: (reply[0].decode(), reply[1]))


def move(ids: Sequence[str], *, queue: str | None = None, priority: int | None = None) -> Command[list[str]]:
    args = _given(ids=list(ids), queue=queue, priority=priority, token=new_id())
    return Command("move", args, _read_texts)


def release(ids: Sequence[str], *, delay: int | None = None, reason: str = "") -> Command[list[str]]:
    return Command("release", _given(ids=list(ids), delay=delay, reason=reason, token=new_id()), _read_texts)


def fail(ids: Sequence[str], *, group: str | None = None, reason: str = "") -> Command[list[str]]:
    return Command("fail", _given(ids=list(ids), group=group, reason=reason, token=new_id()), _read_texts)


class Acted(NamedTuple):
    """The next cursor (None: that was all), the time to go on with, how many were looked at, and the answers."""

    cursor: list[str] | None
    since: int
    looked_at: int
    answers: dict[str, int]


def act(
    action: str,
    *,
    queues: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    task: str | None = None,
    group: str | None = None,
    since: int | None = None,
    cursor: Sequence[str] | None = None,
    limit: int = 100,
    arguments: Fields | None = None,
) -> Command[Acted]:
    """Do the same to all jobs of a kind, a bounded number in each call."""
    args = _given(action=action, queues=queues, states=states, task=task, group=group, since=since, cursor=cursor)
    args |= _given(limit=limit, token=new_id(), **{"with": arguments or None})
    return Command("act", args, _read_acted)


def _read_acted(reply: list[Any]) -> Acted:
    cursor, since, looked_at, counts = reply
    answers = {counts[place].decode(): counts[place + 1] for place in range(0, len(counts), 2)}
    return Acted([part.decode() for part in cursor] or None, since, looked_at, answers)


def retry(ids: Sequence[str]) -> Command[list[str]]:
    return Command("retry", {"ids": list(ids), "token": new_id()}, _read_texts)


def delete(ids: Sequence[str]) -> Command[list[str]]:
    return Command("delete", {"ids": list(ids)}, _read_texts)


def get(ids: Sequence[str], *, brief: bool = False) -> Command[list[Fields | None]]:
    return Command("get", _given(ids=list(ids), brief=brief or None), lambda reply: [_read_job(part) for part in reply])


class Page(NamedTuple):
    jobs: list[Fields]
    cursor: list[str] | None


def list_jobs(
    *,
    queues: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    limit: int = 100,
    newest: bool = False,
    cursor: Sequence[str] | None = None,
) -> Command[Page]:
    args = _given(queues=queues, states=states, limit=limit, newest=newest or None, cursor=cursor)
    return Command("list", args, _read_page)


def _read_page(reply: list[Any]) -> Page:
    jobs = [job for job in map(_read_job, reply[1:]) if job]
    return Page(jobs, [part.decode() for part in reply[0]] or None)


_BYTES = {b"payload", b"result", b"checkpoint"}


def _read_job(part: list[Any] | None) -> Fields | None:
    if not part:
        return None
    fields: Fields = {}
    for place in range(0, len(part), 2):
        name, value = part[place], part[place + 1]
        fields[name.decode()] = value.decode() if isinstance(value, bytes) and name not in _BYTES else value
    return fields


def count(*, queues: Sequence[str] | None = None, states: Sequence[str] | None = None) -> Command[int]:
    return Command("count", _given(queues=queues, states=states), int)


def queues(names: Sequence[str] | None = None) -> Command[list[list[Any]]]:
    """Name, whether paused, number of live workers, and numbers of jobs in the order of `job.STATES`."""
    return Command(
        "queues", _given(queues=names), lambda reply: [[row[0].decode(), row[1] == 1, *row[2:]] for row in reply]
    )


class LoadRow(NamedTuple):
    queue: str
    paused: bool
    workers: int
    waiting: int
    running: int
    scheduled: int
    blocked: int
    throttled: int
    oldest: int
    period: int
    came: int
    ended: int
    ran: int


def load(queues: Sequence[str] | None = None) -> Command[list[LoadRow]]:
    return Command(
        "load", _given(queues=queues), lambda reply: [LoadRow(row[0].decode(), row[1] == 1, *row[2:]) for row in reply]
    )


def queue_names() -> Command[list[str]]:
    return Command("queue_names", {}, _read_texts)


def pause(queue: str) -> Command[bool]:
    return Command("pause", {"queue": queue}, lambda reply: reply == 1)


def resume(queue: str) -> Command[bool]:
    return Command("resume", {"queue": queue}, lambda reply: reply == 1)


def weigh(queue: str, share: str, weight: int) -> Command[bool]:
    return Command("weigh", {"queue": queue, "share": share, "weight": weight}, lambda reply: reply == 1)


def forget(queue: str) -> Command[bool]:
    return Command("forget", {"queue": queue}, lambda reply: reply == 1)


class HeldRow(NamedTuple):
    executor: str
    id: str
    attempt: int
    queue: str
    task: str
    pid: int
    claimed: int


class WorkerRow(NamedTuple):
    name: str
    seen: int
    is_live: bool
    queues: list[str]
    about: str
    held: list[HeldRow]


def workers(*, since: int | None = None) -> Command[list[WorkerRow]]:
    return Command("workers", _given(since=since), lambda reply: [_read_worker(row) for row in reply])


def _read_worker(row: list[Any]) -> WorkerRow:
    name, seen, live, queues, about, held = row
    rows = [_read_hold(held[place : place + 7]) for place in range(0, len(held), 7)]
    return WorkerRow(name.decode(), seen, live == 1, queues.decode().split(), about.decode(), rows)


def _read_hold(part: list[Any]) -> HeldRow:
    executor, id, attempt, queue, task, pid, claimed = part
    return HeldRow(executor.decode(), id.decode(), attempt, queue.decode(), task.decode(), pid, claimed)


def deregister(worker: str) -> Command[None]:
    return Command("deregister", {"worker": worker}, lambda _: None)


class SettingRow(NamedTuple):
    name: str
    value: int
    default: int
    least: int
    most: int
    unit: str
    per_queue: bool
    source: str
    explanation: str


def config(queue: str | None = None) -> Command[list[SettingRow]]:
    return Command("config", _given(queue=queue), _read_settings)


def configure(
    queue: str | None = None, *, set: dict[str, int] | None = None, reset: Sequence[str] = ()
) -> Command[list[SettingRow]]:
    args = _given(queue=queue, set=set or None, reset=list(reset) or None)
    return Command("configure", args, _read_settings)


def _read_settings(reply: list[list[Any]]) -> list[SettingRow]:
    return [
        SettingRow(name.decode(), value, default, least, most, unit.decode(), own == 1, source.decode(), words.decode())
        for name, value, default, least, most, unit, own, source, words in reply
    ]


class LimitRow(NamedTuple):
    name: str
    slots: int
    per: int
    keys: int
    held: int
    parked: int


def limit(name: str, slots: int, *, per: int | None = None) -> Command[bool]:
    return Command("limit", _given(name=name, slots=slots, per=per), lambda reply: reply == 1)


def unlimit(name: str) -> Command[bool]:
    return Command("unlimit", {"name": name}, lambda reply: reply == 1)


def limits() -> Command[list[LimitRow]]:
    return Command("limits", {}, lambda reply: [LimitRow(row[0].decode(), *row[1:]) for row in reply])


def attach(id: str, fields: dict[str, str], *, remove: Sequence[str] = ()) -> Command[dict[str, str]]:
    args = _given(id=id, set=fields or None, remove=list(remove) or None)
    return Command("attach", args, _read_pairs)


def _read_pairs(reply: list[bytes]) -> dict[str, str]:
    return {reply[place].decode(): reply[place + 1].decode(errors="replace") for place in range(0, len(reply), 2)}


def note(id: str, words: str) -> Command[None]:
    return Command("note", {"id": id, "words": words, "token": new_id()}, lambda _: None)


class Waiting(NamedTuple):
    inbox_key: bytes
    states: list[str]


def wait(ids: Sequence[str], inbox: str) -> Command[Waiting]:
    """Be told when jobs end; '' is the state of a job that does not exist."""
    return Command("wait", {"ids": list(ids), "inbox": inbox}, lambda reply: Waiting(reply[0], _read_texts(reply[1:])))


class Event(NamedTuple):
    """What happened: its `type`, the ids of the `jobs` (or names of queues), and who did it."""

    id: str
    type: str
    jobs: list[str]
    who: str


def events(after: str | None = None, *, limit: int = 100) -> Command[list[Event]]:
    return Command("events", _given(after=after, limit=limit), lambda reply: [_read_event(*row) for row in reply])


def _read_event(id: bytes, type: bytes, jobs: bytes, who: bytes) -> Event:
    return Event(id.decode(), type.decode(), jobs.decode().split(), who.decode())


def _read_texts(reply: list[bytes]) -> list[str]:
    return [text.decode() for text in reply]


def _given(**args: Any) -> Fields:
    """Leave out what is None: a null in JSON is a true value in Lua."""
    return {name: value for name, value in args.items() if value is not None}


def schedule(name: str, batch: Fields, payload: bytes, **how: Any) -> Command[bool]:
    """Declare a schedule; `how`: the further arguments of `lua/schedule.lua`. Returns whether that changed anything."""
    return Command("schedule", _given(name=name, batch=batch, **how), lambda reply: reply == 1, (payload,))


def refill(name: str, expected: int, times: Sequence[int]) -> Command[bool]:
    return Command("refill", {"name": name, "expected": expected, "times": list(times)}, lambda reply: reply == 1)


def unschedule(name: str) -> Command[bool]:
    return Command("unschedule", {"name": name}, lambda reply: reply == 1)


def pause_schedule(name: str) -> Command[bool]:
    return Command("pause_schedule", {"name": name}, lambda reply: reply == 1)


def resume_schedule(name: str) -> Command[bool]:
    return Command("resume_schedule", {"name": name}, lambda reply: reply == 1)


def trigger(name: str) -> Command[str]:
    return Command("trigger", {"name": name, "token": new_id()}, bytes.decode)


def schedules(names: Sequence[str] | None = None, *, after: str | None = None) -> Command[list[Fields]]:
    """Those of these names, or a part of all: those whose names come after one."""
    return Command("schedules", _given(names=names, after=after), _read_schedules)


def _read_schedules(reply: list[list[Any]]) -> list[Fields]:
    return [fields for fields in map(_read_job, reply) if fields]
