"""Queues, workers, settings, limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.store.commands.command import Command, given, read_texts


def queues(names: Sequence[str] | None = None) -> Command[list[list[Any]]]:
    """Name, whether paused, number of live workers, and numbers of jobs in the order of `job.STATES`."""
    return Command(
        "queues", given(queues=names), lambda reply: [[row[0].decode(), row[1] == 1, *row[2:]] for row in reply]
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
    due: int  # of the scheduled ones
    others: int  # schedules, limits and deadlines of the queue that are overdue
    period: int
    came: int
    ended: int
    ran: int


class Loaded(NamedTuple):
    overdue: int  # timers of the namespace
    about: list[str]  # queues that overdue schedules, limits and deadlines are about
    rows: list[LoadRow]


def load(queues: Sequence[str] | None = None) -> Command[Loaded]:
    return Command("load", given(queues=queues), _read_load)


def _read_load(reply: list[Any]) -> Loaded:
    overdue, about, *rows = reply
    return Loaded(overdue, read_texts(about), [LoadRow(row[0].decode(), row[1] == 1, *row[2:]) for row in rows])


class MovedOn(NamedTuple):
    """What one step of moving time on has done and left."""

    before: int  # timers that had passed
    after: int  # and have still
    stuck: int  # of these, those of jobs that cannot be read
    surplus: bool  # whether there are more ended jobs to remove
    wait: int | None  # milliseconds until the next timer
    refills: list[str]  # schedules whose times run out


def upkeep(*, refills: int | None = None) -> Command[MovedOn]:
    """Move time on, a step."""
    return Command("upkeep", given(refills=refills), _read_upkeep)


def _read_upkeep(reply: list[Any]) -> MovedOn:
    before, after, stuck, surplus, wait, names = reply
    return MovedOn(before, after, stuck, surplus == 1, None if wait < 0 else wait, read_texts(names))


def queue_names() -> Command[list[str]]:
    return Command("queue_names", {}, read_texts)


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
    return Command("workers", given(since=since), lambda reply: [_read_worker(row) for row in reply])


def _read_worker(row: list[Any]) -> WorkerRow:
    name, seen, live, queues, about, held = row
    rows = [_read_hold(held[place : place + 7]) for place in range(0, len(held), 7)]
    return WorkerRow(name.decode(), seen, live == 1, queues.decode().split(), about.decode(), rows)


def _read_hold(part: list[Any]) -> HeldRow:
    executor, id, attempt, queue, task, pid, claimed = part
    return HeldRow(executor.decode(), id.decode(), attempt, queue.decode(), task.decode(), pid, claimed)


def deregister(worker: str) -> Command[None]:
    return Command("deregister", {"worker": worker}, lambda _: None)


def ask(word: str, *, inbox: str, worker: str | None = None, id: str | None = None) -> Command[tuple[str, bytes]]:
    """Have a worker do something. Returns its name, and the key of the list on which it answers."""
    args = given(word=word, inbox=inbox, worker=worker, id=id)
    return Command("ask", args, lambda reply: (reply[0].decode(), reply[1]))


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
    return Command("config", given(queue=queue), _read_settings)


def configure(
    queue: str | None = None, *, set: dict[str, int] | None = None, reset: Sequence[str] = ()
) -> Command[list[SettingRow]]:
    args = given(queue=queue, set=set or None, reset=list(reset) or None)
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
    return Command("limit", given(name=name, slots=slots, per=per), lambda reply: reply == 1)


def unlimit(name: str) -> Command[bool]:
    return Command("unlimit", {"name": name}, lambda reply: reply == 1)


def limits() -> Command[list[LimitRow]]:
    return Command("limits", {}, lambda reply: [LimitRow(row[0].decode(), *row[1:]) for row in reply])
