"""Operations, in plain Python: the rules at the head of `operations.lua`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.constants import OPERATION_TIMEOUT, OPERATION_TTL
from tests.model.filters import Filter, SetOrder, absolute, is_in_window, matches, members, place_in, sets
from tests.model.job import FINAL, STATES, Job, Order

if TYPE_CHECKING:
    from tests.model.core import Core

PAUSE = 20
BUDGET, OPEN, ID, LOOK, ACT = 800, 2, 0.3, 2, 20  # see find.lua
Segment = tuple[str, str, int]  # queue, state, and part of its index: 0 for jobs that were set aside; or a filter


@dataclass
class Operation:
    action: str
    filter: Filter  # with times that do not count from now
    arguments: dict[str, Any]
    started: int
    total: int
    state: str = "running"
    steps: int = 0
    looked_at: int = 0
    index: str | None = None  # the filter whose set it reads; "": indexes by queue and state; None: not chosen yet
    segment: Segment | None = None  # where it is
    last: Order | SetOrder | None = None  # the last job that it looked at there
    answers: Counter[str] = field(default_factory=Counter)
    acted: set[str] = field(default_factory=set)  # at the time of the start

    def row(self) -> tuple[Any, ...]:
        return self.action, self.state, self.started, self.steps, self.looked_at, self.total, dict(self.answers)

    @property
    def bounds(self) -> Filter:
        return {**self.filter, "until": min(self.filter.get("until", self.started), self.started)}


class Operations:
    def __init__(self, model: Core) -> None:
        self.model = model
        self.all: dict[str, Operation] = {}
        self.begun = 0  # how many ids were used
        self.running: dict[str, int] = {}  # when upkeep continues them
        self.is_stepped = False  # in this call
        self.published = False  # events, since they were last looked at

    def begin_call(self) -> None:
        self.is_stepped = False

    def start(self, id: str, action: str, arguments: dict[str, Any], filter: Filter, now: int) -> tuple[Any, ...]:
        if id not in self.all:
            made = Operation(action, absolute(filter, now), arguments, now, 0)
            made.total = self._choose(made)[1]
            self.all[id], self.running[id] = made, now + OPERATION_TIMEOUT
        return self.row(id)

    def _choose(self, operation: Operation) -> tuple[str, int]:
        """Return the smallest index, and how many entries it has."""
        filter = operation.bounds
        by_state = sum(
            is_in_window(job, filter)
            for job in self.model.jobs.values()
            if job.state in filter.get("states", STATES) and job.new.queue in filter.get("queues", self.model.queues)
        )
        sizes = {name: len(jobs) for name, jobs in sets(self.model, filter).items()}
        chosen = min(sizes, key=lambda name: sizes[name], default="")
        return (chosen, sizes[chosen]) if chosen and sizes[chosen] <= by_state else ("", by_state)

    def row(self, id: str) -> tuple[Any, ...]:
        if id not in self.all:
            raise errors.OperationNotFound
        return id, *self.all[id].row()

    def go_on(self, id: str, step: int, limit: int | None, now: int) -> tuple[Any, ...]:
        self.row(id)
        operation = self.all[id]
        if operation.state == "running" and operation.steps == step:
            self._step(id, now, limit, BUDGET, OPERATION_TIMEOUT)
        return self.row(id)

    def stop(self, id: str) -> tuple[Any, ...]:
        self.row(id)
        if self.all[id].state == "running":
            self.all[id].state = "stopped"
            del self.running[id]
        return self.row(id)

    def resume(self, id: str, now: int) -> tuple[Any, ...]:
        self.row(id)
        if self.all[id].state == "stopped":
            self.all[id].state, self.running[id] = "running", now + OPERATION_TIMEOUT
        return self.row(id)

    def expire(self, now: int) -> None:
        """Forget those that started long ago, unless they run."""
        for id, each in [*self.all.items()]:
            if each.started <= now - OPERATION_TTL and id not in self.running:
                del self.all[id]

    def upkeep(self, now: int) -> None:
        """Go on with the one that has waited longest, if nobody does."""
        if self.running:
            due, id = min((due, id) for id, due in self.running.items())
            if due <= now or due > now + OPERATION_TIMEOUT:
                self.is_stepped = self.published = True
                self._step(id, now, None, self.model.steps.share, PAUSE)

    def next_step(self, now: int) -> int | None:
        return max(0, min(OPERATION_TIMEOUT, min(self.running.values()) - now)) if self.running else None

    def stored(self) -> dict[str, tuple[Any, ...]]:
        return {
            id: (each.state, each.steps, each.looked_at, dict(each.answers), each.acted, self.running.get(id))
            for id, each in self.all.items()
        }

    # A step

    def _step(self, id: str, now: int, limit: int | None, left: float, pause: int) -> None:
        """Act on up to `limit` jobs, and spend what is left."""
        operation = self.all[id]
        operation.steps += 1
        if operation.index is None:
            operation.index = self._choose(operation)[0]
        self.running[id] = now + pause
        found = 0
        for segment in self._segments(operation):
            if segment != operation.segment:
                operation.segment, operation.last = segment, None
            is_full = True
            while is_full:
                if left <= 0:
                    return
                part = [(self._order(operation, job), job) for job in self._jobs(operation)[: self.model.steps.chunk]]
                left, is_full = left - OPEN, len(part) == self.model.steps.chunk
                for operation.last, job in part:
                    operation.looked_at += 1
                    is_match, left = self._look(operation, job, now, left)
                    found += is_match
                    if left <= 0 or found == limit:
                        return
        operation.state = "done"
        operation.acted = set()
        del self.running[id]

    def _segments(self, operation: Operation) -> Iterator[Segment]:
        """Those that are left, and the one where it is."""
        if operation.index:
            yield operation.index, "", 0
            return
        queues = list(dict.fromkeys(operation.filter.get("queues", sorted(self.model.queues))))
        yield from self._segments_of(operation, queues)
        while queues and "queues" not in operation.filter:  # the action may have made queues
            queues = sorted(queue for queue in self.model.queues if queue > queues[-1])
            yield from self._segments_of(operation, queues)

    def _segments_of(self, operation: Operation, queues: list[str]) -> Iterator[Segment]:
        states = list(dict.fromkeys(operation.filter.get("states", STATES)))
        at = operation.segment
        for queue in queues:
            if at and "queues" not in operation.filter and queue < at[0]:
                continue
            for state in states:
                for part in (0, 1) if state in FINAL else (1,):
                    if at and at[0] in queues:
                        place = (queues.index(queue), states.index(state), part)
                        if place < (queues.index(at[0]), states.index(at[1]), at[2]):
                            continue
                    yield queue, state, part

    def _jobs(self, operation: Operation) -> list[Job]:
        """What the index has behind the place where it is, when it is opened."""
        assert operation.segment
        if operation.index:
            jobs = members(self.model, operation.index, operation.bounds)
            return [job for job in jobs if operation.last is None or self._order(operation, job) > operation.last]
        queue, state, part = operation.segment
        jobs = [job for job in self.model.index(queue, state) if is_in_window(job, operation.bounds)]
        if state in FINAL:
            jobs = [job for job in jobs if (job.place >= 0) == (part == 1)]
        return [job for job in jobs if operation.last is None or job.order() > operation.last]

    def _order(self, operation: Operation, job: Job) -> Any:
        return place_in(self.model, job, operation.filter, operation.index) if operation.index else job.order()

    def _look(self, operation: Operation, job: Job, now: int, left: float) -> tuple[bool, float]:
        """Return whether the job matches, and what is left to spend."""
        model = self.model
        left -= ID
        if not job.id.startswith(operation.filter.get("id_prefix", "")):
            return False, left
        left -= LOOK
        is_there = model.jobs.get(job.id) is job
        if not is_there or not matches(model, job, operation.bounds, now):
            return False, left
        if (now <= operation.started or operation.acted) and job.id in operation.acted:
            return True, left
        operation.answers[self._act(operation, job.id, now)] += 1
        model.settle(now)
        if now <= operation.started:
            operation.acted.add(job.id)
        return True, left - ACT

    def _act(self, operation: Operation, id: str, now: int) -> str:
        model: Any = self.model
        name, arguments, marks = operation.action, operation.arguments, self.model.marks
        actions: dict[str, Callable[[], str]] = {
            "tag": lambda: marks.tag(id, now=now, **arguments),
            "untag": lambda: marks.untag(id, **arguments),
            "track": lambda: marks.track(id, now),
            "untrack": lambda: marks.untrack(id),
            "cancel": lambda: model._cancel(id, now=now, **arguments),
            "retry": lambda: model._retry(id, now, **arguments),
            "delete": lambda: model._delete(id),
        }
        if name in actions:
            return actions[name]()
        job = model.jobs[id]
        return "STATE" if job.state in FINAL else str(getattr(model.operators, name)(job, now=now, **arguments))
