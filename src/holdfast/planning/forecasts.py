"""Forecasts: many simulations of one snapshot, and what they have in common.

Each simulation draws anew what is not known exactly: the mean run time of each task, as uncertain as few runs make it,
and what the backlog consists of, as uncertain as the sample leaves it.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import msgspec

from holdfast.planning.model import Kind, Snapshot
from holdfast.planning.simulation import HORIZON, Drained, Simulation

MAX_RUNS, MIN_RUNS = 40, 9  # simulations
ENOUGH_RUNS = 3  # if more would take too long
MAX_EVENTS = 50_000  # of all simulations together
MAX_SECONDS = 10.0  # of processor time, for all simulations with one number of workers
REASONS = {
    "": "",
    "slots": "all slots are busy",
    "limit": "limit {name}",
    "concurrency": "the concurrency of the queue",
    "paused": "the queue is paused",
    "no_worker": "no worker serves the queue",
    "task": "no worker has the task {name}",
    "retries": "waits before retries",
    "running": "jobs that run",
    "arrivals": "more jobs arrive than are done",
    "unknown": "too little is known",
    "complexity": "it takes too long to simulate; plan fewer queues",
}
TAIL = 0.1  # the fraction of simulations that end before the range, and after it


class Forecast(msgspec.Struct, frozen=True):
    """When the backlog of a queue will be gone. Times are in seconds; None: not within 30 days.

    `after` is the middle of all simulations; eight of ten end between `earliest` and `latest`. `held_up_by` says what
    determines that time: slots, limit, concurrency (of the queue), paused, no_worker, task (no worker has it), retries
    (their waits), running (the jobs that run now, or the last ones), arrivals (more jobs arrive than are done), unknown
    (too little: see the notes), complexity (the simulation was stopped, so nothing is known), or "" if there is no
    backlog. `name` is that of the limit or the task.
    """

    workers: int  # that serve the queue
    after: float | None
    earliest: float | None
    latest: float | None
    rate: float | None  # attempts per second that end until then
    held_up_by: str
    name: str = ""

    @property
    def reason(self) -> str:
        """What holds the queue up, as text."""
        return REASONS[self.held_up_by].format(name=self.name)


def simulate(snapshot: Snapshot) -> dict[str, list[Drained]]:
    """Simulate often enough for a range; return what became of each queue, in each simulation."""
    found: dict[str, list[Drained]] = defaultdict(list)
    events = runs = 0
    max_events = MAX_EVENTS / (1 + len(snapshot.kinds) / 10)  # with many kinds, each event takes longer
    deadline = time.thread_time() + MAX_SECONDS
    while runs < MIN_RUNS or (runs < MAX_RUNS and events < max_events):
        dice = Random(runs)  # noqa: S311 - no secret
        simulation = Simulation(replace(snapshot, kinds=resample(snapshot.kinds, dice)), dice, deadline)
        simulated = simulation.run()
        is_late = time.thread_time() > deadline
        if is_late and runs >= ENOUGH_RUNS:
            break
        for queue, drained in simulated.items():
            found[queue].append(drained)
        if is_late:
            break
        events, runs = events + simulation.events, runs + 1
    return found


def resample(kinds: Sequence[Kind], dice: Random) -> tuple[Kind, ...]:
    """Draw anew how the jobs of each queue are divided among kinds, as another sample might have shown it."""
    drawn = {number: _draw(kind, dice) for number, kind in enumerate(kinds) if kind.sampled}
    before, after = Counter[str](), Counter[str]()
    for number, waiting in drawn.items():
        before[kinds[number].queue] += kinds[number].waiting  # type: ignore[assignment]
        after[kinds[number].queue] += waiting  # type: ignore[assignment]
    return tuple(
        replace(kind, waiting=drawn[number] * before[kind.queue] / (after[kind.queue] or 1))
        if number in drawn
        else kind
        for number, kind in enumerate(kinds)
    )


def _draw(kind: Kind, dice: Random) -> float:
    return kind.waiting * max(0.0, 1 + dice.gauss(0, 1) / math.sqrt(kind.sampled))


def forecast(runs: Sequence[Drained], kinds: Sequence[Kind], workers: int, *, is_unknown: bool = False) -> Forecast:
    """Say when the backlog of a queue will be gone, from what became of it in each simulation."""
    if not runs and not is_unknown:  # the queue has no jobs
        return Forecast(workers, 0.0, 0.0, 0.0, None, "")
    if any(drained.is_cut for drained in runs):
        return Forecast(workers, None, None, None, None, "complexity")
    times = sorted(math.inf if drained.after is None else drained.after for drained in runs)
    held_up: Counter[str] = sum((drained.held_up for drained in runs), Counter())
    reason, _, name = max(held_up, key=held_up.__getitem__, default="").partition(":")
    if is_unknown:
        reason = "unknown" if reason in ("slots", "running", "") else reason
        return Forecast(workers, None, None, None, None, reason, name)
    after, earliest, latest = (_quantile(times, fraction) for fraction in (0.5, TAIL, 1 - TAIL))
    if after is None and reason == "slots" and _grows(runs, kinds):
        reason = "arrivals"
    ended = sum(drained.ended for drained in runs)
    seconds = sum(HORIZON if drained.after is None else drained.after for drained in runs)
    return Forecast(workers, after, earliest, latest, ended / seconds if seconds else None, reason, name)


def _quantile(times: Sequence[float], fraction: float) -> float | None:
    time = times[round(fraction * (len(times) - 1))]
    return None if math.isinf(time) else time


def _grows(runs: Sequence[Drained], kinds: Sequence[Kind]) -> bool:
    """Return whether more jobs are left at the end than there are now."""
    return sum(drained.left for drained in runs) / len(runs) > sum(kind.waiting for kind in kinds)
