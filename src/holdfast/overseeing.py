"""Queues, workers and settings. Verbs of the client; see `verbs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast import commands
from holdfast.durations import Duration
from holdfast.fleet import Node, Worker, by_node, read_workers
from holdfast.job import FINAL, STATES
from holdfast.names import new_id
from holdfast.setting import Setting, read_changes, read_settings
from holdfast.verbs import Steps, Stores


class Queue(NamedTuple):
    """A queue: how many live workers serve it, and how many jobs it has in each state."""

    name: str
    paused: bool
    listeners: int
    counts: dict[str, int]

    @property
    def pending(self) -> int:
        return sum(count for state, count in self.counts.items() if state not in FINAL)


def queues(_: Stores) -> Steps[list[Queue]]:
    """Return all queues with their numbers of jobs."""
    return [_read_queue(row) for row in (yield commands.queues())]


def _read_queue(row: Sequence[Any]) -> Queue:
    name, paused, listeners, *counts = row
    return Queue(name, paused, listeners, dict(zip(STATES, counts, strict=True)))


def pause(_: Stores, queue: str) -> Steps[bool]:
    """Start no more jobs of a queue; those that run go on. Returns whether that changed anything."""
    changed: bool = yield commands.pause(queue)
    return changed


def resume(_: Stores, queue: str) -> Steps[bool]:
    """Start jobs of a paused queue again. Returns whether that changed anything."""
    changed: bool = yield commands.resume(queue)
    return changed


def forget(_: Stores, queue: str) -> Steps[bool]:
    """Forget a queue that has no jobs: its name, its settings, that it is paused. Returns whether it was known.

    Raises:
        WrongState: it has jobs.
    """
    was_known: bool = yield commands.forget(queue)
    return was_known


def workers(_: Stores) -> Steps[list[Worker]]:
    """Return the workers that gave a sign of life, the latest first."""
    return read_workers((yield commands.workers()))


def nodes(_: Stores) -> Steps[list[Node]]:
    """Return the hosts of all workers."""
    return by_node(read_workers((yield commands.workers())))


def deregister(_: Stores, worker: str) -> Steps[None]:
    """Forget a worker that is gone, before its time.

    Raises:
        JobNotFound: there is no such worker.
        WrongState: it is live, or holds jobs.
    """
    yield commands.deregister(worker)


def drain(_: Stores, worker: str) -> Steps[None]:
    """Have a worker claim no more, and end when its jobs have, however long they take.

    Raises:
        JobNotFound: there is no such worker.
    """
    yield commands.ask("drain", worker=worker, inbox=new_id())


def config(_: Stores, queue: str | None = None) -> Steps[list[Setting]]:
    """Return all settings that can be changed while everything runs, as they hold for a queue, or for all."""
    return read_settings((yield commands.config(queue)))


def configure(
    _: Stores, changes: Mapping[str, Duration | int | None], *, queue: str | None = None
) -> Steps[list[Setting]]:
    """Change settings, of all queues or of one; None stands for the default. They hold from the next call on.

    jobs.configure({"lease": "1m", "keep_failed": "90d"}, queue="video")

    Raises:
        Invalid: there is no such setting, or the value is out of its bounds. Nothing was changed.
    """
    wanted = read_changes(changes, (yield commands.config(queue)))
    return read_settings((yield commands.configure(queue, set=wanted.set, reset=wanted.reset)))
