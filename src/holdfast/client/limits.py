"""Limits, and the weights of shares in a queue."""

from __future__ import annotations

from holdfast import errors
from holdfast.constants import MAX_DURATION
from holdfast.names import check_limit
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import Limit
from holdfast.units import Duration, milliseconds


def set_limit(_: Stores, name: str, slots: int, *, per: Duration | None = None) -> Steps[bool]:
    """Define or change a limit: at most `slots` of its jobs run at once or, with `per`, start in each period.

    jobs.set_limit("gpu", 2)
    jobs.set_limit("api", 5, per="1s")

    It applies from the next claim on. Return whether it changed anything.
    """
    if ":" in check_limit(name):
        raise errors.Invalid(
            f"expected the name of a limit without a key, got {name!r}: it applies to each of its keys, so call"
            f" set_limit({name.partition(':')[0]!r}, ...)"
        )
    period = None if per is None else milliseconds(per, what="per", minimum=1, maximum=MAX_DURATION)
    changed: bool = yield commands.set_limit(name, slots, per=period)
    return changed


def remove_limit(_: Stores, name: str) -> Steps[bool]:
    """Remove a limit; its parked jobs can start. Return whether it existed.

    A limit that jobs use, but that was never defined, is no longer listed until another of its jobs starts.
    """
    changed: bool = yield commands.remove_limit(name)
    return changed


def limits(_: Stores) -> Steps[list[Limit]]:
    """Return all defined limits, and undefined ones that jobs have used."""
    found: list[Limit] = yield commands.limits()
    return found


def set_share_weight(_: Stores, queue: str, share: str, weight: int) -> Steps[bool]:
    """Give the jobs of a share (`share=`) `weight` times as many turns in a queue as others: 1 to 100.

    A queue that does not exist yet is created, as by `pause`. Return whether it changed anything.
    """
    changed: bool = yield commands.set_share_weight(queue, share, weight)
    return changed
