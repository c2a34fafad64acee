"""What is stored after a case, as far as the case says.

jobs     per id, what `get` returns; null: there is no such job
counts   per queue, how many jobs are in which state; of all queues that have jobs
keys     per key, without the prefix of the namespace, its type and content; null: there is no such key
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.conformance.connection import Refusal
from holdfast.conformance.session import Session
from holdfast.conformance.values import Difference, encode, fill_in, find_difference, readable

STATES = ("scheduled", "waiting", "blocked", "throttled", "running", "succeeded", "failed", "cancelled")


def find_state_difference(after: Mapping[str, Any], session: Session) -> Difference | None:
    """Return the first difference between what is stored and what a case expects."""
    for part, read in (("jobs", read_jobs), ("counts", read_counts), ("keys", read_keys)):
        if part not in after:
            continue
        expected = fill_in(after[part], session.variables)
        actual = read(session, list(expected))
        if isinstance(actual, Refusal) or (part == "counts" and actual.keys() != expected.keys()):
            return Difference(part, expected, actual)
        if found := find_difference(expected, actual, session.variables, part):
            return found
    return None


def read_jobs(session: Session, ids: list[str]) -> Any:
    """Return jobs by id, as `get` does; None if there is no such job."""
    found = session.call("get", {"ids": ids}) if ids else []
    return found if isinstance(found, Refusal) else dict(zip(ids, found, strict=True))


def read_counts(session: Session, _: list[str]) -> Any:
    """Return the numbers of jobs by queue and state, without zeros."""
    counts: dict[str, dict[str, int]] = {}
    cursor: Any = None
    while cursor != "":
        page = session.call("queues", {} if cursor is None else {"cursor": cursor})
        if isinstance(page, Refusal):
            return page
        for queue, _paused, _workers, *numbers in page[1:]:
            found = {state: number for state, number in zip(STATES, numbers, strict=False) if number}
            counts.update({queue.decode(): found} if found else {})
        cursor = readable(page[0])
    return counts


def read_keys(session: Session, names: list[str]) -> dict[str, Any]:
    """Return the types and contents of keys; None for a key that does not exist."""
    return {name: _read_key(session, encode(session.prefix + name)) for name in names}


def _read_key(session: Session, key: bytes) -> Any:
    kind = session.send("TYPE", key).decode()
    return {kind: _READERS[kind](session.send, key)} if kind in _READERS else None


def _read_hash(send: Callable[..., Any], key: bytes) -> dict[str, Any]:
    content = send("HGETALL", key)
    return dict(zip(map(readable, content[::2]), content[1::2], strict=True))


def _read_sorted_set(send: Callable[..., Any], key: bytes) -> list[Any]:
    """Return member, score, member, score ... in order."""
    content = send("ZRANGE", key, "0", "-1", "WITHSCORES")
    return [each if index % 2 == 0 else _score(each) for index, each in enumerate(content)]


def _score(text: bytes) -> float:
    score = float(text)
    return int(score) if score.is_integer() else score


_READERS: Mapping[str, Callable[[Callable[..., Any], bytes], Any]] = {
    "string": lambda send, key: send("GET", key),
    "hash": _read_hash,
    "list": lambda send, key: send("LRANGE", key, "0", "-1"),
    "set": lambda send, key: sorted(send("SMEMBERS", key)),
    "zset": _read_sorted_set,
}
