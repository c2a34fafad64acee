"""Looking at jobs: their records, logs, events; and being told when they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.commands.command import Command, Fields, given, read_fields, read_texts


def get(ids: Sequence[str], *, brief: bool = False) -> Command[list[Fields | None]]:
    return Command(
        "get", given(ids=list(ids), brief=brief or None), lambda reply: [read_fields(part) for part in reply]
    )


class Page(NamedTuple):
    jobs: list[Fields]
    cursor: list[str] | None


def list_jobs(
    *,
    queues: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    limit: int = 100,
    newest: bool = False,
    cursor: Sequence[str] | None = None,
) -> Command[Page]:
    args = given(queues=queues, states=states, limit=limit, newest=newest or None, cursor=cursor)
    return Command("list", args, _read_page)


def _read_page(reply: list[Any]) -> Page:
    jobs = [job for job in map(read_fields, reply[1:]) if job]
    return Page(jobs, [part.decode() for part in reply[0]] or None)


def count(*, queues: Sequence[str] | None = None, states: Sequence[str] | None = None) -> Command[int]:
    return Command("count", given(queues=queues, states=states), int)


class Log(NamedTuple):
    """Blocks of an attempt's log, by number; whether it has ended; and the attempts that have one."""

    attempt: int
    has_ended: bool
    attempts: list[int]
    blocks: dict[int, bytes]


def logs(id: str, attempt: int | None = None, *, block: int = 0) -> Command[Log]:
    return Command("logs", given(id=id, attempt=attempt, block=block), _read_log)


def _read_log(reply: list[Any]) -> Log:
    attempt, ended, attempts, parts = reply
    return Log(attempt, ended == 1, attempts, dict(zip(parts[::2], parts[1::2], strict=True)))


class Waiting(NamedTuple):
    inbox_key: bytes
    states: list[str]


def wait(ids: Sequence[str], inbox: str) -> Command[Waiting]:
    """Be told when jobs end; '' is the state of a job that does not exist."""
    return Command("wait", {"ids": list(ids), "inbox": inbox}, lambda reply: Waiting(reply[0], read_texts(reply[1:])))


class Event(NamedTuple):
    """What happened: its `type`, the ids of the `jobs` (or names of queues), and who did it."""

    id: str
    type: str
    jobs: list[str]
    who: str


def events(after: str | None = None, *, limit: int = 100) -> Command[list[Event]]:
    return Command("events", given(after=after, limit=limit), lambda reply: [_read_event(*row) for row in reply])


def _read_event(id: bytes, type: bytes, jobs: bytes, who: bytes) -> Event:
    return Event(id.decode(), type.decode(), jobs.decode().split(), who.decode())
