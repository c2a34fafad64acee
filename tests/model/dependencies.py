"""The model of dependencies: the rules at the heads of `dependencies.lua`, `depend.lua` and `cancel.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from holdfast import errors
from tests.model.job import FINAL, Job, Mark
from tests.support.new_job import NewJob

if TYPE_CHECKING:
    from tests.model.core import Core

LETTERS = {"succeeded": "S", "failed": "F", "cancelled": "C"}
CONTINUED_AT_ONCE = 100
FIRST = float("-inf")
DOOMED = "one of its dependencies has failed"


def described(add: Sequence[str], remove: Sequence[str], on_failed: str | None) -> str:
    parts = [f"{verb} {', '.join(ids)}" for verb, ids in (("not on", remove), ("on", add)) if ids]
    return "; ".join([*parts, f"if one fails: {on_failed}"] if on_failed else parts)


@dataclass
class Ended:
    """A job of which others are to be told that it has ended, or begun again; those behind a place in line."""

    id: str
    letter: str
    behind: float = FIRST


class Dependencies:
    """Who waits for whom. A job is in line with those it waits for only while it is blocked."""

    def __init__(self, model: Core) -> None:
        self.model = model
        self.lines: dict[str, dict[str, int]] = {}  # job -> those that wait for it, and their places
        self.ended: list[Ended] = []  # in this call
        self.rest: dict[str, Ended] = {}  # of earlier calls
        self.is_unfinished = False  # there is, or was, such a rest
        self.left = 0  # how many more may be told in this call
        self.named: set[str] = set()  # by jobs of this call, stored or not
        self.outcomes: dict[str, str] = {}  # letters of those that others waited for and that were removed since

    def begin_call(self) -> None:
        self.left = self.model.steps.told

    def letter(self, id: str) -> str:
        return LETTERS.get(self.model.jobs[id].state, "-")

    def line(self, id: str) -> list[str]:
        line = self.lines.get(id, {})
        return sorted(line, key=line.__getitem__)

    def has_heirs(self, id: str) -> bool:
        """Whether some wait for a job that is gone, and are about to be told: they wait for a new one of its id."""
        return self.is_unfinished and bool(self.line(id))

    def all_lines(self) -> dict[str, set[str]]:
        return {id: set(line) for id, line in self.lines.items() if line}

    # Beginning to wait

    def rename(self, jobs: Sequence[NewJob], names: Sequence[str]) -> list[NewJob]:
        """Who waits for a job of this call that has another id because of its unique key waits for that one."""
        known_as = {new.id: name for new, name in zip(jobs, names, strict=True)}
        if any(len(set(new.after or ())) < len(new.after or ()) for new in jobs):
            raise errors.Invalid
        return [
            msgspec.structs.replace(new, after=tuple(dict.fromkeys(known_as.get(id, id) for id in new.after)))
            if new.after
            else new
            for new in jobs
        ]

    def check_new(self, jobs: Sequence[NewJob], stored: dict[str, NewJob]) -> None:
        """Refuse jobs that wait for what is not there, or for themselves. `stored` are by their ids."""
        for new in jobs:
            if not {*(new.after or ())} <= {*self.model.jobs, *self.outcomes, *stored}:
                raise errors.JobNotFound
        for id in stored:
            if self._reaches({id}, {other: set(new.after or ()) for other, new in stored.items()}):
                raise errors.DependencyCycle

    def would_wait_for_itself(self, id: str, others: Sequence[str]) -> bool:
        """Only blocked jobs wait, and for what is not as it must be; one that becomes so is looked at then."""
        blocked = {name: job for name, job in self.model.jobs.items() if job.state == "blocked"}
        marks = {name: {other for other in job.marks if not job.is_satisfied(other)} for name, job in blocked.items()}
        return self._reaches({id}, {**marks, id: set(others)})

    @staticmethod
    def _reaches(goal: set[str], edges: dict[str, set[str]]) -> bool:
        seen: set[str] = set()
        more = {other for id in goal for other in edges.get(id, ())}
        while more:
            seen |= more
            more = {other for id in more for other in edges.get(id, ())} - seen
        return bool(seen & goal)

    def begin(self, job: Job, arrival: int) -> bool:
        """Have a new job wait for what it says, or one that goes on as another. True: it is to be cancelled."""
        job.policy = (job.new.after and job.new.on_failed) or "block"
        for place, id in enumerate(job.new.after or (), 1):
            there = id in self.model.jobs and id not in self.model.storing
            if id in self.outcomes and id not in self.model.storing:
                job.marks[id] = Mark(place, self.outcomes[id])
                continue
            job.marks[id] = Mark(place, self.letter(id) if there else "-")
            self._stand(job, id, arrival)
        return job.policy == "cancel" and any(mark.letter in "FC" for mark in job.unsatisfied())

    def begin_while_running(self, job: Job, ids: Sequence[str]) -> None:
        """However they end. Those that have ended, or are gone, are not waited for."""
        self._forget_waits(job)
        for id in ids:
            if id in self.model.jobs and self.model.jobs[id].state not in FINAL:
                place = job.marks[id].place if id in job.marks else 0
                job.marks[id] = Mark(place, "-", however=True)
                self._stand(job, id, self.model.next_arrival())

    def begin_again(self, job: Job, now: int) -> None:
        """Of a job that had ended. It waits for those that are not as they must be now."""
        self._forget_waits(job)
        for id in [*job.marks]:
            self._look_again(job, id, now)

    def _forget_waits(self, job: Job) -> None:
        job.marks = {id: mark for id, mark in job.marks.items() if mark.place}

    def _look_again(self, job: Job, id: str, now: int) -> None:
        """What it waits for is as it is now; if it is gone, as it ended, or as it was known last, if its end was."""
        if id in self.model.jobs:
            if self.letter(id) != job.marks[id].letter:
                job.marks[id].learn(self.letter(id), now)
            self._stand(job, id, self.model.next_arrival())
            return
        before = job.marks[id].letter
        if self.outcomes.get(id, before) != before:
            job.marks[id].learn(self.outcomes[id], now)
        if before == "-" or job.is_satisfied(id):
            self.lines.get(id, {}).pop(job.id, None)
        if job.marks[id].letter == "-":
            del job.marks[id]

    def _stand(self, job: Job, id: str, place: int) -> None:
        """In line with one that it waits for, or not any more."""
        if id in self.model.jobs and id not in self.model.storing:  # or it is about to be replaced
            self.model.jobs[id].awaited = True
        if job.is_satisfied(id):
            self.lines.get(id, {}).pop(job.id, None)
        else:
            self.lines.setdefault(id, {})[job.id] = place

    def leave(self, job: Job) -> None:
        for line in self.lines.values():
            line.pop(job.id, None)

    # Verbs

    def depend(
        self, id: str, add: Sequence[str], remove: Sequence[str], on_failed: str | None, now: int
    ) -> tuple[str, int]:
        job = self.model.jobs.get(id)
        if not job:
            raise errors.JobNotFound
        self._check_depend(job, add, remove)
        if job.state == "scheduled":
            job.due = job.timer
        job.policy = on_failed or job.policy
        job.note_wait()
        if words := described(add, remove, on_failed):
            job.note(now, b"dependencies", words)
        self._relink(job, add, remove, now)
        left = job.unsatisfied()
        if job.policy == "cancel" and any(mark.letter in "FC" for mark in left):
            self.doom(job, now)
        elif left and job.state != "blocked":
            self.model.block(job, now)
        elif not left and job.state == "blocked":
            self.unblock(job, now)
        self.model.settle(now)
        return job.state, len(left)

    def _check_depend(self, job: Job, add: Sequence[str], remove: Sequence[str]) -> None:
        if job.state in ("running", *FINAL):
            raise errors.WrongState
        if len(set(add)) < len(add):
            raise errors.Invalid
        if not set(add) <= {*self.model.jobs, *self.outcomes}:
            raise errors.JobNotFound
        if len(set(remove)) < len(remove):
            raise errors.Invalid
        if self.would_wait_for_itself(job.id, [*(set(job.marks) - set(remove)), *add]):
            raise errors.DependencyCycle

    def _relink(self, job: Job, add: Sequence[str], remove: Sequence[str], now: int) -> None:
        for id in remove:
            job.marks.pop(id, None)
            self.lines.get(id, {}).pop(job.id, None)
        last = max((mark.place for mark in job.marks.values()), default=0)
        for id in [*job.marks]:
            if id not in add:
                self._look_again(job, id, now)
        for place, id in enumerate(add, last + 1):
            there = id in self.model.jobs
            job.marks[id] = Mark(place, self.letter(id) if there else self.outcomes[id])
            arrival = self.model.next_arrival()
            if there:
                self._stand(job, id, arrival)
            elif job.is_satisfied(id):
                self.lines.get(id, {}).pop(job.id, None)

    def all_dependents(self, ids: Sequence[str]) -> list[str]:
        """All that wait for some, directly or not, the nearest first."""
        found = [*ids]
        for id in found:
            found += [other for other in self.line(id) if other not in found]
        return found[len(ids) :]

    def doom(self, job: Job, now: int) -> None:
        job.note(now, b"cancelled", DOOMED, who="")
        self.model.conclude(job, "cancelled", now, {"reason": DOOMED})

    def unblock(self, job: Job, now: int) -> None:
        self.model.arrive(job)
        if job.due > now:
            job.move("scheduled", now, place=job.due, timer=job.due)
        else:
            self.model.to_waiting(job, now)
        self.model.event("unblocked", job)

    # Telling those that wait

    def note_end(self, id: str, letter: str) -> None:
        self.ended.append(Ended(id, letter))

    def settle(self, now: int) -> None:
        """Tell those that wait for what ended, and what that ends in turn; a bounded number in a call."""
        for ended in self.ended:  # it grows meanwhile
            told = [id for id in self.line(ended.id) if self.lines[ended.id][id] > ended.behind][: self.left]
            behind = self.lines[ended.id][told[-1]] if told else ended.behind
            for id in told:
                self._tell_one(self.model.jobs.get(id), ended, now)
            if len(told) == self.left:
                self.rest[ended.id] = Ended(ended.id, ended.letter, behind)
                self.is_unfinished = True
            elif ended.id not in self.model.jobs:
                self.lines.pop(ended.id, None)
            self.left -= len(told)
        self.ended = []

    def _tell_one(self, job: Job | None, ended: Ended, now: int) -> None:
        """It may have ended just now, because of another."""
        if not job or job.state != "blocked":
            return
        job.marks[ended.id].learn(ended.letter, now)
        if job.is_satisfied(ended.id):
            self.lines[ended.id].pop(job.id, None)
        if not job.unsatisfied():
            self.unblock(job, now)
        elif job.policy == "cancel" and ended.letter in "FC" and not job.is_satisfied(ended.id):
            word = "failed" if ended.letter == "F" else "cancelled"
            job.note(now, b"cancelled", f"job {ended.id} {word}", who="")
            self.model.conclude(job, "cancelled", now, {"by": ended.id, "reason": f"dependency {word}"})

    def go_on(self, now: int) -> None:
        """With what earlier calls left, unless the job is not as it was by now."""
        for id in [*self.rest][:CONTINUED_AT_ONCE]:
            ended = self.rest.pop(id)
            if id not in self.model.jobs or self.letter(id) == ended.letter:
                self.ended.append(ended)
        self.settle(now)
        self.is_unfinished = bool(self.rest)

    def remember(self, job: Job) -> None:
        """How a job ended that goes, if others waited for it."""
        if job.awaited:
            self.outcomes[job.id] = LETTERS[job.state]

    def forget(self, id: str) -> None:
        """A job goes. Those that wait for it are not told any more, unless that is under way."""
        if id not in self.rest:
            self.lines.pop(id, None)
