"""Storing jobs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from holdfast.commands.command import Command, Fields, given
from holdfast.names import new_id


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


_SHARED = NewJob.__struct_fields__[2:]  # all but id and payload


def shared(job: NewJob) -> tuple[Any, ...]:
    """What jobs of one batch have in common."""
    return msgspec.structs.astuple(job)[2:]


@lru_cache(1000)
def _batch(values: tuple[Any, ...]) -> Fields:
    """The same as it is sent. Not to be changed: most calls of a task share it."""
    return given(**dict(zip(_SHARED, values, strict=True)))


class Stored(NamedTuple):
    """The server's time; for each job whether it was stored, and its id: its own, or that of its unique key."""

    now: int
    created: list[bool]
    ids: list[str]


def enqueue(jobs: Sequence[NewJob], *, exists: str = "return", fresh: bool = False) -> Command[Stored]:
    """Store jobs, all or none. Jobs that stand together and differ only in id and payload share what is sent.

    `fresh`: all ids were made for this call, so the store looks for them all at once: all are there, or none.
    """
    batches = [_batch(shared(job)) for job in jobs] if len(jobs) == 1 else _batches(jobs)
    is_risky = fresh or exists != "return" or any(job.unkept for job in jobs)  # repeated, it could be done twice
    args = given(batches=batches, exists=exists, fresh=fresh or None, token=new_id() if is_risky else None)
    ids = [job.id for job in jobs]
    blobs = (" ".join(ids).encode(), *(job.payload for job in jobs))
    return Command("enqueue", args, lambda reply: _read_stored(reply, ids), blobs)


def _batches(jobs: Sequence[NewJob]) -> list[Fields]:
    batches = []
    for (values, _), group in groupby(jobs, key=lambda job: (shared(job), job.id if job.unique else "")):
        batch, count = _batch(values), len(list(group))
        batches.append(batch if count == 1 else {**batch, "count": count})
    return batches


def _read_stored(reply: list[Any], ids: list[str]) -> Stored:
    """Of each job the store says 1 or 0, or, if it has another id because of its unique key, `+id` or `=id`."""
    answers = reply[1:]
    if answers.count(1) == len(ids):
        return Stored(reply[0], [True] * len(ids), ids)
    stored = [answer == 1 or (answer != 0 and answer.startswith(b"+")) for answer in answers]
    names = [id if isinstance(answer, int) else answer[1:].decode() for id, answer in zip(ids, answers, strict=True)]
    return Stored(reply[0], stored, names)
