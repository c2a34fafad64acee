"""Enqueue jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from holdfast.store.commands.command import Command, Fields
from holdfast.store.tokens import is_repeatable, new_token


class NewJob(Protocol):
    """A job to enqueue. Calls of a task that differ only in id and payload share the `batch`."""

    @property
    def id(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def batch(self) -> Fields: ...


class EnqueueReply(NamedTuple):
    """The server's time, whether each job was created, and its id, which may be that of its unique key."""

    now: int
    created: list[bool]
    ids: list[str]


def enqueue(
    jobs: Sequence[NewJob],
    *,
    on_exists: str = "return",
    fresh: bool = False,
    adder: str | None = None,
    acknowledge: bool = False,
) -> Command[EnqueueReply]:
    """Enqueue all jobs or none. Adjacent jobs with an equal batch are sent as one batch.

    `fresh` means that all ids were generated for this call: either all of them exist or none, so one check suffices.
    `adder` is the running job that enqueues them, if they belong to a batch: to a closed one, its jobs can still add.
    `acknowledge` means that something is written in any case, which replicas can acknowledge.
    """
    ids = [job.id for job in jobs]
    batches = _batches([job.batch for job in jobs])
    args: Fields = {"batches": batches, "on_exists": on_exists}
    if adder is not None:
        args["adder"] = adder
    if fresh:
        args["fresh"] = True
    if acknowledge:
        args["acknowledge"] = True
    if (
        acknowledge
        or fresh
        or on_exists != "return"
        or is_repeatable()
        or [batch for batch in batches if "keep" in batch]
    ):
        args["token"] = new_token()  # without it, a repeated call could take effect twice
    blobs = (" ".join(ids).encode(), *[job.payload for job in jobs])
    return Command("enqueue", args, lambda reply: _read_reply(reply, ids), blobs)


def check_enqueue(enqueue: Command[EnqueueReply]) -> Command[None]:
    """Check whether the store would refuse an `enqueue` now; the payloads are not sent."""
    args = {name: value for name, value in enqueue.args.items() if name != "token"}
    ids, *payloads = enqueue.blobs
    return Command("check_enqueue", args, lambda _: None, (ids, *[b""] * len(payloads)))


def _batches(jobs: list[Fields]) -> list[Fields]:
    """Merge adjacent equal batches and count their jobs. A job with a unique key stays alone."""
    if len(jobs) == 1:
        return jobs
    batches: list[Fields] = []
    for batch, group in groupby(jobs):
        count = len(list(group))
        if count == 1 or "unique" in batch:
            batches += [batch] * count
        else:
            batches.append({**batch, "count": count})
    return batches


def _read_reply(reply: list[Any], ids: list[str]) -> EnqueueReply:
    """Read 1 (created) or 0 (exists) per job; `+id` or `=id` if its unique key gives it another id."""
    answers = reply[1:]
    if answers.count(1) == len(ids):
        return EnqueueReply(reply[0], [True] * len(ids), ids)
    stored = [answer == 1 or (answer != 0 and answer.startswith(b"+")) for answer in answers]
    names = [id if isinstance(answer, int) else answer[1:].decode() for id, answer in zip(ids, answers, strict=True)]
    return EnqueueReply(reply[0], stored, names)
