"""Queues of redis-work-queue: their items, and workers that run these as jobs. Ids, data and prefixes are bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from holdfast.constants import MAX_BATCH
from holdfast.names import new_id
from holdfast.store.commands.command import Command, Fields, omit_none
from holdfast.store.deadline import Deadline
from holdfast.store.tokens import new_token

Place = Literal["processing", "cleaning", "queue", "items"]


class ClaimedItems(NamedTuple):
    """Ids and data of claimed items. `is_cut_short`: the call got no further than ids that nobody can be given."""

    is_cut_short: bool
    items: list[tuple[bytes, bytes]]


class BridgeReply(NamedTuple):
    """What a claim of items for jobs has done. `too_big` are items that cannot be jobs, with their sizes."""

    stored: int
    adopted: int
    left: int
    may_go_on: bool  # another call may claim more at once
    too_big: list[tuple[bytes, int]]


class SettleReply(NamedTuple):
    """The next cursor, and how many items were completed and renewed, and jobs cancelled."""

    cursor: str
    completed: int
    renewed: int
    cancelled: int


def work_queue_put(
    prefix: bytes, items: Sequence[tuple[bytes, bytes]], *, fresh: bool, timeout: float
) -> Command[list[bool]]:
    blobs = (prefix, *[part for item in items for part in item])
    args: Fields = {"fresh": fresh, "token": new_token()}
    deadline = Deadline(timeout, size=sum(map(len, blobs)))
    return Command("work_queue_put", args, lambda reply: [each == 1 for each in reply], blobs, deadline)


def work_queue_claim(prefix: bytes, session: str, *, limit: int, lease: int) -> Command[ClaimedItems]:
    args = {"session": session, "limit": limit, "lease": lease}
    return Command("work_queue_claim", args, _read_claimed, (prefix,))


def _read_claimed(reply: list[Any]) -> ClaimedItems:
    is_cut_short, *found = reply
    return ClaimedItems(is_cut_short == 1, list(zip(found[::2], found[1::2], strict=True)))


def work_queue_renew(prefix: bytes, leases: Sequence[tuple[str, bytes]], *, lease: int) -> Command[list[bool]]:
    """Renew leases, each given as session and id."""
    args = {"sessions": [session for session, _ in leases], "lease": lease}
    blobs = (prefix, *[id for _, id in leases])
    return Command("work_queue_renew", args, lambda reply: [each == 1 for each in reply], blobs)


def work_queue_complete(prefix: bytes, id: bytes, session: str, *, token: str) -> Command[bool]:
    args = {"session": session, "token": token}
    return Command("work_queue_complete", args, lambda reply: reply == 1, (prefix, id))


def work_queue_release(prefix: bytes, id: bytes, session: str, *, token: str) -> Command[bool]:
    args = {"session": session, "token": token}
    return Command("work_queue_release", args, lambda reply: reply == 1, (prefix, id))


def work_queue_lengths(prefix: bytes) -> Command[tuple[int, int]]:
    """Return the number of items that wait, and of those in progress."""
    return Command("work_queue_lengths", {}, lambda reply: (reply[0], reply[1]), (prefix,))


def work_queue_look(prefix: bytes, place: Place, cursor: str) -> Command[tuple[str, list[bytes]]]:
    args = {"place": place, "cursor": cursor}
    return Command("work_queue_look", args, lambda reply: (reply[0].decode(), reply[1:]), (prefix,))


def work_queue_requeue(prefix: bytes, place: Place, ids: Sequence[bytes]) -> Command[tuple[int, int]]:
    """Put back what was seen in a place twice. Return how many ids were handled, and how many put back."""
    blobs = (prefix, *ids[:MAX_BATCH])
    return Command("work_queue_requeue", {"place": place}, lambda reply: (reply[0], reply[1]), blobs)


def work_queue_bridge(
    prefix: bytes, queue: str, batch: Fields, *, slots: int, executors: Sequence[str] = (), lease: int
) -> Command[BridgeReply]:
    """Claim items, and store each as a job, while fewer than `slots` jobs of the queue wait or run on `executors`."""
    ids = " ".join(new_id() for _ in range(min(slots, MAX_BATCH))).encode()
    args = {"queue": queue, "batch": batch, "slots": slots, "executors": list(executors), "lease": lease}
    args["token"] = new_token()
    return Command("work_queue_bridge", args, _read_bridge, (prefix, ids))


def _read_bridge(reply: list[Any]) -> BridgeReply:
    stored, adopted, left, may_go_on, *big = reply
    return BridgeReply(stored, adopted, left, may_go_on == 1, list(zip(big[::2], big[1::2], strict=True)))


def work_queue_settle(
    prefix: bytes, queue: str, *, lease: int, jobs: Sequence[str] | None = None, cursor: str | None = None
) -> Command[SettleReply]:
    """Settle the items of these jobs, or of a part of all."""
    args = omit_none(queue=queue, lease=lease, jobs=None if jobs is None else list(jobs), cursor=cursor)
    return Command("work_queue_settle", args, lambda reply: SettleReply(reply[0].decode(), *reply[1:]), (prefix,))
