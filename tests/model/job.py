"""A job of the model, and the settings that apply to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.store.caller import caller_name
from holdfast.store.commands import ClaimedJob
from tests.model.marks import FoundBy
from tests.support.new_job import NewJob

if TYPE_CHECKING:
    from tests.model.batches import Batch

STATES = ("scheduled", "waiting", "blocked", "throttled", "running", "succeeded", "failed", "cancelled")
FINAL = STATES[5:]
DAY = 86_400_000

PARKED = b"parked"  # what a note of an earlier spell is called here

WORDS = {"-": b"pending", "S": b"succeeded", "F": b"failed", "C": b"cancelled"}

Order = tuple[int, int, str]

DEFAULTS = {
    "lease": 30_000,
    "grace": 0,
    "retries": 3,
    "backoff": 20_000,
    "crashes": 3,
    "lost": 10,
    "timeout": 0,
    "keep_succeeded": 7 * DAY,
    "keep_succeeded_count": 50_000,
    "keep_failed": 30 * DAY,
    "keep_failed_count": 100_000,
    "keep_cancelled": 7 * DAY,
    "keep_cancelled_count": 50_000,
    "concurrency": 0,
    "history": 100,
    "stats_age": 30 * DAY,
    "histogram_age": 7 * DAY,
    "worker_age": DAY,
    "check_rate": 20,
    "events": 100_000,
}


@dataclass(frozen=True)
class Steps:
    """How much one call does at most; the rest is left to the next."""

    advanced: int = 100  # timers
    pruned: int = 500
    told: int = 1000  # of a job that they wait for
    parked: int = 200
    handed_on: int = 100
    fired: int = 100  # times of a schedule
    groups: int = 1000  # that failed jobs are listed by; the rest is `other`
    fingerprints: int = 10_000  # likewise; and how many are known
    tasks: int = 10_000
    expired: int = 20  # batches
    filled: int = 500  # queues that a new pool looks at
    visited: int = 200  # queues that a claim from a pool asks
    share: int = 600  # that upkeep spends on an operation
    chunk: int = 100  # entries of an index that are read at once


class Settings(dict[tuple[str | None, str], int]):
    """What was configured, by queue (None: all) and name."""

    def find(self, name: str, queue: str | None = None) -> tuple[int, str]:
        """The value that holds, and where it comes from."""
        if queue and (queue, name) in self:
            return self[queue, name], "queue"
        if (None, name) in self:
            return self[None, name], "global"
        return DEFAULTS[name], "default"

    def value(self, name: str, queue: str | None = None) -> int:
        return self.find(name, queue)[0]


@dataclass
class Attempt:
    number: int
    executor: str
    pid: int
    waiting_since: int
    claimed: int
    started: int = 0
    ended: int = 0
    outcome: str = "running"
    reason: str = ""
    error: bytes = b""  # what is kept of it
    fingerprint: str = ""

    def row(self) -> list[Any]:
        outcome, executor, reason = self.outcome.encode(), self.executor.encode(), self.reason.encode()
        times = [self.waiting_since, self.claimed, self.started, self.ended]
        return [self.number, *times, outcome, self.pid, executor, reason, self.error, self.fingerprint.encode()]


@dataclass
class Mark:
    """What a job knows of one that it waits for; place 0: it began to while it ran."""

    place: int
    letter: str
    however: bool = False  # it ends
    at: int = 0  # when the job learned the letter; 0: it waits still, or the other had ended before

    def learn(self, letter: str, now: int) -> None:
        self.letter, self.at = letter, now if letter != "-" else 0


@dataclass
class Spell:
    """How often it was parked before one attempt."""

    attempt: int  # the one before
    since: int  # when it began to wait
    first: int
    times: int = 0

    def row(self, limit: str) -> list[Any]:
        return [self.since, self.first, self.times, limit.encode()]


@dataclass(eq=False)
class Job:
    new: NewJob
    settings: Settings
    created: int
    arrival: int
    state: str = ""
    since: int = 0
    place: int = 0  # in the index of its state, unless it waits: there, priority and arrival
    timer: int = 0
    expires: int = 0  # when an ended job with a time of its own is looked at
    lease: int = 0  # with the grace of its queue
    spared: int = 0
    retries_used: int = 0
    crashes_used: int = 0
    lost_used: int = 0
    stops: dict[str, int] = field(default_factory=dict)  # by budget: attempts that a limit stopped
    misses: int = 0
    retrying: bool = False
    cancelling: bool = False
    stop_request: dict[str, str] = field(default_factory=dict)  # by whom, and why
    alone: bool = False
    group: str = ""
    fingerprint: str = ""
    listed: dict[str, str] = field(default_factory=dict)  # by kind: the name that it is listed under, if it has failed
    final_reason: str = ""
    forked_from: str = ""
    progress: str = ""
    result: bytes | None = None
    checkpoint: bytes | None = None
    attempts: list[Attempt] = field(default_factory=list)  # those that are kept
    notes: list[list[Any]] = field(default_factory=list)
    origin: list[Any] = field(default_factory=list)  # queue, priority and task at first, if they have changed
    spell: Spell | None = None  # the last one
    fields: dict[str, str] = field(default_factory=dict)
    found_by: FoundBy = field(default_factory=FoundBy)
    steps: dict[str, bytes] = field(default_factory=dict)
    log: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by attempt and block
    waiters: list[str] = field(default_factory=list)
    marks: dict[str, Mark] = field(default_factory=dict)
    policy: str = "block"
    due: int = 0  # when it has not to wait for others any more
    awaited: bool = False
    parked_by: str = ""
    is_fair: bool = False  # its arrival is a virtual time
    deadline_at: int = 0
    is_timed: bool = False  # its deadline counts
    has_timer: bool = False  # and has not come
    batch: Batch | None = None  # that it counts in
    on_move: Callable[[Job, str, str], None] = lambda *_: None

    @property
    def id(self) -> str:
        return self.new.id

    @property
    def run(self) -> Attempt:
        return self.attempts[-1]

    @property
    def attempt(self) -> int:
        return self.run.number if self.attempts else 0

    @property
    def priority(self) -> int:
        return self.new.priority or 0

    @property
    def unique(self) -> tuple[str, str] | None:
        """Its unique key and for how long, if that is a part of its life."""
        span = self.new.unique_for or "pending"
        return (self.new.unique, span) if self.new.unique and isinstance(span, str) else None

    def is_satisfied(self, id: str) -> bool:
        """Whether a job that it waits for is as it must be."""
        mark = self.marks[id]
        return mark.letter == "S" or (mark.letter != "-" and (mark.however or self.policy == "run"))

    def unsatisfied(self) -> list[Mark]:
        return [mark for id, mark in self.marks.items() if not self.is_satisfied(id)]

    def option(self, name: str) -> int:
        """What the job says itself, or its queue's setting."""
        own = getattr(self.new, name)
        return self.setting(name) if own is None else int(own)

    def setting(self, name: str) -> int:
        return self.settings.value(name, self.new.queue)

    @property
    def heartbeat(self) -> int:
        """When its lease was last renewed; 0: unknown, as it was spared since."""
        return 0 if self.spared else self.timer - self.lease

    @property
    def own_keep(self) -> int | None:
        """How long it is kept after its end, if it says so itself."""
        return None if self.new.keep is None or isinstance(self.new.keep, bool) else self.new.keep

    def removal(self) -> int:
        """When it is removed, once it has ended; who failed is kept as long as its queue says, at least."""
        usual = self.setting(f"keep_{self.state}")
        if self.own_keep is None:
            return self.since + usual
        return self.since + (max(self.own_keep, usual) if self.state == "failed" else self.own_keep)

    def order(self) -> Order:
        """Where it stands among the jobs of its queue and state."""
        if self.state in ("waiting", "throttled"):
            return self.priority, self.arrival, self.id
        return 0, self.place, self.id

    def move(self, state: str, now: int, *, place: int = 0, timer: int = 0) -> None:
        self.on_move(self, self.state, state)
        self.state, self.since, self.place, self.timer, self.expires = state, now, place, timer, 0

    def start(self, executor: str, request: dict[str, Any], now: int) -> None:
        self.attempts.append(
            Attempt(self.attempt + 1, executor, request.get("pid", 0), min(self.since, now), claimed=now)
        )
        self.attempts = self.attempts[-self.setting("history") :]
        self.retries_used, self.retrying = self.retries_used + self.retrying, False
        self.lease, self.spared = self.lease_for(request) + self.setting("grace"), 0
        self.move("running", now, place=now, timer=now + self.lease)

    def lease_for(self, request: dict[str, Any]) -> int:
        return int(request.get("lease", self.setting("lease")))

    def note(self, now: int, what: bytes, words: str, *, who: str | None = None) -> None:
        """An entry of its history, by an operator unless somebody else did it."""
        who = caller_name() if who is None else who
        self._add_note([now, what, words.encode(), who.encode()])

    def note_wait(self) -> None:
        """Its wait ends other than by a claim: keep since when it waited, unless another entry says so."""
        last = self.notes[-1][0] if self.notes else None
        ended = self.attempts[-1].ended if self.attempts else None
        if self.state == "waiting" and self.since > self.created and self.since not in (last, ended):
            self.note(self.since, b"queued", "", who="")

    def _add_note(self, entry: list[Any]) -> None:
        notes = [*self.notes, entry]
        self.notes = notes[-self.setting("history") :]
        moves = [note[0] for note in notes[: -len(self.notes)] if note[1] == b"moved"]
        if moves and self.origin:
            self.origin = [*self.origin[:3], moves[-1]]

    def keep_origin(self) -> None:
        """What it was enqueued with, for the first entry of its history; and when the last forgotten move was."""
        self.origin = self.origin or [self.new.queue.encode(), self.priority, self.new.task.encode(), 0]

    def park(self, full: str, now: int) -> None:
        """It was parked once more before its next attempt, or for the first time."""
        if self.spell and self.spell.attempt != self.attempt:
            self._add_note([self.spell.first, PARKED, self.spell.row(self.parked_by)])
            self.spell = None
        self.spell = self.spell or Spell(self.attempt, min(self.since, now), now)
        self.spell.times += 1
        self.parked_by = full

    def claimed(self, request: dict[str, Any]) -> ClaimedJob:
        """What a claim says of it. If settings changed before that was repeated: a lease no longer than it has."""
        new = self.new
        return ClaimedJob(
            id=new.id,
            attempt=self.attempt,
            queue=new.queue,
            task=new.task,
            codec=new.codec or "json",
            payload=new.payload,
            checkpoint=self.checkpoint or b"",
            timeout=self.option("timeout"),
            created=self.created,
            alone=self.alone,
            lease=min(self.lease_for(request), self.lease),
            run=(new.run or "").encode(),
            marks=self.found_by.text(),
        )

    def describe(self, now: int) -> dict[str, Any]:
        """What `get` says of it, but for its arrival number."""
        last = self.run if self.attempts else None
        whole = {
            **self._describe_options(),
            **self.found_by.describe(),
            "id": self.id,
            "state": self.state,
            "created": self.created,
            "since": self.since,
            "attempt": self.attempt,
            "retries_used": self.retries_used,
            **self._describe_budgets(),
            "crashes_used": self.crashes_used,
            "lost_used": self.lost_used,
            "cancelling": int(self.cancelling),
            "alone": int(self.alone),
            "lease": self.lease,
            "timer": self.timer,
            "executor": last.executor if last else "",
            "pid": last.pid if last else 0,
            "claimed": last.claimed if last else 0,
            "group": self.group,
            "fingerprint": self.fingerprint,
            "final_reason": self.final_reason,
            "forked_from": self.forked_from,
            "progress": self.progress,
            "attempts": [run.row() for run in self.attempts[-self.setting("history") :]],
            "notes": [note for note in self.notes if note[1] != PARKED],
            "enqueued_as": self.origin,
            "parked": [
                *(note[2] for note in self.notes if note[1] == PARKED),
                *([self.spell.row(self.parked_by)] if self.spell else []),
            ],
            "updated": max(self.since, self.notes[-1][0] if self.notes else 0),
            "fields": self.fields,
            "after": self._describe_marks([mark.place for mark in self.marks.values() if mark.place]),
            "waits": self._describe_marks([0]),
            "waits_for": len(self.unsatisfied()) if self.state == "blocked" else 0,
            "throttled_by": self.parked_by if self.state == "throttled" else "",
            "deadline": self.deadline_at,
        }
        if self.state == "running":
            whole |= {"heartbeat": self.heartbeat, "stalled": int(self.timer <= now)}
        if self.result is not None:
            whole["result"] = self.result
        if self.checkpoint is not None:
            whole["checkpoint"] = self.checkpoint
        return whole

    def budget(self, group: str) -> str:
        """The budget that this failure uses up, if the job has one of its own for it; else that of its errors."""
        name = {"timeout": "timeouts", "stalled": "stalls", "memory": "out_of_memory"}.get(group, "retries")
        return "retries" if getattr(self.new, name) is None else name

    def charge(self, budget: str) -> int | None:
        """How many retries of this budget were used up before this one; None if none is left."""
        if budget == "retries":
            self.retrying = self.retries_used < self.option("retries")
            return self.retries_used if self.retrying else None
        before = self.stops.get(budget, 0)
        self.stops[budget] = before + 1
        return before if before < getattr(self.new, budget) else None

    def renew_budgets(self) -> None:
        self.retries_used = self.crashes_used = self.lost_used = self.misses = 0
        self.stops = {}

    def _describe_budgets(self) -> dict[str, int]:
        own = {name: getattr(self.new, name) for name in ("timeouts", "stalls", "out_of_memory")}
        whole = {name: value for name, value in own.items() if value is not None}
        return whole | {f"{name}_used": self.stops.get(name, 0) for name in whole}

    def _describe_marks(self, places: list[int]) -> list[list[Any]]:
        return [
            [id.encode(), WORDS[mark.letter], mark.at]
            for place in sorted(places)
            for id, mark in sorted(self.marks.items())
            if mark.place == place
        ]

    def _describe_options(self) -> dict[str, Any]:
        new = self.new
        return {
            "queue": new.queue,
            "task": new.task,
            "codec": new.codec or "json",
            "payload": new.payload,
            "priority": self.priority,
            "retries": self.option("retries"),
            "backoff": self.option("backoff"),
            "crashes": self.option("crashes"),
            "lost": self.option("lost"),
            "timeout": self.option("timeout"),
            "keep": self.own_keep or int(new.keep is not False),
            "expires": self.removal() if self.state in FINAL else 0,
            "at_most_once": int(bool(new.at_most_once)),
            "unique": new.unique or "",
            "share": new.share or "",
            "run": new.run or "",
            "limits": " ".join(new.limits or ()),
        }
