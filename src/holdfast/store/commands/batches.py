"""Batches: named groups of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.constants import DEFAULT_PAGE
from holdfast.store.commands.command import Command, Fields, omit_none, read_record
from holdfast.store.tokens import new_token


class Callback(NamedTuple):
    """A job that is enqueued at the end of a batch: `on` is done, succeeded or failed."""

    on: str
    id: str
    job: Fields
    payload: bytes


def open_batch(name: str, *, keep: int | None = None, callbacks: Sequence[Callback] = ()) -> Command[bool]:
    """Create a batch, or change one that is open. Return whether it is new."""
    args = omit_none(name=name, keep=keep)
    if callbacks:
        args["callbacks"] = [{"on": each.on, "id": each.id, "job": each.job} for each in callbacks]
    return Command("open_batch", args, lambda reply: reply == 1, tuple(each.payload for each in callbacks))


def close_batch(name: str) -> Command[bool]:
    return Command("close_batch", {"name": name, "token": new_token()}, lambda reply: reply == 1)


class CancelReply(NamedTuple):
    """How many jobs got which answer, and where to continue; None: nowhere."""

    answers: dict[str, int]
    cursor: str | None


def cancel_batch(
    name: str, *, reason: str = "", cursor: str | None = None, limit: int = DEFAULT_PAGE
) -> Command[CancelReply]:
    """Close a batch, and cancel some of its jobs that have not ended."""
    args = omit_none(name=name, reason=reason, cursor=cursor, limit=limit, token=new_token())
    return Command("cancel_batch", args, _read_cancelled)


def _read_cancelled(reply: list[Any]) -> CancelReply:
    cursor, counts = reply[0].decode(), reply[1]
    answers = {counts[place].decode(): counts[place + 1] for place in range(0, len(counts), 2)}
    return CancelReply(answers, None if cursor == "0" else cursor)


def delete_batch(name: str) -> Command[None]:
    return Command("delete_batch", {"name": name}, lambda _: None)


def get_batches(names: Sequence[str]) -> Command[list[Fields | None]]:
    return Command("get_batches", {"names": list(names)}, lambda reply: [_read_batch(part) for part in reply])


class BatchesPage(NamedTuple):
    batches: list[Fields]
    cursor: list[str] | None


def list_batches(
    *, states: Sequence[str] | None = None, limit: int = DEFAULT_PAGE, cursor: Sequence[str] | None = None
) -> Command[BatchesPage]:
    """Return a page of batches, newest first. With `states` it may be short, or empty."""
    return Command("list_batches", omit_none(states=states, limit=limit, cursor=cursor), _read_batches)


def _read_batches(reply: list[Any]) -> BatchesPage:
    found = [fields for fields in map(_read_batch, reply[1:]) if fields]
    return BatchesPage(found, [part.decode() for part in reply[0]] or None)


def _read_batch(part: list[Any] | None) -> Fields | None:
    fields = read_record(part) if part else None
    if fields:
        fields["callbacks"] = [tuple(text.decode(errors="replace") for text in row) for row in fields["callbacks"]]
    return fields


class BatchWait(NamedTuple):
    """The list that gets a message when the batch is done, and the state of the batch."""

    inbox_key: bytes
    state: str


def wait_for_batch(name: str, inbox: str) -> Command[BatchWait]:
    args = {"name": name, "inbox": inbox}
    return Command("wait_for_batch", args, lambda reply: BatchWait(reply[0], reply[1].decode()))
