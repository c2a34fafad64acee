"""What is true of the keys of a namespace at any time, checked on the keys alone.

    snapshot = check(client, namespace)

Every job is in the one index of its state and in no other; it has a timer if it is scheduled or runs, and else none;
who runs it holds it, and nobody else; and there is no key that belongs to nothing. The layout is that of `keys.lua` and
`record.lua`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import redis

STATE_OF = {
    "s": "scheduled",
    "w": "waiting",
    "b": "blocked",
    "t": "throttled",
    "r": "running",
    "S": "succeeded",
    "F": "failed",
    "C": "cancelled",
}
FINAL = {"succeeded", "failed", "cancelled"}
CANCELLING = 2
INLINE = 64
HISTORY = 100
LONGEST_HEAD = 1 + 6 + 2 * 101 + 19

Hash = dict[str, bytes]


@dataclass
class Record:
    """A job's hash, read."""

    id: str
    fields: Hash
    queue: str
    priority: int
    state: str
    since: int
    arrival: int
    attempt: int
    flags: int
    notes: int

    @property
    def last_attempt(self) -> bytes:
        return self.fields[f"a{self.attempt}"]

    @property
    def executor(self) -> str:
        return self.last_attempt[25:].decode()

    @property
    def claimed(self) -> int:
        return int.from_bytes(self.last_attempt[:6])


@dataclass
class Snapshot:
    """All keys of a namespace, by what they are."""

    size: int
    meta: Hash = field(default_factory=dict)
    jobs: dict[str, Record] = field(default_factory=dict)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    errors: dict[str, Hash] = field(default_factory=dict)
    indexes: dict[tuple[str, str], list[tuple[str, float]]] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    queues: list[str] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    held: dict[str, dict[str, str]] = field(default_factory=dict)
    workers: dict[str, float] = field(default_factory=dict)
    worker_records: dict[str, Hash] = field(default_factory=dict)
    idle: dict[str, dict[str, float]] = field(default_factory=dict)
    wakes: dict[str, list[str]] = field(default_factory=dict)
    inboxes: dict[str, list[str]] = field(default_factory=dict)


def check(client: redis.Redis, namespace: str) -> Snapshot:
    """Read all keys of a namespace, and fail if they do not fit together."""
    snapshot = read(client, namespace)
    _check_indexes(snapshot)
    _check_timers(snapshot)
    _check_held(snapshot)
    _check_queues(snapshot)
    for record in snapshot.jobs.values():
        _check_record(snapshot, record)
    _check_blobs(snapshot)
    return snapshot


def read(client: redis.Redis, namespace: str) -> Snapshot:
    base = f"hf:{{{namespace}}}:"
    names = sorted(key.decode().removeprefix(base) for key in client.scan_iter(f"{base}*", count=10_000))
    passing = [name for name in names if name.startswith(("wake:", "inbox:", "w:"))]
    pipe = client.pipeline(transaction=False)
    for name in names:
        _ask(pipe, base, name)
    for name in passing:
        pipe.pttl(base + name)
    values = pipe.execute()
    snapshot = Snapshot(size=len(names))
    for name, value in zip(names, values, strict=False):
        _add(snapshot, name, value)
    for name, life in zip(passing, values[len(names) :], strict=True):
        assert life != -1, f"{name} never expires"
    return snapshot


def _ask(pipe: Any, base: str, name: str) -> None:
    family, key = name.partition(":")[0], base + name
    if family in ("meta", "j", "e", "x", "w"):
        pipe.hgetall(key)
    elif family in ("q", "timers", "queues", "workers", "idle"):
        pipe.zrange(key, 0, -1, withscores=True)
    elif family in ("wake", "inbox"):
        pipe.lrange(key, 0, -1)
    elif family == "paused":
        pipe.smembers(key)
    elif family in ("p", "r", "c", "f"):
        pipe.get(key)
    elif family == "events":
        pipe.xlen(key)
    else:
        raise AssertionError(f"a key that nobody knows: {key}")


def _add(snapshot: Snapshot, name: str, value: Any) -> None:
    family, _, rest = name.partition(":")
    if family == "meta":
        snapshot.meta = _texts(value)
    elif family == "j":
        snapshot.jobs[rest] = _read_record(rest, _texts(value))
    elif family in ("p", "r", "c", "f"):
        snapshot.blobs[family, rest] = value
    elif family == "e":
        snapshot.errors[rest] = _texts(value)
    elif family == "q":
        queue, _, state = rest.partition(":")
        snapshot.indexes[queue, state] = [(id.decode(), score) for id, score in value]
    elif family == "queues":
        snapshot.queues = [queue.decode() for queue, _ in value]
    elif family == "paused":
        snapshot.paused = {queue.decode() for queue in value}
    elif family == "x":
        snapshot.held[rest] = {id: marks.decode() for id, marks in _texts(value).items()}
    elif family == "w":
        snapshot.worker_records[rest] = _texts(value)
    elif family in ("timers", "workers"):
        setattr(snapshot, family, {member.decode(): score for member, score in value})
    elif family == "idle":
        snapshot.idle[rest] = {executor.decode(): score for executor, score in value}
    elif family == "wake":
        snapshot.wakes[rest] = [text.decode() for text in value]
    elif family == "inbox":
        snapshot.inboxes[rest] = [text.decode() for text in value]


def _texts(value: dict[bytes, bytes]) -> Hash:
    return {name.decode(): content for name, content in value.items()}


def _read_record(id: str, fields: Hash) -> Record:
    head, status = fields["h"], fields["s"].ljust(31, b"\0")
    queue, _, rest = head[7:].partition(b"\0")
    options = rest.partition(b"\0")[2].ljust(19, b"\0")
    assert head[0] == 1, f"{id}: version {head[0]}"
    return Record(
        id=id,
        fields=fields,
        queue=queue.decode(),
        priority=int.from_bytes(options[1:3], signed=True),
        state=STATE_OF[status[:1].decode()],
        since=int.from_bytes(status[1:7]),
        arrival=int.from_bytes(status[7:13]),
        attempt=int.from_bytes(status[13:17]),
        flags=status[27],
        notes=int.from_bytes(status[29:31]),
    )


def _check_indexes(snapshot: Snapshot) -> None:
    found = sorted((id, *where) for where, members in snapshot.indexes.items() for id, _ in members)
    wanted = sorted((record.id, record.queue, record.state) for record in snapshot.jobs.values())
    assert found == wanted, "jobs and indexes differ"
    for members in snapshot.indexes.values():
        for id, score in members:
            assert score == _score(snapshot, snapshot.jobs[id]), f"{id} stands at the wrong place of its index"


def _score(snapshot: Snapshot, record: Record) -> float | None:
    if record.state == "waiting":
        return record.priority * 2**44 + record.arrival
    if record.state == "scheduled":
        return snapshot.timers.get(record.id)
    return record.claimed if record.state == "running" else record.since


def _check_timers(snapshot: Snapshot) -> None:
    timed = {id for id, record in snapshot.jobs.items() if record.state in ("scheduled", "running")}
    assert set(snapshot.timers) == timed, "timers are not those of the scheduled and running jobs"


def _check_held(snapshot: Snapshot) -> None:
    wanted: dict[str, dict[str, tuple[int, bool]]] = {}
    for id, record in snapshot.jobs.items():
        if record.state == "running":
            wanted.setdefault(record.executor, {})[id] = record.attempt, bool(record.flags & CANCELLING)
    found = {executor: {id: _marks(text) for id, text in held.items()} for executor, held in snapshot.held.items()}
    assert found == wanted, "executors hold other jobs than those that run on them"
    for executor in wanted:
        worker, _, number = executor.rpartition(".")
        assert number in snapshot.worker_records[worker], f"the worker of {executor} does not know of it"


def _marks(text: str) -> tuple[int, bool]:
    match = re.fullmatch(r"(\d+)(c?)(s{0,3})", text)
    assert match, f"marks {text!r}"
    return int(match[1]), match[2] == "c"


def _check_queues(snapshot: Snapshot) -> None:
    known = set(snapshot.queues)
    assert {record.queue for record in snapshot.jobs.values()} <= known, "a queue is not registered"
    assert snapshot.paused <= known, "a queue that nobody knows is paused"
    arrivals = [record.arrival for record in snapshot.jobs.values()]
    assert len(set(arrivals)) == len(arrivals), "two jobs have one arrival number"
    assert max(arrivals, default=0) <= int(snapshot.meta.get("arrivals", b"0")), "an arrival number was not counted"
    assert not snapshot.jobs or snapshot.meta["schema"] == b"1"


def _check_record(snapshot: Snapshot, record: Record) -> None:
    id, fields = record.id, record.fields
    first = max(1, record.attempt - HISTORY + 1)
    kept = {str(number) for number in range(first, record.attempt + 1)}
    assert {name[1:] for name in fields if name[0] == "a"} == kept, f"{id}: attempts"
    assert {name[1:] for name in fields if name[0] == "o"} <= kept, f"{id}: reasons"
    assert set(snapshot.errors.get(id, {})) <= kept, f"{id}: errors"
    notes = {f"y{number}" for number in range(1, min(record.notes, HISTORY) + 1)}
    assert {name for name in fields if name[0] == "y"} == notes, f"{id}: notes"
    open_attempts = {number for number in kept if fields[f"a{number}"][24:25] == b"-"}
    assert open_attempts == ({str(record.attempt)} if record.state == "running" else set()), f"{id}: open attempts"
    assert ("r" in fields) == (record.state == "succeeded"), f"{id}: result"
    assert ("g" in fields) == (record.state == "failed"), f"{id}: group"
    assert record.state not in FINAL or record.flags == 0, f"{id}: flags"
    for name, value in fields.items():
        most = {"h": LONGEST_HEAD, "w": 16 * 41}.get(name, INLINE)
        assert len(value) <= most, f"{id}: field {name} has {len(value)} bytes"


def _check_blobs(snapshot: Snapshot) -> None:
    wanted = {
        (letter, id) for id, record in snapshot.jobs.items() for letter in "prcf" if record.fields.get(letter) == b">"
    }
    assert set(snapshot.blobs) == wanted, "long values are not those that the records name"
    for blob in snapshot.blobs.values():
        assert len(blob) > INLINE or blob == b">", "a short value has a key of its own"
    assert set(snapshot.errors) <= set(snapshot.jobs), "errors of a job that is gone"
