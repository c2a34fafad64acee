"""The model of limits: the rules at the heads of `limits.lua` and `limit_definitions.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast import Limit, errors
from holdfast.store.commands import LimitKey, LimitStatus
from holdfast.units import utc
from tests.model.job import Job

if TYPE_CHECKING:
    from tests.model.core import Core


def is_narrower(one: str, other: str) -> bool:
    """Of two limits, the one that holds for fewer jobs, as far as their names say."""
    return (":" not in one, one) < (":" not in other, other)


class Limits:
    """Who has which slots, and who is parked by which limit: the throttled jobs say so themselves."""

    def __init__(self, model: Core) -> None:
        self.model = model
        self.handed_on = model.steps.handed_on
        self.by_hand: dict[str, tuple[int, int, int]] = {}  # slots, period (0: at once), expiry (0: never), by name
        self.declared: dict[str, tuple[int, int, int]] = {}  # slots, period and revision, by name
        self.holders: dict[str, set[str]] = {}
        self.starts: dict[str, list[int]] = {}  # the newest first
        self.timers: dict[str, int] = {}
        self.undefined: set[str] = set()  # that jobs took part in

    @property
    def defined(self) -> dict[str, tuple[int, int]]:
        """What applies: slots and period, by name."""
        return {name: record[:2] for name, record in {**self.declared, **self.by_hand}.items()}

    def definition(self, full: str) -> tuple[int, int] | None:
        name = full.partition(":")[0]
        record = self.by_hand.get(name) or self.declared.get(name)
        return record[:2] if record else None

    def parked(self, full: str, queue: str | None = None) -> list[Job]:
        jobs = [job for job in self.model.jobs.values() if job.state == "throttled" and job.parked_by == full]
        return sorted((job for job in jobs if queue in (None, job.new.queue)), key=Job.order)

    def free(self, full: str, most: int, now: int) -> int:
        """How many more could start now, up to so many."""
        definition = self.definition(full)
        if not definition:
            return most
        slots, per = definition
        if not per:
            return min(slots - len(self.holders.get(full, ())), most)
        oldest_first = [self._ends(full, place, per, now) for place in reversed(range(slots))]
        free = 0
        while free < min(slots, most) and oldest_first[free] <= now:
            free += 1
        return free

    def _ends(self, full: str, place: int, per: int, now: int) -> int:
        """When a start does not count any more. One that lies ahead does not: the clock went back."""
        starts = self.starts.get(full, [])
        return starts[place] + per if place < len(starts) and starts[place] <= now else 0

    # What becomes of jobs

    def may_start(self, job: Job, now: int) -> bool:
        """Take all its slots; or park it, and let others have what it does not take."""
        names = job.new.limits or ()
        for full in names:
            if self.free(full, 1, now) < 1:
                job.park(full, now)
                job.move("throttled", now)
                self._look_again(full, 0, now)
                self.model.settle(now)
                for other in names:
                    if other != full:
                        self._offer(other, full, now)
                return False
        for full in names:
            self._take(full, job, now)
        return True

    def _take(self, full: str, job: Job, now: int) -> None:
        self.holders.setdefault(full, set()).add(job.id)
        if not self.definition(full):
            self.undefined.add(full.partition(":")[0])
        slots, per = self.definition(full) or (0, 0)
        if per:
            self.starts[full] = [now, *self.starts.get(full, [])][:slots]

    def give_back(self, job: Job, now: int) -> None:
        for full in job.new.limits or ():
            if job.id in self.holders[full]:
                self.holders[full].discard(job.id)
                self._pass_up([full], now)

    def leave(self, job: Job, now: int) -> None:
        """A job that is not running ends, or goes elsewhere: if it was about to take slots, others may."""
        if job.state in ("waiting", "throttled"):
            parked_by = job.parked_by if job.state == "throttled" else ""
            self._pass_up([full for full in job.new.limits or () if full != parked_by], now)

    def _pass_up(self, names: Sequence[str], now: int) -> None:
        for full in names:
            if self.parked(full):
                self.hand_on(full, now, most=1)

    def hand_on(self, full: str, now: int, most: int | None = None) -> None:
        """As many as could start now, or `most`, become waiting, of each queue; no more than a call may do."""
        queues = {job.new.queue for job in self.parked(full)}
        free = self.free(full, self.handed_on + 1, now)
        wanted = free if most is None else min(free, most)
        count = min(wanted, max(1, self.handed_on // max(1, len(queues))))
        is_more = False
        for queue in queues if wanted > 0 else ():
            for job in self.parked(full, queue)[:count]:
                job.move("waiting", now)
            is_more = is_more or (count < wanted and bool(self.parked(full, queue)))
        if is_more:
            self._set_timer(full, now)
        elif self.parked(full):
            self._look_again(full, free, now)

    def _offer(self, full: str, but: str, now: int) -> None:
        """The first of each queue that has no part in another limit, which is full, becomes waiting.

        Those before it are parked by that one from now on, if it is the narrower of the two.
        """
        if self.free(full, 1, now) < 1:
            return
        for queue in {job.new.queue for job in self.parked(full)}:
            for job in self.parked(full, queue):
                if but not in (job.new.limits or ()):
                    job.move("waiting", now)
                    break
                if is_narrower(but, full):
                    job.parked_by = but
            else:
                if is_narrower(but, full):
                    self._set_timer(full, now)

    def _look_again(self, full: str, free: int, now: int) -> None:
        slots, per = self.definition(full) or (0, 0)
        if per:
            ends = self._ends(full, slots - free - 1, per, now) if free < slots else now + per
            self._set_timer(full, max(now, ends))

    def _set_timer(self, full: str, time: int) -> None:
        self.timers[full] = min(self.timers.get(full, time), time)

    # Verbs

    def limit(self, name: str, slots: int, per: int, ttl: int | None, now: int) -> bool:
        return self._store(name, (slots, per, now + ttl if ttl else 0), self.declared.get(name), now)

    def declare(self, name: str, slots: int, per: int, revision: int, now: int) -> str:
        """An older revision does not replace a newer one. What was set by hand goes on to apply."""
        if name in self.declared and self.declared[name][2] > revision:
            raise errors.WrongState
        by_hand = self.by_hand.get(name)
        changed = self._store(name, by_hand, (slots, per, revision), now)
        return "unchanged" if not changed else "overridden" if by_hand else "applied"

    def reset(self, name: str, now: int) -> bool:
        if name not in self.declared:
            raise errors.WrongState
        return self._store(name, None, self.declared[name], now)

    def unlimit(self, name: str, now: int) -> bool:
        was_noted = name in self.undefined
        self.undefined.discard(name)
        return self._store(name, None, None, now) or was_noted

    def expire(self, name: str, now: int) -> None:
        self._store(name, None, self.declared.get(name), now)

    def expiries(self) -> dict[str, int]:
        return {f"={name}": record[2] for name, record in self.by_hand.items() if record[2]}

    def _store(
        self, name: str, by_hand: tuple[int, int, int] | None, declared: tuple[int, int, int] | None, now: int
    ) -> bool:
        if (self.by_hand.get(name), self.declared.get(name)) == (by_hand, declared):
            return False
        before = self.definition(name)
        for records, record in ((self.by_hand, by_hand), (self.declared, declared)):
            records.pop(name, None)
            if record:
                records[name] = record
        if self.definition(name):
            self.undefined.discard(name)
        if self.definition(name) != before:
            self._review(name, now)
        slots, per = self.definition(name) or (0, 0)
        shown = f"{slots}/{per}" if per else f"{slots}" if slots else ""
        self.model.events.about("configured", name, {"what": "limit", "option": "slots", "value": shown})
        return True

    def release_slot(self, full: str, id: str, now: int) -> bool:
        """The job runs on without the slot; the next that is parked may have it. A start is never taken back."""
        _, per = self.definition(full) or (0, 0)
        if per or id not in self.holders.get(full, ()):
            raise errors.WrongState
        self.holders[full].discard(id)
        self.model.jobs[id].note(now, b"noted", f"its slot of limit {full} was released")
        self._pass_up([full], now)
        self.model.settle(now)
        self.model.events.about("configured", full, {"what": "limit", "option": "released", "value": id})
        return True

    def _review(self, name: str, now: int) -> None:
        for full in self._throttling(name):
            self.hand_on(full, now)

    def _throttling(self, name: str) -> set[str]:
        throttled = {job.parked_by for job in self.model.jobs.values() if job.state == "throttled"}
        return {full for full in throttled if full.partition(":")[0] == name}

    def parking(self, name: str) -> set[str]:
        """The queues with parked jobs, of all keys of a name."""
        return {job.new.queue for full in self._throttling(name) for job in self.parked(full)}

    def _held(self, name: str) -> dict[str, set[str]]:
        return {full: ids for full, ids in self.holders.items() if ids and full.partition(":")[0] == name}

    def stored_holders(self) -> dict[str, set[str]]:
        names = {full.partition(":")[0] for full, ids in self.holders.items() if ids}
        return {name: {f"{full} {id}" for full, ids in self._held(name).items() for id in ids} for name in names}

    def rows(self) -> list[LimitStatus]:
        return [self._row(name) for name in sorted({*self.defined, *self.undefined})]

    def _row(self, name: str) -> LimitStatus:
        slots, per = self.defined.get(name, (0, 0))
        declared, by_hand = self.declared.get(name), self.by_hand.get(name)
        parked = sum(len(self.parked(full)) for full in self._throttling(name))
        held = sum(map(len, self._held(name).values()))
        return LimitStatus(
            name,
            slots,
            per,
            len(self._throttling(name)),
            held,
            parked,
            by_hand is not None,
            utc(by_hand[2]) if by_hand and by_hand[2] else None,
            Limit(name, declared[0], per=declared[1] / 1000 or None) if declared else None,
            declared[2] if declared else 0,
        )

    def keys(self, name: str) -> list[LimitKey]:
        used = sorted({*self._throttling(name), *self._held(name)})
        return [LimitKey(full, len(self.holders.get(full, ())), len(self.parked(full))) for full in used]
