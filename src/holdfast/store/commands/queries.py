"""Queries: list, count and act on the jobs that match a filter. `lua/filters.lua` documents filters.

Cursors are text that only the store interprets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.constants import DEFAULT_PAGE
from holdfast.store.commands.command import Command, Fields, omit_none, read_fields


class ListReply(NamedTuple):
    jobs: list[Fields]
    cursor: str | None
    looked_at: int = 0


class RowsReply(NamedTuple):
    rows: list[list[str | int]]
    cursor: str | None
    looked_at: int


class CountReply(NamedTuple):
    found: int
    cursor: str | None
    looked_at: int


def list_jobs(
    *, limit: int = DEFAULT_PAGE, newest: bool = False, whole: bool = False, cursor: str | None = None, **filter: Any
) -> Command[ListReply]:
    """List matching jobs. A page may be short: only its cursor says whether it is the last one."""
    args = omit_none(limit=limit, newest=newest or None, whole=whole or None, cursor=cursor)
    return Command("list", args | _filter_argument(filter), read_page)


def read_page(reply: list[Any]) -> ListReply:
    jobs = [job for job in map(read_fields, reply[2:]) if job]
    return ListReply(jobs, reply[0].decode() or None, reply[1])


class SampleReply(NamedTuple):
    now: int
    total: int  # jobs in that state
    jobs: list[Fields]


def sample(
    queue: str, state: str, *, limit: int, size: int | None = None, skip: int | None = None
) -> Command[SampleReply]:
    """Return some jobs of a queue in a state, chosen at random; or a part of a sample of `size`, after `skip` jobs."""
    args = omit_none(queue=queue, state=state, limit=limit, size=size, skip=skip)
    return Command("sample", args, _read_sample)


def _read_sample(reply: list[Any]) -> SampleReply:
    return SampleReply(reply[0], reply[1], [job for job in map(read_fields, reply[2:]) if job])


def list_rows(
    fields: Sequence[str],
    *,
    limit: int = DEFAULT_PAGE,
    newest: bool = False,
    cursor: str | None = None,
    **filter: Any,
) -> Command[RowsReply]:
    """List some fields of matching jobs, in the order of `fields`."""
    args = omit_none(fields=list(fields), limit=limit, newest=newest or None, cursor=cursor)
    return Command("list", args | _filter_argument(filter), _read_rows)


def _read_rows(reply: list[Any]) -> RowsReply:
    rows = [[each.decode(errors="replace") if isinstance(each, bytes) else each for each in row] for row in reply[2:]]
    return RowsReply(rows, reply[0].decode() or None, reply[1])


def count_step(*, cursor: str | None = None, **filter: Any) -> Command[CountReply]:
    """Count matching jobs, a part in each call: the counts add up."""
    return Command("count", omit_none(cursor=cursor) | _filter_argument(filter), _read_count)


def _read_count(reply: list[Any]) -> CountReply:
    return CountReply(reply[1], reply[0].decode() or None, reply[2])


def count(**filter: Any) -> Command[int]:
    """Count matching jobs in one call, which is possible if they are few, or if an index has their number."""
    return Command("count", _filter_argument(filter), _read_whole_count)


def _read_whole_count(reply: list[Any]) -> int:
    found = _read_count(reply)
    if found.cursor:
        raise ValueError("too many jobs for one call: use count_step")
    return found.found


def indexed_count(**filter: Any) -> Command[int | None]:
    """Count matching jobs if an index has their number, or else return None."""

    def read(reply: list[Any]) -> int | None:
        found = _read_count(reply)
        return None if found.cursor or found.found < 0 else found.found

    return Command("count", {"indexed": True} | _filter_argument(filter), read)


def _filter_argument(filter: Mapping[str, Any]) -> Fields:
    """Leave out filters that are None, and an empty filter."""
    given = omit_none(**filter)
    return {"filter": given} if given else {}


class OperationReply(NamedTuple):
    """An operation as the store describes it; the answers of the action are counted in `answers`."""

    id: str
    action: str
    state: str
    who: str
    filter: str  # JSON, as are the arguments
    arguments: str
    started: int
    updated: int
    steps: int
    looked_at: int
    total: int  # jobs to look at, -1: unknown
    answers: dict[str, int]


def start_operation(id: str, action: str, *, arguments: Fields | None = None, **filter: Any) -> Command[OperationReply]:
    args = omit_none(id=id, action=action, **{"with": arguments or None})
    return Command("start_operation", args | _filter_argument(filter), _read_operation)


def continue_operation(id: str, step: int, *, limit: int | None = None) -> Command[OperationReply]:
    """Do one step, unless another one was done since."""
    return Command("continue_operation", omit_none(id=id, step=step, limit=limit), _read_operation)


def stop_operation(id: str) -> Command[OperationReply]:
    return Command("stop_operation", {"id": id}, _read_operation)


def resume_operation(id: str) -> Command[OperationReply]:
    return Command("resume_operation", {"id": id}, _read_operation)


def operations(ids: Sequence[str] | None = None) -> Command[list[OperationReply]]:
    """Return operations, the latest first."""
    args = omit_none(ids=None if ids is None else list(ids))
    return Command("operations", args, lambda reply: [_read_operation([row]) for row in reply])


def _read_operation(reply: list[list[bytes]]) -> OperationReply:
    (row,) = reply
    texts = [part.decode(errors="replace") for part in row]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    answers = {name[2:]: int(value) for name, value in fields.items() if name.startswith("n:")}
    return OperationReply(
        id=fields["id"],
        action=fields["action"],
        state=fields["state"],
        who=fields["who"],
        filter=fields["filter"],
        arguments=fields["with"],
        started=int(fields["started"]),
        updated=int(fields["updated"]),
        steps=int(fields["steps"]),
        looked_at=int(fields["looked"]),
        total=int(fields["total"]),
        answers=answers,
    )
