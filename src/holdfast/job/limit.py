"""A limit that an app declares: how many of its jobs run at once, or start in a period."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.constants import MAX_DURATION, MAX_SLOTS, MAX_STARTS
from holdfast.errors import Invalid
from holdfast.names import check_limit, check_limit_name
from holdfast.units import Duration, humanize, milliseconds


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Limit:
    """A declaration: at most `slots` jobs of this limit run at once or, with `per`, start in each period.

    api = Limit("api", 5, per="1s")

    @jobs.task(limits=api)
    def fetch(url: str) -> bytes: ...

    It applies separately to each of its keys: `fetch.options(limits=api.key("acme"))`. Workers define the limits of
    their app when they start; `set_limit` overrides them.

    Raises:
        Invalid: the name, the number or the period is invalid.
    """

    name: str
    slots: int
    per: int  # milliseconds; 0 if it counts jobs that run at once

    def __init__(self, name: str, slots: int, *, per: Duration | None = None) -> None:
        period = 0 if per is None else milliseconds(per, what="per", minimum=1, maximum=MAX_DURATION)
        most = MAX_STARTS if period else MAX_SLOTS
        if type(slots) is not int or not 1 <= slots <= most:
            raise Invalid(f"slots is {slots!r}; it must be an int from 1 to {most}")
        object.__setattr__(self, "name", check_limit_name(name))
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "per", period)

    def __repr__(self) -> str:
        per = f", per={humanize(self.per)!r}" if self.per else ""
        return f"Limit({self.name!r}, {self.slots}{per})"

    def key(self, key: str) -> str:
        """Return the name of this limit with a key, to be counted separately: `api:acme`."""
        return check_limit(f"{self.name}:{key}")


def check_declared(limits: Iterable[Limit], declared: Mapping[str, Limit]) -> None:
    """Raise Invalid unless an app declares all these limits: its workers would not know them."""
    for limit in limits:
        known = declared.get(limit.name)
        if known is None:
            raise Invalid(
                f"{limit!r} is not declared, so workers would not know it; pass it to Holdfast(limits=[...]), or to a "
                "task where the task is declared"
            )
        if known != limit:
            raise Invalid(f"limit {limit.name} is declared as {known!r}, not as {limit!r}")
