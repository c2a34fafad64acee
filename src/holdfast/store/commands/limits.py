"""Limits on how many jobs run at once or start per period."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.store.commands.command import Command, omit_none


class Limit(NamedTuple):
    """A limit of `slots` jobs at once (`per` is 0), or of `slots` starts in each period of `per` milliseconds.

    A limit that jobs named within the last week but that is not defined has no slots, and is not enforced.
    """

    name: str
    slots: int
    per: int
    keys: int  # keys of this limit for which jobs wait
    held: int  # slots held by running jobs, of the limit without a key
    parked: int  # jobs that wait for a slot, of the limit without a key

    @property
    def is_defined(self) -> bool:
        return self.slots > 0


def set_limit(name: str, slots: int, *, per: int | None = None) -> Command[bool]:
    return Command("set_limit", omit_none(name=name, slots=slots, per=per), lambda reply: reply == 1)


def remove_limit(name: str) -> Command[bool]:
    return Command("remove_limit", {"name": name}, lambda reply: reply == 1)


def limits() -> Command[list[Limit]]:
    return Command("limits", {}, lambda reply: [Limit(row[0].decode(), *row[1:]) for row in reply])


def set_share_weight(queue: str, share: str, weight: int) -> Command[bool]:
    return Command("set_share_weight", {"queue": queue, "share": share, "weight": weight}, lambda reply: reply == 1)
