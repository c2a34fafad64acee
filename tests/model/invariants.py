"""Invariants of the keys of a namespace, checked on the keys alone.

    snapshot = check(client, namespace)

Every job is in the one index of its state and in no other; it has a timer if it is scheduled or runs, and else none;
who runs it holds it, and nobody else; a unique key belongs to a job that may have it; and there is no key that belongs
to nothing. The layout is that of `keys.lua` and `record.lua`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import redis

from holdfast.constants import DEFAULT_LEASE, MAX_CALLER, MAX_NOTE, MAX_RUN_OPTIONS
from tests.model import (
    batch_invariants,
    composition_invariants,
    failure_invariants,
    mark_invariants,
    operation_invariants,
    queue_set_invariants,
    statistics_invariants,
)

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
CANCELLING, UNKEPT, UNIQUE, ONCE, EXTRA, EXPIRES = 2, 8, 16, 32, 2048, 4096
SET_ASIDE = 2**45
OF_THE_MOMENT = 1 | CANCELLING | 4  # flags that no ended job has
INLINE = 64
HISTORY, MAX_HISTORY = 100, 1000
MAX_HEAD = 1 + 6 + 2 * 101 + 19
MOST = {
    "h": MAX_HEAD,
    "u": 129,
    "j": 133,
    "w": 16 * 41,
    "l": 8 * 122,
    "z": 121,
    "e": 206,
    "x": MAX_RUN_OPTIONS,
}  # bytes of the fields that may be longer than `INLINE`
PASSING = (  # keys that expire
    "wake:", "inbox:", "w:", "t:", "lr:", "load:", "live:", "idle:", "undefined", "outcomes", "fi:",
    "sl:", "sd:", "sg:", "sh:", "sm:",
)  # fmt: skip
HASHES = {
    "meta", "config", "config_copy", "check", "j", "fi", "u", "x", "w", "a", "resolving", "fair", "sc", "limits",
    "load", "o", "g", "bridged", "sd", "sg", "sh", "sm", "on", "b", "filling", "op",
}  # fmt: skip
SORTED_SETS = {
    "q", "timers", "expiring", "queues", "workers", "idle", "d", "schedules", "lp", "shares", "lh", "lq", "lt", "lv",
    "fg", "fp", "ft", "failed", "fingerprints",
    "tag", "tags", "scope", "scopes", "tracked", "untracked", "subscriptions", "operations", "operating",
    "batch", "batches", "batches_done",
    "sets", "live", "ready", "outcomes",
}  # fmt: skip
SETS = {"paused", "changed", "undefined", "refill", "bo", "acted", "batches_ending"}
READ_WITH: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(HASHES, ("HGETALL",)),
    **dict.fromkeys(SORTED_SETS, ("ZRANGE", "0", "-1", "WITHSCORES")),
    **dict.fromkeys(SETS, ("SMEMBERS",)),
    **dict.fromkeys(("wake", "inbox", "n", "e", "lr"), ("LRANGE", "0", "-1")),
    **dict.fromkeys(("p", "r", "c", "f", "m", "k", "t", "sl", "set"), ("GET",)),
    "events": ("XLEN",),
}  # by family of keys, the part of a name before its first colon
# All keys of a namespace in one call: the name of each, its value (false: of no known family), and its life.
READ_ALL = """
local base, commands, found = KEYS[1], cjson.decode(ARGV[1]), {}
for _, key in ipairs(redis.call('KEYS', base:gsub('[%[%]*?^\\\\]', '\\\\%0') .. '*')) do
  local name = key:sub(#base + 1)
  local command = commands[name:match('^[^:]*')]
  local value = command and redis.call(command[1], key, unpack(command, 2))
  if not name:find('^damaged:') then found[#found + 1] = { name, value or false, redis.call('PTTL', key) } end
end
return found
"""
NAMED = {"e": "errors", "n": "notes", "u": "fields", "w": "worker_records", "idle": "idle"}

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
    lease: int
    flags: int
    created: int

    @property
    def last_attempt(self) -> bytes:
        return self.fields[f"a{self.attempt}"]

    @property
    def executor(self) -> str:
        return self.last_attempt[25:].decode()

    @property
    def claimed(self) -> int:
        return int.from_bytes(self.last_attempt[:6])

    def outcome(self, number: int) -> str:
        return self.fields[f"a{number}"][24:25].decode()


@dataclass
class Ticket:
    """A unique key: for how long which job has it, and in how many milliseconds the server removes it (-1: never)."""

    letter: str
    id: str
    time: int  # when the job was created, or until when it has the key
    life: int


@dataclass
class Snapshot:
    """All keys of a namespace, by what they are."""

    size: int
    least_history: int = HISTORY
    meta: Hash = field(default_factory=dict)
    jobs: dict[str, Record] = field(default_factory=dict)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    errors: dict[str, list[bytes]] = field(default_factory=dict)
    notes: dict[str, list[bytes]] = field(default_factory=dict)
    fields: dict[str, Hash] = field(default_factory=dict)
    uniques: dict[str, Ticket] = field(default_factory=dict)
    config: Hash = field(default_factory=dict)
    config_copy: Hash = field(default_factory=dict)
    check: Hash = field(default_factory=dict)
    indexes: dict[tuple[str, str], list[tuple[str, float]]] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    expiring: dict[str, float] = field(default_factory=dict)
    fingerprints: dict[str, float] = field(default_factory=dict)
    queues: dict[str, float] = field(default_factory=dict)
    events: int = 0
    paused: set[str] = field(default_factory=set)
    held: dict[str, dict[str, str]] = field(default_factory=dict)
    workers: dict[str, float] = field(default_factory=dict)
    worker_records: dict[str, Hash] = field(default_factory=dict)
    idle: dict[str, dict[str, float]] = field(default_factory=dict)
    wakes: dict[str, list[str]] = field(default_factory=dict)
    inboxes: dict[str, list[str]] = field(default_factory=dict)
    limits: Hash = field(default_factory=dict)
    resolving: Hash = field(default_factory=dict)
    outcomes: dict[str, float] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)
    refill: set[str] = field(default_factory=set)
    schedules: dict[str, float] = field(default_factory=dict)
    tags: dict[str, float] = field(default_factory=dict)
    scopes: dict[str, float] = field(default_factory=dict)
    tracked: dict[str, float] = field(default_factory=dict)
    untracked: dict[str, float] = field(default_factory=dict)
    subscriptions: dict[str, float] = field(default_factory=dict)
    batches: dict[str, float] = field(default_factory=dict)
    batches_done: dict[str, float] = field(default_factory=dict)
    batches_ending: set[str] = field(default_factory=set)
    sets: dict[str, float] = field(default_factory=dict)
    filling: Hash = field(default_factory=dict)
    operations: dict[str, float] = field(default_factory=dict)
    operating: dict[str, float] = field(default_factory=dict)
    families: dict[str, dict[str, Any]] = field(default_factory=dict)  # the rest: see `composition_invariants.py`

    def others(self, family: str) -> dict[str, Any]:
        return self.families.get(family, {})

    @property
    def markers(self) -> dict[str, Any]:
        markers: dict[str, Any] = json.loads(self.meta.get("markers", b"{}"))
        return markers


def check(client: redis.Redis, namespace: str, *, now: int | None = None, least_history: int = HISTORY) -> Snapshot:
    """Read all keys of a namespace, and fail if they do not fit together.

    `now` is the latest time of a call since the clock last went back; without it the length of leases is not checked.
    `least_history` is the least that was ever configured.
    """
    snapshot = read(client, namespace)
    snapshot.least_history = least_history
    _check_indexes(snapshot)
    _check_timers(snapshot, now)
    _check_expiring(snapshot)
    _check_held(snapshot)
    _check_queues(snapshot)
    for record in snapshot.jobs.values():
        _check_record(snapshot, record)
        _check_attempts(snapshot, record)
        _check_once(snapshot, record, least_history)
        _check_key_of(snapshot, record)
    _check_uniques(snapshot)
    _check_blobs(snapshot)
    _check_steps_and_logs(snapshot)
    composition_invariants.check(snapshot)
    failure_invariants.check(snapshot)
    mark_invariants.check(snapshot)
    statistics_invariants.check(snapshot)
    batch_invariants.check(snapshot)
    queue_set_invariants.check(snapshot)
    operation_invariants.check(snapshot)
    return snapshot


def read(client: redis.Redis, namespace: str) -> Snapshot:
    base = f"hf:{{{namespace}}}:"
    keys: Any = client.eval(READ_ALL, 1, base, json.dumps(READ_WITH))
    snapshot = Snapshot(size=len(keys))
    for name, value, life in sorted(keys):
        assert value is not None, f"a key that nobody knows: {name.decode()}"
        _add(snapshot, name.decode(), value, life)
    return snapshot


def _add(snapshot: Snapshot, name: str, value: Any, life: int) -> None:
    family, _, rest = name.partition(":")
    assert life != -1 or not name.startswith(PASSING), f"{name} never expires"
    if family in HASHES:
        value = {
            field.decode(errors="surrogateescape"): content
            for field, content in zip(value[::2], value[1::2], strict=True)
        }
    elif family in SORTED_SETS:
        value = {member.decode(): float(score) for member, score in zip(value[::2], value[1::2], strict=True)}
    elif family in SETS:
        value = {member.decode() for member in value}
    if not rest:
        setattr(snapshot, family, value)
    elif family == "j":
        snapshot.jobs[rest] = _read_record(rest, value)
    elif family in ("p", "r", "c", "f", "m"):
        snapshot.blobs[family, rest] = value
    elif family in NAMED:
        getattr(snapshot, NAMED[family])[rest] = value
    elif family == "k":
        letter, id, time = value.decode().split(" ")
        snapshot.uniques[rest] = Ticket(letter, id, int(time), life)
    elif family == "q":
        queue, _, state = rest.partition(":")
        snapshot.indexes[queue, state] = list(value.items())
    elif family == "x":
        snapshot.held[rest] = {id: marks.decode() for id, marks in value.items()}
    elif family in ("wake", "inbox"):
        getattr(snapshot, {"wake": "wakes", "inbox": "inboxes"}[family])[rest] = [text.decode() for text in value]
    else:
        snapshot.families.setdefault(family, {})[rest] = value


def _read_record(id: str, fields: Hash) -> Record:
    head, status = fields["h"], fields["s"].ljust(31, b"\0")
    queue, _, rest = head[7:].partition(b"\0")
    options = rest.partition(b"\0")[2].ljust(19, b"\0")
    assert head[0] == 1, f"{id}: version {head[0]}"
    created = int.from_bytes(head[1:7])
    return Record(
        id=id,
        fields=fields,
        queue=queue.decode(),
        priority=int.from_bytes(options[1:3], signed=True),
        state=STATE_OF[status[:1].decode()],
        arrival=int.from_bytes(status[1:7]),
        since=created + int.from_bytes(status[7:13], signed=True),
        attempt=int.from_bytes(status[13:17]),
        lease=int.from_bytes(status[17:21]),
        flags=int.from_bytes(status[27:29]),
        created=created,
    )


def _check_indexes(snapshot: Snapshot) -> None:
    found = sorted((id, *where) for where, members in snapshot.indexes.items() for id, _ in members)
    wanted = sorted((record.id, record.queue, record.state) for record in snapshot.jobs.values())
    assert found == wanted, "jobs and indexes differ"
    for members in snapshot.indexes.values():
        for id, score in members:
            assert score in _scores(snapshot, snapshot.jobs[id]), f"{id} stands at the wrong place of its index"


def _scores(snapshot: Snapshot, record: Record) -> set[float | None]:
    """Who is kept for longer than others may have been set aside."""
    if record.state in ("waiting", "throttled"):
        return {record.priority * 2**44 + record.arrival}
    if record.state == "scheduled":
        return {snapshot.timers.get(record.id)}
    if record.state == "running":
        return {record.claimed}
    return {record.since, record.since - SET_ASIDE} if record.flags & EXPIRES else {record.since}


def _check_expiring(snapshot: Snapshot) -> None:
    """Who has a time of its own and has ended is removed when it is over; who failed may stay for longer."""
    wanted = {id for id, record in snapshot.jobs.items() if record.flags & EXPIRES and record.state in FINAL}
    assert set(snapshot.expiring) == wanted, "other jobs expire than have a time to live"
    for id, time in snapshot.expiring.items():
        record = snapshot.jobs[id]
        own = record.since + int(record.fields["k"])
        assert time == own or (record.state == "failed" and time > own), f"{id} expires at another time"


def _check_timers(snapshot: Snapshot, now: int | None) -> None:
    """Those of limits, schedules and deadlines are checked elsewhere."""
    timed = {id for id, record in snapshot.jobs.items() if record.state in ("scheduled", "running")}
    timers = {id: timer for id, timer in snapshot.timers.items() if id[0] not in "%=&!"}
    assert set(timers) == timed, "timers are not those of the scheduled and running jobs"
    for id, timer in timers.items():
        record = snapshot.jobs[id]
        if now is not None and record.state == "running":
            assert timer <= now + record.lease, f"{id}: a lease is longer than it was claimed with"


def _check_held(snapshot: Snapshot) -> None:
    wanted: dict[str, dict[str, tuple[int, bool, int]]] = {}
    for id, record in snapshot.jobs.items():
        if record.state == "running":
            marks = record.attempt, bool(record.flags & CANCELLING), record.lease
            wanted.setdefault(record.executor, {})[id] = marks
    found = {executor: {id: _marks(text) for id, text in held.items()} for executor, held in snapshot.held.items()}
    assert found == wanted, "executors hold other jobs than those that run on them"
    for executor in wanted:
        if executor.startswith("detached/"):
            continue  # it is no process, of no worker
        worker, _, number = executor.rpartition(".")
        assert number in snapshot.worker_records[worker], f"the worker of {executor} does not know of it"


def _marks(text: str) -> tuple[int, bool, int]:
    match = re.fullmatch(r"(\d+)(c?)(s{0,3})(?:@(\d+))?", text)
    assert match, f"marks {text!r}"
    assert match[4] != str(DEFAULT_LEASE), "the usual length is not said"
    return int(match[1]), match[2] == "c", int(match[4] or DEFAULT_LEASE)


def _check_queues(snapshot: Snapshot) -> None:
    known = set(snapshot.queues)
    assert {record.queue for record in snapshot.jobs.values()} <= known, "a queue is not registered"
    assert snapshot.paused <= known, "a queue that nobody knows is paused"
    assert bool(snapshot.paused) == ("paused" in snapshot.markers), "whether queues are paused"
    arrivals = [record.arrival for record in snapshot.jobs.values() if not record.flags & composition_invariants.FAIR]
    assert len(set(arrivals)) == len(arrivals), "two jobs have one arrival number"
    assert max(arrivals, default=0) <= int(snapshot.meta.get("arrivals", b"0")), "an arrival number was not counted"
    assert not snapshot.jobs or snapshot.meta["schema"] == b"2"
    assert snapshot.config == snapshot.config_copy, "the copy of the settings differs from them"


def _check_record(snapshot: Snapshot, record: Record) -> None:
    id, fields = record.id, record.fields
    notes = snapshot.notes.get(id, [])
    assert len(notes) <= (MAX_HISTORY if snapshot.config else HISTORY), f"{id}: notes"
    assert all(8 <= len(note) <= 8 + MAX_CALLER + MAX_NOTE for note in notes), f"{id}: a note"
    assert ("r" in fields) == (record.state == "succeeded"), f"{id}: result"
    told = {name in fields for name in "gvy"}
    assert told == {record.state == "failed"}, f"{id}: group, fingerprint, and why it is final"
    assert record.state not in FINAL or not record.flags & OF_THE_MOMENT, f"{id}: flags"
    may_go = {"succeeded"} if record.flags & composition_invariants.AWAITED else {"succeeded", "cancelled"}
    assert not record.flags & UNKEPT or record.state not in may_go, f"{id} is kept"
    assert ("u" in fields) == bool(record.flags & UNIQUE), f"{id}: unique key"
    assert ("k" in fields) == bool(record.flags & EXPIRES), f"{id}: time to live"
    assert "q" not in fields or record.flags & CANCELLING or record.state in FINAL, f"{id}: a request to stop"
    for name, value in fields.items():
        assert re.fullmatch(r"[hsprcefguvwbdijlmyzxktq]|[ao][1-9]\d*", name), f"{id}: field {name}"
        assert len(value) <= MOST.get(name, INLINE), f"{id}: field {name} has {len(value)} bytes"


def _check_attempts(snapshot: Snapshot, record: Record) -> None:
    """The last ones are kept, without a gap; the last may run, all others have ended."""
    id, fields = record.id, record.fields
    kept = {name[1:] for name in fields if name[0] == "a"}
    first = record.attempt - len(kept) + 1
    assert kept == {str(number) for number in range(first, record.attempt + 1)}, f"{id}: attempts"
    assert (1 if record.attempt else 0) <= len(kept) <= (MAX_HISTORY if snapshot.config else HISTORY), f"{id}: attempts"
    assert {name[1:] for name in fields if name[0] == "o"} <= kept, f"{id}: reasons"
    failure_invariants.check_errors(snapshot, id, kept)
    open_attempts = [number for number in range(first, record.attempt + 1) if record.outcome(number) == "-"]
    assert open_attempts == ([record.attempt] if record.state == "running" else []), f"{id}: open attempts"


def _check_steps_and_logs(snapshot: Snapshot) -> None:
    for id, steps in snapshot.others("o").items():
        assert id in snapshot.jobs, f"steps of {id}, which is gone"
        assert len(steps) <= 1000, f"{id}: {len(steps)} steps"
    for id, blocks in snapshot.others("g").items():
        assert id in snapshot.jobs, f"a log of {id}, which is gone"
        attempts = {int(field.split()[0]) for field in blocks}
        assert len(attempts) <= 10, f"{id}: logs of {attempts}"
        assert max(attempts) <= snapshot.jobs[id].attempt, f"{id}: a log of an attempt that never was"
        assert all(0 < len(block) <= 8192 for block in blocks.values()), f"{id}: a block"
        assert len(blocks) <= len(attempts) * (8 + 24 + 1), f"{id}: {len(blocks)} blocks"


def _check_once(snapshot: Snapshot, record: Record, least_history: int) -> None:
    """A job that runs once at most runs again only if it did not start, or a user retried it; as far as notes tell."""
    notes = snapshot.notes.get(record.id, [])
    if not record.flags & ONCE or len(notes) >= least_history:
        return
    kept = [number for number in range(1, record.attempt + 1) if f"a{number}" in record.fields]
    stage = max((number for number in kept if record.outcome(number) == "A"), default=0)  # the one before this one
    ran = [number for number in kept if stage < number < record.attempt and record.outcome(number) not in "UR"]
    retries = [note for note in notes if note[6:7] == b"R"]
    assert len(ran) <= len(retries), f"{record.id} ran more than once"


def _check_key_of(snapshot: Snapshot, record: Record) -> None:
    """A job with a unique key has it as long as it may."""
    if not record.flags & UNIQUE:
        return
    letter, name = record.fields["u"][:1].decode(), record.fields["u"][1:].decode()
    is_new = record.state in ("scheduled", "waiting", "blocked", "throttled") and record.attempt == 0
    if letter == "k" or (letter == "p" and record.state not in FINAL) or (letter == "q" and is_new):
        ticket = snapshot.uniques.get(name)
        assert ticket, f"{record.id}: nobody has its key {name}"
        assert (ticket.letter, ticket.id, ticket.time) == (letter, record.id, record.created), f"{record.id}: {name}"


def _check_uniques(snapshot: Snapshot) -> None:
    """A key is of a job that may have it; or it was given for a time, and expires."""
    not_started = {"scheduled", "waiting", "blocked", "throttled"}
    may_have = {"q": not_started, "p": set(STATE_OF.values()) - FINAL, "k": set(STATE_OF.values())}
    for name, ticket in snapshot.uniques.items():
        assert (ticket.letter == "t") == (ticket.life != -1), f"key {name} expires, or does not"
        if ticket.letter != "t":
            record = snapshot.jobs.get(ticket.id)
            assert record, f"key {name} is of a job that is gone"
            assert (record.created, record.fields.get("u")) == (ticket.time, f"{ticket.letter}{name}".encode()), name
            assert record.state in may_have[ticket.letter], f"{ticket.id} is {record.state} and has the key {name}"


def _check_blobs(snapshot: Snapshot) -> None:
    wanted = {
        (letter, id)
        for id, record in snapshot.jobs.items()
        for letter, field in zip("prcfm", "prcft", strict=True)
        if record.fields.get(field) == b">"
    }
    assert set(snapshot.blobs) == wanted, "long values are not those that the records name"
    for blob in snapshot.blobs.values():
        assert len(blob) > INLINE or blob == b">", "a short value has a key of its own"
    flagged = {id for id, record in snapshot.jobs.items() if record.flags & EXTRA}
    long = {id: blob for (letter, id), blob in snapshot.blobs.items() if letter in "cf"}
    steps, logs = snapshot.others("o"), snapshot.others("g")
    for what in (snapshot.errors, snapshot.notes, snapshot.fields, steps, logs, long):
        assert set(what) <= set(snapshot.jobs), "errors, notes, fields, steps or logs of a job that is gone"
        assert set(what) <= flagged, "a job has keys of which its record says nothing: they would outlive it"
