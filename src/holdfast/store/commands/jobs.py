"""Jobs: read records and logs, wait for jobs, and change them by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.store.commands.command import Command, Fields, omit_none, read_fields, read_pairs, read_texts
from holdfast.store.tokens import new_token


def get(ids: Sequence[str], *, brief: bool = False) -> Command[list[Fields | None]]:
    return Command(
        "get", omit_none(ids=list(ids), brief=brief or None), lambda reply: [read_fields(part) for part in reply]
    )


class LogReply(NamedTuple):
    """Blocks of an attempt's log by number, whether the attempt has ended, and the attempts that have a log."""

    attempt: int
    has_ended: bool
    attempts: list[int]
    blocks: dict[int, bytes]


def logs(id: str, attempt: int | None = None, *, block: int = 0) -> Command[LogReply]:
    return Command("logs", omit_none(id=id, attempt=attempt, block=block), _read_log)


def _read_log(reply: list[Any]) -> LogReply:
    attempt, ended, attempts, parts = reply
    return LogReply(attempt, ended == 1, attempts, dict(zip(parts[::2], parts[1::2], strict=True)))


class WaiterReply(NamedTuple):
    """The list on which the ids of ended jobs arrive, and the present state of each job: '' if it does not exist."""

    inbox_key: bytes
    states: list[str]


def add_waiter(ids: Sequence[str], inbox: str) -> Command[WaiterReply]:
    """Register an inbox with jobs, to be notified when they end."""
    args = {"ids": list(ids), "inbox": inbox}
    return Command("add_waiter", args, lambda reply: WaiterReply(reply[0], read_texts(reply[1:])))


def cancel(
    ids: Sequence[str], *, reason: str = "", dependents: bool = False, unless_awaited: bool = False
) -> Command[list[str]]:
    args = omit_none(ids=list(ids), reason=reason, token=new_token())
    args |= omit_none(dependents=dependents or None, unless_awaited=unless_awaited or None)
    return Command("cancel", args, read_texts)


def depend(
    id: str, *, add: Sequence[str] = (), remove: Sequence[str] = (), on_failed: str | None = None
) -> Command[tuple[str, int]]:
    """Add or remove dependencies of a job. Return its state, and how many it still waits for."""
    args = omit_none(id=id, add=list(add) or None, remove=list(remove) or None, on_failed=on_failed, token=new_token())
    return Command("depend", args, lambda reply: (reply[0].decode(), reply[1]))


def move(
    ids: Sequence[str], *, queue: str | None = None, priority: int | None = None, tags: Sequence[str] | None = None
) -> Command[list[str]]:
    args = omit_none(ids=list(ids), queue=queue, priority=priority, tags=tags, token=new_token())
    return Command("move", args, read_texts)


def release(ids: Sequence[str], *, delay: int | None = None, reason: str = "") -> Command[list[str]]:
    return Command("release", omit_none(ids=list(ids), delay=delay, reason=reason, token=new_token()), read_texts)


def fail(ids: Sequence[str], *, group: str | None = None, reason: str = "") -> Command[list[str]]:
    return Command("fail", omit_none(ids=list(ids), group=group, reason=reason, token=new_token()), read_texts)


def retry(
    ids: Sequence[str], *, force: bool = False, queue: str | None = None, from_start: bool = False
) -> Command[list[str]]:
    args = omit_none(ids=list(ids), force=force or None, from_start=from_start or None, queue=queue, token=new_token())
    return Command("retry", args, read_texts)


class ForkReply(NamedTuple):
    """Whether the job was stored by this call, and the job, without payload and history."""

    created: bool
    job: Fields


def fork(
    id: str,
    new: str,
    *,
    from_start: bool = False,
    set: Fields | None = None,
    run: str | None = None,
    adder: str | None = None,
) -> Command[ForkReply]:
    """Store a job `new` that starts from what another one has saved. `set` are options as of a batch of `enqueue`.

    If `set` changes the run options, `run` are those of the job that it was made from.
    """
    args = omit_none(id=id, new=new, from_start=from_start or None, set=set or None, run=run, adder=adder)
    return Command("fork", {**args, "token": new_token()}, _read_fork)


def _read_fork(reply: list[Any]) -> ForkReply:
    return ForkReply(reply[0] == 1, read_fields(reply[1]) or {})


def delete(ids: Sequence[str]) -> Command[list[str]]:
    return Command("delete", {"ids": list(ids)}, read_texts)


def attach(id: str, fields: dict[str, str], *, remove: Sequence[str] = ()) -> Command[dict[str, str]]:
    args = omit_none(id=id, set=fields or None, remove=list(remove) or None)
    return Command("attach", args, read_pairs)


def note(id: str, text: str) -> Command[None]:
    return Command("note", {"id": id, "text": text, "token": new_token()}, lambda _: None)
