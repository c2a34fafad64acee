"""Filters of jobs as parameters of requests, made from the table of filters; and the queues that a user may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from holdfast.client.filters import FILTERS, Filter
from holdfast.client.finding import named_states
from holdfast.constants import MAX_BATCH
from holdfast.errors import Invalid
from holdfast.units import Duration, is_duration
from holdfast.web.call import Call
from holdfast.web.problems import Problem

LISTS = ("queue", "state")  # filters that take several names
_TIMES = tuple(each.name for each in FILTERS if each.metavar == "TIME")
_HELP = {
    "state": "only jobs in these states; pending: all that have not ended",
    "queue": "only jobs of these queues",
    "since": "only jobs that entered their state at this time, with a time zone, or later; 1h: in the last hour",
    "until": "only jobs that entered their state at this time or earlier; 1h: at least an hour ago",
}


def _field(each: Filter) -> tuple[str, Any, Any]:
    """Return the name, the type and the default of the parameter of a filter."""
    meta = msgspec.Meta(description=_HELP.get(each.name, f"only jobs {each.help}"))
    if each.name in LISTS:
        return each.name, Annotated[list[str], meta], msgspec.field(default_factory=list)
    return each.name, Annotated[(str if each.metavar else bool) | None, meta], None


Filters: Any = msgspec.defstruct(
    "JobFilters", [_field(each) for each in FILTERS], frozen=True, kw_only=True, forbid_unknown_fields=True
)


def given_filters(query: Any) -> dict[str, Any]:
    """Return the filters of a query as the client takes them."""
    given = {each.name: getattr(query, each.name) for each in FILTERS}
    given = {name: value for name, value in given.items() if value not in (None, [], "")}
    if "queue" in given:
        given["queue"] = [name for each in given["queue"] for name in each.split(",")]
    if "state" in given:
        given["state"] = named_states(given["state"])
    return given | {name: read_time_or_age(given[name], name) for name in _TIMES if name in given}


def read_time_or_age(text: str, what: str) -> Duration | datetime:
    """Return a duration as it is, and a time in ISO 8601 as a datetime."""
    if is_duration(text):
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(
            f"{what} is {text[:60]!r}; it must be a duration such as 1h, or a time such as 2024-07-01T02:00Z"
        ) from None
    if found.tzinfo is None:
        raise Invalid(f"{what} is {text!r}, without a time zone; in UTC, that is {found:%Y-%m-%dT%H:%M:%S}Z")
    return found


async def narrowed(call: Call, filters: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return filters that match only jobs of queues that the user may see; None: there are none.

    Raises:
        Problem: the filters name another queue.
    """
    if call.user.has_all_queues:
        return dict(filters)
    given: Sequence[str] | None = filters.get("queue")
    if given is not None:
        for name in given:
            call.check_queue(name)
        return dict(filters)
    found = await visible_queues(call)
    return {**filters, "queue": found} if found else None


async def visible_queues(call: Call) -> list[str]:
    """Return the queues with jobs that the user may see."""
    found = call.visible((each.name for each in await call.app.aqueues()), lambda name: name)
    if len(found) > MAX_BATCH:
        raise Problem(422, "INVALID", f"{call.user.name} may see {len(found):,} queues: name up to {MAX_BATCH:,}")
    return found
