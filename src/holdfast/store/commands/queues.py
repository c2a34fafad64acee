"""Queues: their jobs and their load; and the upkeep of a namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.job.job import FINAL, STATES
from holdfast.store.commands.command import Command, omit_none, read_texts


class Queue(NamedTuple):
    """A queue: the number of live workers that serve it, and the number of jobs in each state."""

    name: str
    paused: bool
    workers: int
    counts: dict[str, int]

    @property
    def pending(self) -> int:
        return sum(count for state, count in self.counts.items() if state not in FINAL)


class QueuePage(NamedTuple):
    cursor: str  # of the next page; '' after the last
    queues: list[Queue]


def queues(names: Sequence[str] | None = None, *, cursor: str | None = None) -> Command[QueuePage]:
    return Command("queues", omit_none(queues=names, cursor=cursor), _read_queues)


def _read_queues(reply: list[Any]) -> QueuePage:
    return QueuePage(reply[0].decode(), [_read_queue(*row) for row in reply[1:]])


def _read_queue(name: bytes, paused: int, workers: int, *counts: int) -> Queue:
    return Queue(name.decode(), paused == 1, workers, dict(zip(STATES, counts, strict=True)))


class LoadSample(NamedTuple):
    """The raw numbers from which the client computes a queue's `Load`. Times are in milliseconds."""

    queue: str
    paused: bool
    workers: int
    waiting: int
    running: int
    scheduled: int
    blocked: int
    throttled: int
    oldest: int  # since the oldest waiting job became claimable; -1: none waits
    due: int  # scheduled jobs that are overdue
    unfinished: int  # kinds of work that earlier calls left, and that may affect the queue
    period: int  # to which the next three refer
    arrived: int  # jobs that became claimable
    ended: int  # attempts
    run_time: int  # of these attempts together


class LoadPage(NamedTuple):
    cursor: str  # of the next page; '' after the last
    samples: list[LoadSample]


def load(queues: Sequence[str] | None = None, *, cursor: str | None = None) -> Command[LoadPage]:
    return Command("load", omit_none(queues=queues, cursor=cursor), _read_load)


def _read_load(reply: list[Any]) -> LoadPage:
    cursor, *rows = reply
    return LoadPage(cursor.decode(), [LoadSample(row[0].decode(), row[1] == 1, *row[2:]) for row in rows])


class OverdueReply(NamedTuple):
    timers: int  # of the namespace
    by_queue: dict[str, int]  # overdue schedules, limits and deadlines that affect a queue


def overdue() -> Command[OverdueReply]:
    return Command(
        "overdue",
        {},
        lambda reply: OverdueReply(reply[0], dict(zip(read_texts(reply[1::2]), reply[2::2], strict=True))),
    )


class UpkeepReply(NamedTuple):
    """The result of one bounded step of upkeep."""

    before: int  # overdue timers before the step
    after: int  # overdue timers after it
    stuck: int  # overdue timers of jobs that cannot be read
    surplus: bool  # whether more ended jobs are due for deletion
    wait: int | None  # milliseconds until the next timer
    refills: list[str]  # schedules that need more firing times


def upkeep(*, refills: int | None = None) -> Command[UpkeepReply]:
    """Process overdue timers, a bounded number in each call."""
    return Command("upkeep", omit_none(refills=refills), _read_upkeep)


def _read_upkeep(reply: list[Any]) -> UpkeepReply:
    before, after, stuck, surplus, wait, names = reply
    return UpkeepReply(before, after, stuck, surplus == 1, None if wait < 0 else wait, read_texts(names))


class NamePage(NamedTuple):
    cursor: str  # of the next page; '' after the last
    names: list[str]


def queue_names(*, cursor: str | None = None) -> Command[NamePage]:
    return Command(
        "queue_names", omit_none(cursor=cursor), lambda reply: NamePage(reply[0].decode(), read_texts(reply[1:]))
    )


def pause(queue: str) -> Command[bool]:
    return Command("pause", {"queue": queue}, lambda reply: reply == 1)


def resume(queue: str) -> Command[bool]:
    return Command("resume", {"queue": queue}, lambda reply: reply == 1)


def forget_queue(queue: str) -> Command[bool]:
    return Command("forget_queue", {"queue": queue}, lambda reply: reply == 1)
