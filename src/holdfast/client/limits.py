"""Limits, and shares of a queue. Verbs of the client; see `verbs`."""

from __future__ import annotations

from holdfast import errors
from holdfast.constants import MAX_DURATION
from holdfast.names import check_limit
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import Limit
from holdfast.units import Duration, milliseconds


def set_limit(_: Stores, name: str, slots: int, *, per: Duration | None = None) -> Steps[bool]:
    """Let so many jobs that take part in a limit run at once; or, with `per`, so many start in each such period.

    jobs.set_limit("gpu", 2)
    jobs.set_limit("api", 5, per="1s")

    It holds from the next claim on. Returns whether that changed anything.
    """
    if ":" in check_limit(name):
        raise errors.Invalid(
            f"{name} has a key; a limit is the same for all of its keys: set_limit({name.partition(':')[0]!r}, ...)"
        )
    period = None if per is None else milliseconds(per, what="per", least=1, most=MAX_DURATION)
    changed: bool = yield commands.set_limit(name, slots, per=period)
    return changed


def remove_limit(_: Stores, name: str) -> Steps[bool]:
    """Remove a limit; jobs that it held back start as others do. Returns whether there was one.

    A name that nobody has defined is forgotten, until a job of it starts again.
    """
    changed: bool = yield commands.remove_limit(name)
    return changed


def limits(_: Stores) -> Steps[list[Limit]]:
    """Return all limits that are defined, and those that jobs took part in and nobody has defined."""
    found: list[Limit] = yield commands.limits()
    return found


def set_share_weight(_: Stores, queue: str, share: str, weight: int) -> Steps[bool]:
    """Give the jobs of a share (`share=`) so many times as much of a queue as others get: 1 to 100.

    Returns whether that changed anything.
    """
    changed: bool = yield commands.set_share_weight(queue, share, weight)
    return changed
