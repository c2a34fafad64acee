"""Storing jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from holdfast.names import new_id
from holdfast.store.commands.command import Command, Fields


class NewJob(Protocol):
    """A job to be stored: its id and payload, and all else as it is sent, which most calls of a task share."""

    @property
    def id(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def batch(self) -> Fields: ...


class EnqueueReply(NamedTuple):
    """The server's time; for each job whether it was stored, and its id: its own, or that of its unique key."""

    now: int
    created: list[bool]
    ids: list[str]


def enqueue(jobs: Sequence[NewJob], *, on_exists: str = "return", fresh: bool = False) -> Command[EnqueueReply]:
    """Store jobs, all or none. Jobs that stand together and differ only in id and payload share what is sent.

    `fresh`: all ids were made for this call, so the store looks for them all at once: all are there, or none.
    """
    ids = [job.id for job in jobs]
    batches = _batches([job.batch for job in jobs])
    args: Fields = {"batches": batches, "on_exists": on_exists}
    if fresh:
        args["fresh"] = True
    if fresh or on_exists != "return" or [batch for batch in batches if "keep" in batch]:
        args["token"] = new_id()  # repeated, it could be done twice
    blobs = (" ".join(ids).encode(), *[job.payload for job in jobs])
    return Command("enqueue", args, lambda reply: _read_stored(reply, ids), blobs)


def _batches(told: list[Fields]) -> list[Fields]:
    """What jobs share, with their number. One that has a unique key shares nothing."""
    if len(told) == 1:
        return told
    batches: list[Fields] = []
    for batch, group in groupby(told):
        count = len(list(group))
        if count == 1 or "unique" in batch:
            batches += [batch] * count
        else:
            batches.append({**batch, "count": count})
    return batches


def _read_stored(reply: list[Any], ids: list[str]) -> EnqueueReply:
    """Of each job the store says 1 or 0, or, if it has another id because of its unique key, `+id` or `=id`."""
    answers = reply[1:]
    if answers.count(1) == len(ids):
        return EnqueueReply(reply[0], [True] * len(ids), ids)
    stored = [answer == 1 or (answer != 0 and answer.startswith(b"+")) for answer in answers]
    names = [id if isinstance(answer, int) else answer[1:].decode() for id, answer in zip(ids, answers, strict=True)]
    return EnqueueReply(reply[0], stored, names)
