"""The model of limits: the rules at the heads of `limits.lua` and `limit_definitions.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.store.commands import Limit
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
        self.defined: dict[str, tuple[int, int]] = {}  # slots and period (0: at once), by name
        self.holders: dict[str, set[str]] = {}
        self.starts: dict[str, list[int]] = {}  # the newest first
        self.timers: dict[str, int] = {}
        self.undefined: set[str] = set()  # that jobs took part in

    def definition(self, full: str) -> tuple[int, int] | None:
        return self.defined.get(full.partition(":")[0])

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
                job.move("throttled", now)
                job.parked_by = full
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

    def limit(self, name: str, slots: int, per: int, now: int) -> bool:
        if self.defined.get(name) == (slots, per):
            return False
        self.defined[name] = slots, per
        self.undefined.discard(name)
        self._review(name, now)
        return True

    def unlimit(self, name: str, now: int) -> bool:
        was_noted = name in self.undefined
        self.undefined.discard(name)
        if name not in self.defined:
            return was_noted
        del self.defined[name]
        self._review(name, now)
        return True

    def _review(self, name: str, now: int) -> None:
        for full in self._throttling(name):
            self.hand_on(full, now)
        self.model.events.append(("configured", name))

    def _throttling(self, name: str) -> set[str]:
        throttled = {job.parked_by for job in self.model.jobs.values() if job.state == "throttled"}
        return {full for full in throttled if full.partition(":")[0] == name}

    def rows(self) -> list[Limit]:
        return [
            Limit(
                name,
                *definition,
                len(self._throttling(name)),
                len(self.holders.get(name, ())),
                len(self.parked(name)),
            )
            for name, definition in [*self.defined.items(), *((name, (0, 0)) for name in self.undefined)]
        ]
