"""So many at once, or in any period, in plain Python: the rules at the heads of `limit.lua` and `limits.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.commands import LimitRow
from tests.model_job import Job

if TYPE_CHECKING:
    from tests.model import Model


class Limits:
    """Who has which slots, and who is parked by which limit: the throttled jobs say so themselves."""

    def __init__(self, model: Model, handed_on: int) -> None:
        self.model = model
        self.handed_on = handed_on  # at once
        self.defined: dict[str, tuple[int, int]] = {}  # slots and period (0: at once), by name
        self.holders: dict[str, set[str]] = {}
        self.starts: dict[str, list[int]] = {}  # the newest first
        self.timers: dict[str, int] = {}

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
                self._set_timer(full, now)
                self.model.settle(now)
                self._pass_up([name for name in names if name != full], now)
                return False
        for full in names:
            self._take(full, job, now)
        return True

    def _take(self, full: str, job: Job, now: int) -> None:
        self.holders.setdefault(full, set()).add(job.id)
        slots, per = self.definition(full) or (0, 0)
        if per:
            self.starts[full] = [now, *self.starts.get(full, [])][:slots]

    def give_back(self, job: Job, now: int) -> None:
        for full in job.new.limits or ():
            self.holders[full].discard(job.id)
            self._pass_up([full], now)

    def leave(self, job: Job, now: int) -> None:
        """A job that is not running ends, or goes elsewhere: if it was about to take slots, others may."""
        if job.state == "waiting":
            self._pass_up(job.new.limits or (), now)

    def _pass_up(self, names: Sequence[str], now: int) -> None:
        for full in names:
            if self.parked(full):
                self.hand_on(full, now)

    def hand_on(self, full: str, now: int) -> None:
        """As many as could start now become waiting, of each queue; no more than a call may do."""
        queues = {job.new.queue for job in self.parked(full)}
        free = self.free(full, self.handed_on + 1, now)
        count = min(free, max(1, self.handed_on // max(1, len(queues))))
        is_more = False
        for queue in queues if free > 0 else ():
            for job in self.parked(full, queue)[:count]:
                job.move("waiting", now)
            is_more = is_more or (count < free and bool(self.parked(full, queue)))
        if is_more:
            self.timers[full] = now
        elif self.parked(full):
            self._set_timer(full, now)

    def _set_timer(self, full: str, now: int) -> None:
        slots, per = self.definition(full) or (0, 0)
        if per:
            self.timers[full] = max(now, self._ends(full, slots - 1, per, now))

    # Verbs

    def limit(self, name: str, slots: int, per: int, now: int) -> bool:
        if self.defined.get(name) == (slots, per):
            return False
        self.defined[name] = slots, per
        self._review(name, now)
        return True

    def unlimit(self, name: str, now: int) -> bool:
        if name not in self.defined:
            return False
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

    def rows(self) -> list[LimitRow]:
        return [
            LimitRow(
                name,
                *definition,
                len(self._throttling(name)),
                len(self.holders.get(name, ())),
                len(self.parked(name)),
            )
            for name, definition in self.defined.items()
        ]
