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


def queues(names: Sequence[str] | None = None) -> Command[list[Queue]]:
    return Command("queues", omit_none(queues=names), lambda reply: [_read_queue(*row) for row in reply])


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
    other_overdue: int  # schedules, limits and deadlines of the queue that are overdue
    period: int  # to which the next three refer
    arrived: int  # jobs that became claimable
    ended: int  # attempts
    run_time: int  # of these attempts together


class LoadReply(NamedTuple):
    overdue: int  # timers of the namespace
    overdue_queues: list[str]  # queues that have overdue schedules, limits or deadlines
    samples: list[LoadSample]


def load(queues: Sequence[str] | None = None) -> Command[LoadReply]:
    return Command("load", omit_none(queues=queues), _read_load)


def _read_load(reply: list[Any]) -> LoadReply:
    overdue, queues, *rows = reply
    return LoadReply(overdue, read_texts(queues), [LoadSample(row[0].decode(), row[1] == 1, *row[2:]) for row in rows])


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


def queue_names() -> Command[list[str]]:
    return Command("queue_names", {}, read_texts)


def pause(queue: str) -> Command[bool]:
    return Command("pause", {"queue": queue}, lambda reply: reply == 1)


def resume(queue: str) -> Command[bool]:
    return Command("resume", {"queue": queue}, lambda reply: reply == 1)


def forget_queue(queue: str) -> Command[bool]:
    return Command("forget_queue", {"queue": queue}, lambda reply: reply == 1)
