"""The model of schedules: the rules at the head of `schedules.lua`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.constants import MAX_BACKLOG, MIN_TIMES_AHEAD
from tests.model.job import FINAL
from tests.support.new_job import NewJob

if TYPE_CHECKING:
    from tests.model.model import Model

POLICY = {"spec": "", "missed": "one", "backlog": 100, "late": 60_000, "overlap": "allow", "jitter": 0}
Declaration = dict[str, Any]  # what was declared, or made by hand; only what was declared has a revision


@dataclass
class Schedule:
    """What was declared or made by hand, when it fires next, and what has become of it."""

    declared: Declaration
    since: int
    default: Declaration | None = None  # the declaration, while it is overridden
    times: list[int] = field(default_factory=list)  # those that are known; of an interval the next one
    is_paused: bool | None = None
    job: str | None = None
    known: dict[str, int] = field(default_factory=dict)  # fired, skipped, at, last: once it has fired

    @property
    def next(self) -> int | None:
        return self.times[0] if self.times and not self.is_paused else None

    @property
    def every(self) -> int | None:
        every: int | None = self.declared.get("every")
        return every

    @property
    def offset(self) -> int:
        offset: int = self.declared.get("offset", 0)
        return offset

    def fires_like(self, other: Declaration) -> bool:
        return all(self.declared.get(part) == other.get(part) for part in ("spec", "every", "offset"))

    def describe(self) -> dict[str, Any]:
        default = {f"default:{name}": value for name, value in (self.default or {}).items()}
        fields = {**self.declared, **default, "since": self.since, **self.known}
        if self.every:
            fields["next"] = self.times[0]
        else:
            fields["times"] = " ".join(map(str, self.times))
        if self.is_paused is not None:
            fields["paused"] = int(self.is_paused)
        if self.job is not None:
            fields["job"] = self.job
        return {name: str(value) if isinstance(value, int) else value for name, value in fields.items()}


class Schedules:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.all: dict[str, Schedule] = {}
        self.wanting: set[str] = set()  # further times

    def timers(self) -> dict[str, int]:
        return {f"&{name}": one.next for name, one in self.all.items() if one.next is not None}

    def find(self, name: str) -> Schedule:
        if name not in self.all:
            raise errors.ScheduleNotFound
        return self.all[name]

    # Verbs

    @staticmethod
    def _read(batch: dict[str, Any], payload: bytes, how: dict[str, Any], now: int) -> Declaration:
        made = {"batch": batch, "payload": payload, **{key: how.get(key, POLICY[key]) for key in POLICY}}
        if how.get("every"):
            made |= {"every": how["every"], "offset": how.get("offset", 0)}
        if batch.get("deadline", now) <= made["jitter"]:
            raise errors.Invalid
        return made

    def schedule(self, name: str, batch: dict[str, Any], payload: bytes, how: dict[str, Any], now: int) -> bool:
        """By hand. What is declared is kept, until it is reset. The same again changes nothing."""
        made = self._read(batch, payload, how, now)
        old = self.all.get(name)
        if old and old.declared == made:
            return False
        if old and "revision" in old.declared:
            old.default = old.declared
        self._apply(name, made, how.get("times", []), now)
        return True

    def declare(self, name: str, batch: dict[str, Any], payload: bytes, how: dict[str, Any], now: int) -> str:
        """An older revision does not replace a newer one. What was made by hand goes on to apply."""
        revision = how["revision"]
        made = {**self._read(batch, payload, how, now), "revision": revision}
        old = self.all.get(name)
        is_by_hand = old is not None and "revision" not in old.declared
        known = (old.default if is_by_hand else old.declared) if old else None
        if known and known["revision"] > revision:
            raise errors.WrongState
        if known == made:
            return "unchanged"
        if old and is_by_hand:
            old.default = made
            self.model.events.about("configured", name, {"what": "schedule"})
            return "overridden"
        self._apply(name, made, how.get("times", []), now)
        return "applied"

    def reset(self, name: str, now: int) -> bool:
        one = self.find(name)
        if "revision" in one.declared:
            return False
        if one.default is None:
            raise errors.WrongState
        self._apply(name, one.default, [], now)
        self.all[name].default = None
        return True

    def _apply(self, name: str, made: Declaration, times: Sequence[int], now: int) -> None:
        old = self.all.get(name)
        new = self.all[name] = Schedule(made, now)
        if old:
            new.is_paused, new.job, new.known, new.default = old.is_paused, old.job, old.known, old.default
        new.times = [first_time(new.every, new.offset, now)] if new.every else [time for time in times if time > now]
        if old and not times and old.fires_like(made):  # also what it has missed
            new.times, new.since = old.times, old.since
        self._ask_for_more(name)
        self.model.events.about("configured", name, {"what": "schedule"})

    def _ask_for_more(self, name: str) -> None:
        one = self.all[name]
        if not one.every and len(one.times) < MIN_TIMES_AHEAD:
            self.wanting.add(name)

    def last_known(self, name: str) -> int:
        one = self.find(name)
        return one.times[-1] if one.times and not one.every else one.known.get("last", 0)

    def refill(self, name: str, expected: int, times: Sequence[int]) -> bool:
        one = self.find(name)
        last = self.last_known(name)
        if one.every or last != expected:
            return False
        done = one.known.get("at", 0) if one.declared["missed"] == "one" else 0
        one.times += [time for time in times if time > max(last, one.since, done)]
        self.wanting.discard(name)
        return True

    def unschedule(self, name: str) -> bool:
        if name not in self.all:
            return False
        del self.all[name]
        self.wanting.discard(name)
        self.model.events.about("configured", name, {"what": "schedule", "option": "removed"})
        return True

    def pause(self, name: str, now: int) -> bool:
        one = self.find(name)
        if one.is_paused:
            return False
        one.is_paused, one.since = True, now
        self.model.events.about("paused", name, {"what": "schedule"})
        return True

    def resume(self, name: str, now: int) -> bool:
        """What was due while it was paused was not missed."""
        one = self.find(name)
        if not one.is_paused:
            return False
        one.is_paused, one.since = False, now
        one.times = (
            [first_time(one.every, one.offset, now)] if one.every else [time for time in one.times if time > now]
        )
        self._ask_for_more(name)
        self.model.events.about("resumed", name, {"what": "schedule"})
        return True

    def trigger(self, name: str, now: int) -> str:
        one = self.find(name)
        one.job = f"{name}@{now}-now"
        self._enqueue(one, one.job, None, now)
        self.model.events.about("fired", name)
        return one.job

    # Firing

    def fire(self, name: str, now: int) -> None:
        one = self.all[name]
        due, later = self._due(one, now)
        chosen = self._choose(one, due, now)
        chosen, rest = chosen[: self.model.steps.fired], chosen[self.model.steps.fired :]
        fired = 0
        for time in chosen:
            if not self._is_under_way(one):
                fired += self._fire_one(name, one, time, now)
        if fired:
            self.model.events.about("fired", name)
        skipped = len(due) - len(rest) - fired
        counts = {"fired": one.known.get("fired", 0) + fired, "skipped": one.known.get("skipped", 0) + skipped}
        one.known |= {**counts, "at": now, "last": [*due, *chosen][-1]}
        one.times = [*rest, *later][: 1 if one.every else None]
        one.job = one.job or ""
        self._ask_for_more(name)

    @staticmethod
    def _due(one: Schedule, now: int) -> tuple[list[int], list[int]]:
        if one.every:
            due = list(range(one.times[0], now + 1, one.every))
            return due, [one.times[0] + len(due) * one.every]
        return [time for time in one.times if time <= now], [time for time in one.times if time > now]

    @staticmethod
    def _choose(one: Schedule, due: list[int], now: int) -> list[int]:
        """Of several that are due."""
        missed, declared = one.declared["missed"], one.declared
        if missed == "all":
            return due[-MAX_BACKLOG:][-declared["backlog"] :]
        return [time for time in due[-1:] if missed == "one" or now - time <= declared["late"]]

    def _is_under_way(self, one: Schedule) -> bool:
        last = self.model.jobs.get(one.job or "")
        return one.declared["overlap"] == "skip" and last is not None and last.state not in FINAL

    def _fire_one(self, name: str, one: Schedule, time: int, now: int) -> bool:
        """The id is of the time, so no time fires twice."""
        one.job = f"{name}@{time}"
        jitter = one.declared["jitter"]
        digest = int(hashlib.sha1(f"{name}{time}".encode(), usedforsecurity=False).hexdigest()[:8], 16)
        return self._enqueue(one, one.job, time + digest % (jitter + 1), now)

    def _enqueue(self, one: Schedule, id: str, due: int | None, now: int) -> bool:
        options = {**one.declared["batch"]}
        if "limits" in options:
            options["limits"] = tuple(options["limits"])
        if "tags" in options:
            options["tags"] = tuple(options["tags"])
        new = NewJob(id=id, payload=one.declared["payload"], at=due, **options)
        _, [stored], _ = self.model.enqueue([new], "return", now)
        self.model.was_idle = False
        return bool(stored)


def first_time(every: int, offset: int, now: int) -> int:
    """Of an interval: the first that is not past."""
    return offset + max(0, -((offset - now) // every)) * every
