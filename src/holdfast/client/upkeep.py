"""Moving time on without a worker: due jobs, schedules, deadlines, ended leases, limits, retention. See `verbs`.

Workers do this in passing, whenever they claim or renew. Where all workers may be gone for a while, because they are
scaled to zero, a program that does only this keeps time: `holdfast upkeep`. It claims nothing and runs no tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import errors
from holdfast.client.timing import further_times
from holdfast.constants import MAX_BATCH
from holdfast.store import Action, Steps, Stores, commands
from holdfast.store.commands import UpkeepReply

REFILLS = 10  # schedules in one call

if TYPE_CHECKING:
    from logging import Logger


class Upkeep(msgspec.Struct, frozen=True):
    """What an upkeep has done."""

    moved: int  # due jobs, schedules, deadlines, leases that ended, limits
    overdue: int  # what could not be moved: of jobs that are damaged, or of a newer release
    wait: float | None  # seconds until the next is due; None: nothing is


def upkeep(_: Stores) -> Steps[Upkeep]:
    """Move all that is due, as workers do: due jobs become waiting, schedules fire, deadlines and leases end.

    while True:
        done = jobs.upkeep()
        time.sleep(1 if done.wait is None else min(1, done.wait))

    That is `holdfast upkeep`. Not needed where workers run: whoever claims does it, and any number may at once.
    """
    moved, asked = 0, set[str]()
    while True:
        step: UpkeepReply = yield commands.upkeep(refills=REFILLS)
        moved += max(0, step.before - step.after)
        new = [name for name in step.refills if name not in asked]
        for name in new:
            yield from _refill(name)
        asked.update(new)
        if not (new or step.surplus or step.stuck < min(step.after, MAX_BATCH)):
            return Upkeep(moved, step.after, None if step.wait is None else step.wait / 1000)


def _refill(name: str) -> Steps[None]:
    """Tell the store further times of a schedule. One that cannot be understood here is left to others."""
    for fields in (yield commands.schedules([name])):
        try:
            told = yield _computed(fields)
        except Exception as error:
            _log().error("schedule %s: its next times are left to workers: %s: %s", name, type(error).__name__, error)
            continue
        if told:
            try:
                yield commands.refill(name, *told)
            except (errors.ScheduleNotFound, errors.Invalid) as error:  # it was removed or replaced meanwhile
                _log().info("schedule %s: %s", name, error)


def _computed(fields: dict[str, Any]) -> Action[tuple[int, list[int]] | None]:
    """Compute times; in an event loop in a thread, for that may take long."""

    async def arun() -> tuple[int, list[int]] | None:
        import asyncio

        return await asyncio.to_thread(further_times, fields)

    return Action(lambda: further_times(fields), arun)


def _log() -> Logger:
    import logging

    return logging.getLogger("holdfast.upkeep")
