"""Limits on how many jobs run at once or start per period."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NamedTuple

from holdfast.constants import DEFAULT_PAGE
from holdfast.job.limit import Limit
from holdfast.store.commands.command import Command, omit_none, read_texts
from holdfast.store.commands.queries import ListReply, read_page
from holdfast.store.tokens import new_token
from holdfast.units import utc

# What a declaration changed: nothing; it applies now; or it is the new default, but an override still applies.
Declared = Literal["unchanged", "applied", "overridden"]
_DECLARED: tuple[Declared, ...] = ("unchanged", "applied", "overridden")


class LimitStatus(NamedTuple):
    """A limit of `slots` jobs at once (`per` is 0), or of `slots` starts in each period of `per` milliseconds.

    A limit that jobs named within the last week but that is not defined has no slots, and is not enforced.
    """

    name: str
    slots: int
    per: int
    keys: int  # keys with jobs that wait for a slot; jobs without a key count as one
    held: int  # slots held by running jobs, of all keys together
    parked: int  # jobs that wait for a slot, of all keys together
    is_set: bool  # by `set_limit`, and not only declared
    expires_at: datetime | None  # when what was set no longer applies
    declared: Limit | None  # by the code of an app
    revision: int  # of the declaration

    @property
    def is_defined(self) -> bool:
        return self.slots > 0

    @property
    def is_overridden(self) -> bool:
        """Whether `set_limit` overrides the declaration."""
        return self.is_set and self.declared is not None


class LimitKey(NamedTuple):
    """How much of a limit is used, with one of its keys or without a key."""

    limit: str  # with its key: api:acme
    held: int  # slots held by running jobs
    parked: int  # jobs that wait for a slot

    @property
    def key(self) -> str | None:
        return self.limit.partition(":")[2] or None


class LimitsPage(NamedTuple):
    """Limits by name, and where to continue: `parked` of the last limit is then a part, and the next page has more."""

    limits: list[LimitStatus]
    after: str | None


class LimitNames(NamedTuple):
    defined: list[str]
    undefined: list[str]  # that jobs named within the last week


def read_declared(reply: int) -> Declared:
    return _DECLARED[reply]


def set_limit(name: str, slots: int, *, per: int | None = None, ttl: int | None = None) -> Command[bool]:
    return Command("set_limit", omit_none(name=name, slots=slots, per=per, ttl=ttl), lambda reply: reply == 1)


def declare_limit(name: str, slots: int, *, per: int, revision: int) -> Command[Declared]:
    """Declare the limit of an app, which `set_limit` overrides."""
    args = {"name": name, "slots": slots, "per": per, "revision": revision}
    return Command("declare_limit", args, read_declared)


def reset_limit(name: str) -> Command[bool]:
    return Command("reset_limit", {"name": name}, lambda reply: reply == 1)


def remove_limit(name: str) -> Command[bool]:
    return Command("remove_limit", {"name": name}, lambda reply: reply == 1)


def release_slot(limit: str, id: str) -> Command[bool]:
    return Command("release_slot", {"limit": limit, "id": id, "token": new_token()}, lambda reply: reply == 1)


def limits(after: str | None = None) -> Command[LimitsPage]:
    return Command("limits", omit_none(after=after), _read_limits)


def _read_limits(reply: list[Any]) -> LimitsPage:
    return LimitsPage(list(map(_read_limit, reply[1:])), reply[0].decode() or None)


def _read_limit(row: list[Any]) -> LimitStatus:
    name, slots, per, keys, held, parked, is_set, expires, declared_slots, declared_per, revision = row
    text = name.decode()
    declared = Limit(text, declared_slots, per=declared_per / 1000 or None) if declared_slots else None
    expires_at = utc(expires) if expires else None
    return LimitStatus(text, slots, per, keys, held, parked, is_set == 1, expires_at, declared, revision)


def limit_names() -> Command[LimitNames]:
    return Command("limit_names", {}, lambda reply: LimitNames(*map(read_texts, reply)))


def limit_keys(name: str, *, after: str | None = None, limit: int = DEFAULT_PAGE) -> Command[list[LimitKey]]:
    """Return a page of the keys in use. It may be short; an empty one is the end."""
    args = omit_none(name=name, after=after, limit=limit)
    return Command("limit_keys", args, lambda reply: [LimitKey(row[0].decode(), *row[1:]) for row in reply])


def limit_holders(name: str, *, limit: int = DEFAULT_PAGE, cursor: str | None = None) -> Command[ListReply]:
    return Command("limit_holders", omit_none(name=name, limit=limit, cursor=cursor), read_page)


def limit_parked(name: str, *, limit: int = DEFAULT_PAGE, cursor: str | None = None) -> Command[ListReply]:
    return Command("limit_parked", omit_none(name=name, limit=limit, cursor=cursor), read_page)


def set_share_weight(queue: str, share: str, weight: int) -> Command[bool]:
    return Command("set_share_weight", {"queue": queue, "share": share, "weight": weight}, lambda reply: reply == 1)
