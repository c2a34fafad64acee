"""The model of overdue timers: the rules at the heads of `overdue.lua` and `upkeep.lua`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.model.core import Core


def count(model: Core, now: int) -> int:
    return sum(time <= now for time in model.timers().values()) + model.dependencies.is_unfinished


def by_queue(model: Core, now: int) -> Counter[str]:
    """How many schedules, limits and deadlines that are overdue each queue has."""
    found: Counter[str] = Counter()
    for timer, time in model.timers().items():
        if time > now:
            continue
        name = timer[1:]
        if timer[0] == "&":
            found[model.schedules.all[name].declared["batch"]["queue"]] += 1
        elif timer[0] == "!":
            found[model.jobs[name].new.queue] += 1
        elif timer[0] == "%":
            found.update({job.new.queue for job in model.limits.parked(name)})
        elif timer[0] == "=":
            found.update(model.limits.parking(name))
    return found


def unfinished(model: Core, queue: str) -> int:
    return int(model.dependencies.is_unfinished and bool(model.index(queue, "blocked")))


def due(model: Core, queue: str, now: int) -> list[int]:
    """The times of scheduled jobs that have come."""
    return [job.timer for job in model.index(queue, "scheduled") if job.timer <= now]
