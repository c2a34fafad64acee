"""Upkeep without a worker: process due jobs, schedules, deadlines, expired leases, limits and retention.

Workers do this as part of each claim and heartbeat. Where all workers may be scaled to zero, `holdfast upkeep` does it
instead; it claims nothing and runs no tasks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from holdfast import errors
from holdfast.client.timing import further_times
from holdfast.constants import MAX_BATCH
from holdfast.store import Steps, Stores, commands, in_thread
from holdfast.store.commands import UpkeepReply

REFILLS = 10  # schedules per call

if TYPE_CHECKING:
    from logging import Logger


class Upkeep(msgspec.Struct, frozen=True):
    """The result of `upkeep`: timers are due jobs, schedules, deadlines, limits and expired leases."""

    processed: int  # timers that were due
    overdue: int  # timers that could not be processed: their jobs are damaged, or of a newer release
    wait: float | None  # seconds until the next timer is due; None if there is none


def upkeep(_: Stores) -> Steps[Upkeep]:
    """Process everything that is due, as workers do: jobs become waiting, schedules fire, deadlines and leases expire.

    while True:
        done = jobs.upkeep()
        time.sleep(1 if done.wait is None else min(1, done.wait))

    This loop is `holdfast upkeep`. It is not needed while workers run, and any number of processes may run it.
    """
    processed, refilled = 0, set[str]()
    while True:
        step: UpkeepReply = yield commands.upkeep(refills=REFILLS)
        processed += max(0, step.before - step.after)
        new = [name for name in step.refills if name not in refilled]
        for name in new:
            yield from _refill(name)
        refilled.update(new)
        if not (new or step.surplus or step.stuck < min(step.after, MAX_BATCH)):
            return Upkeep(processed, step.after, None if step.wait is None else step.wait / 1000)


def _refill(name: str) -> Steps[None]:
    """Give the store further firing times of a schedule; one that cannot be read here is left to workers."""
    for fields in (yield commands.schedules([name])):
        try:
            times = yield in_thread(partial(further_times, fields))  # it may take long
        except Exception as error:
            _log().error("schedule %s: its next times are left to workers: %s: %s", name, type(error).__name__, error)
            continue
        if times:
            try:
                yield commands.refill(name, *times)
            except (errors.ScheduleNotFound, errors.Invalid) as error:  # it has been removed or replaced
                _log().info("schedule %s: %s", name, error)


def _log() -> Logger:
    import logging

    return logging.getLogger("holdfast.upkeep")
