"""Reads from the store what a simulation starts from, in a number of calls that does not grow with the backlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from holdfast.client.config import config as read_config
from holdfast.client.limits import limits as read_limits
from holdfast.client.queries import App
from holdfast.client.queues import Load, load, queue_names
from holdfast.client.schedules import schedules as read_schedules
from holdfast.client.workers import workers as read_workers
from holdfast.planning.backlog import read_backlog
from holdfast.planning.fleet import Fleet, groups, shape_of
from holdfast.planning.model import Kind, LimitState, Running, Snapshot
from holdfast.store import Steps, commands
from holdfast.store.commands import MAX_EXPLAINED, Fields, HeldJob, LimitStatus, Worker
from holdfast.task.program import PROGRAM

MAX_QUEUES = 50  # in one plan
RARE = 3600.0  # seconds between two firings of a schedule; the arrivals of the last hour contain the others


@dataclass(frozen=True)
class Inputs:
    """What a plan is made from. `queues` are those that the user asked for; others share workers with them."""

    queues: list[str]
    loads: dict[str, Load]
    kinds: tuple[Kind, ...]
    fleet: Fleet
    running: tuple[Running, ...]
    limits: tuple[LimitState, ...]
    concurrency: dict[str, int]  # of queues that have a maximum of running jobs
    unreadable: frozenset[str]  # queues of whose jobs nothing is known
    left_out: int  # queues with work, beyond the maximum

    def snapshot(self, fleet: Fleet) -> Snapshot:
        paused = frozenset(name for name, each in self.loads.items() if each.paused)
        return Snapshot(
            self.kinds, groups(fleet, list(self.loads)), self.limits, self.running, paused, self.concurrency
        )

    def kinds_of(self, queue: str) -> list[Kind]:
        return [kind for kind in self.kinds if kind.queue == queue]

    def kinds_with_work(self, queue: str) -> list[Kind]:
        """Return the kinds of a queue that have jobs in its backlog, or running."""
        running = {each.kind for each in self.running}
        return [
            kind
            for place, kind in enumerate(self.kinds)
            if kind.queue == queue and (kind.waiting or kind.retrying or place in running)
        ]


def read_inputs(self: App, selected: Sequence[str]) -> Steps[Inputs]:
    """Read the queues of a plan, and those that share workers with them; without a selection, all that have work."""
    workers = yield from read_workers(self)
    fleet = Counter(shape_of(worker) for worker in workers if worker.is_live and not worker.is_draining)
    firings = yield from _read_rare_firings(self)
    loads, left_out = yield from _read_loads(self, selected, fleet, {firing.queue for firing in firings})
    held = [(worker, job) for worker in workers for job in worker.held if job.queue in loads]
    kinds: list[Kind] = []
    parked: dict[tuple[str, ...], str] = {}
    unreadable: set[str] = set()
    now = 0
    for queue, each in loads.items():
        backlog = yield from read_backlog(self, each, [job.task for _, job in held if job.queue == queue])
        now = backlog.now
        kinds += backlog.kinds
        parked |= backlog.parked
        unreadable |= set() if backlog.is_readable else {queue}
    kinds = _add_firings(kinds, firings)
    kinds = _add_workers(self, kinds, [worker for worker in workers if worker.is_live])
    kinds, limits = yield from _read_limits(self, kinds, parked, now)
    kinds, running = _place(kinds, held, now)
    concurrency = yield from _read_concurrency(self, loads)
    return Inputs(
        queues=[*selected] or list(loads), loads=loads, kinds=tuple(kinds), fleet=fleet, running=tuple(running),
        limits=limits, concurrency=concurrency, unreadable=frozenset(unreadable), left_out=left_out,
    )  # fmt: skip


def _read_concurrency(self: App, queues: Iterable[str]) -> Steps[dict[str, int]]:
    """Return the maximum number of running jobs of the queues that have one."""
    found: dict[str, int] = {}
    for queue in queues:
        values = {setting.name: setting.value for setting in (yield from read_config(self, queue))}
        if values["concurrency"]:
            found[queue] = values["concurrency"]
    return found


class _Firing(NamedTuple):
    """The next job of a schedule."""

    queue: str
    task: str
    due: float


def _read_loads(
    self: App, selected: Sequence[str], fleet: Fleet, expected: Container[str]
) -> Steps[tuple[dict[str, Load], int]]:
    """Read the loads of the selected queues, and of others with work that the same workers serve; or of all."""
    sharing = [shape for shape in fleet if not selected or shape.serves(selected)]
    names = yield from queue_names()
    wanted = [
        name
        for name in names
        if name not in selected and (not selected or any(each.serves([name]) for each in sharing))
    ]
    loads = (yield from load(self, *selected, *wanted)) if selected or wanted else []
    first, others = (
        loads[: len(selected)],
        [each for each in loads[len(selected) :] if _has_work(each) or each.queue in expected],
    )
    others.sort(key=lambda each: each.waiting + each.throttled + each.running, reverse=True)
    room = max(0, MAX_QUEUES - len(first))
    return {each.queue: each for each in (*first, *others[:room])}, len(others[room:])


def _has_work(load: Load) -> bool:
    return bool(load.waiting + load.throttled + load.scheduled + load.running) or load.arriving > 0


def _read_rare_firings(self: App) -> Steps[list[_Firing]]:
    """Return the next job of each schedule that fires so rarely that the last hour may not contain it."""
    found = []
    for schedule in (yield from read_schedules(self)):
        times = schedule.next(2)
        if len(times) == 1 or (len(times) == 2 and (times[1] - times[0]).total_seconds() > RARE):
            due = (times[0] - schedule.looked_at).total_seconds()
            found.append(_Firing(schedule.queue, schedule.task, due))
    return found


def _add_firings(kinds: Sequence[Kind], firings: Sequence[_Firing]) -> list[Kind]:
    """Add jobs of schedules, as far as something is known about their tasks."""
    found, places = [*kinds], _largest_kinds(kinds)
    for firing in firings:
        place = places.get((firing.queue, firing.task))
        if place is not None:
            found[place] = replace(found[place], delayed=(*found[place].delayed, (firing.due, 1.0)))
    return found


def _add_workers(self: App, kinds: list[Kind], live: Sequence[Worker]) -> list[Kind]:
    """Add which kinds have a worker with their task, and which take no process."""
    in_process = {name for worker in live for name in worker.tasks_in_process}
    if not live:
        in_process = {name for name, task in self.tasks.items() if task.is_async}
    known = {
        queue: _known_tasks([each for each in live if queue in each.queues]) for queue in {kind.queue for kind in kinds}
    }
    return [
        replace(
            kind,
            in_process=kind.task in in_process,
            is_known=(tasks := known[kind.queue]) is None or kind.task in tasks,
        )
        for kind in kinds
    ]


def _known_tasks(serving: Sequence[Worker]) -> set[str] | None:
    """Return the tasks of these workers; None if one of them does not report its tasks, or there are no workers."""
    found = {PROGRAM} if any(worker.allows_exec for worker in serving) else set[str]()
    for worker in serving:
        if worker.tasks is None:
            return None
        found.update(worker.tasks)
    return found if serving else None


def _read_limits(
    self: App, kinds: Sequence[Kind], parked: Mapping[tuple[str, ...], str], now: int
) -> Steps[tuple[list[Kind], tuple[LimitState, ...]]]:
    """Return the kinds with the limits that are enforced, and these limits."""
    defined = {each.name: each for each in (yield from read_limits(self))}
    closed = {kind.limits for kind in kinds if kind.limits in parked and _has_period(kind.limits, defined)}
    next_starts = yield from _read_next_starts([parked[names] for names in sorted(closed)])
    kinds = [replace(kind, limits=_enforced(kind.limits, defined)) for kind in kinds]
    return kinds, _limits(kinds, defined, {name: max(0.0, (at - now) / 1000) for name, at in next_starts.items()})


def _enforced(limits: Sequence[str], defined: Mapping[str, LimitStatus]) -> tuple[str, ...]:
    """Leave out limits that nobody has defined: they hold nothing up."""
    return tuple(name for name in limits if (found := defined.get(_bare(name))) and found.is_defined)


def _bare(limit: str) -> str:
    return limit.partition(":")[0]


def _has_period(limits: Sequence[str], defined: Mapping[str, LimitStatus]) -> bool:
    return any(defined[_bare(name)].per for name in _enforced(limits, defined))


def _read_next_starts(parked: Sequence[str]) -> Steps[dict[str, int]]:
    """Return when the limits that hold up these jobs let the next ones start; 0 for limits without a period."""
    found: dict[str, int] = {}
    for first in range(0, len(parked), MAX_EXPLAINED):
        rows: list[Fields | None] = yield commands.explain(parked[first : first + MAX_EXPLAINED])
        reasons = [facts for row in rows if row for code, facts in row["reasons"] if code == "limit"]
        found |= {facts["limit"]: facts["next"] for facts in reasons}
    return found


def _limits(
    kinds: Sequence[Kind], defined: Mapping[str, LimitStatus], opens_after: Mapping[str, float]
) -> tuple[LimitState, ...]:
    found = []
    for name in sorted({name for kind in kinds for name in kind.limits}):
        limit = defined[_bare(name)]
        found.append(LimitState(name, limit.slots, limit.per / 1000, opens_after.get(name, 0.0) if limit.per else 0.0))
    return tuple(found)


def _place(kinds: Sequence[Kind], held: Sequence[tuple[Worker, HeldJob]], now: int) -> tuple[list[Kind], list[Running]]:
    """Say of which kind each running job is. Jobs of dead workers wait again: their leases expire soon."""
    placed, running, places = [*kinds], [], _largest_kinds(kinds)
    for worker, job in held:
        place = places.get((job.queue, job.task))
        if place is not None and worker.is_live:
            elapsed = max(0.0, now / 1000 - job.claimed_at.timestamp())
            running.append(Running(place, elapsed, not worker.is_draining))
        elif place is not None:
            placed[place] = replace(placed[place], waiting=placed[place].waiting + 1)
    return placed, running


def _largest_kinds(kinds: Sequence[Kind]) -> dict[tuple[str, str], int]:
    """Return the position of the kind of each task of a queue that has most jobs."""
    places = sorted(range(len(kinds)), key=lambda place: (kinds[place].waiting, -place))
    return {(kinds[place].queue, kinds[place].task): place for place in places}
