"""Limits: how many jobs run at once or start in a period, and who holds or waits for a slot."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.client import limits
from holdfast.client.finding import find
from holdfast.constants import MAX_SLOTS
from holdfast.names import check_limit
from holdfast.records.limits import (
    HOLDERS,
    KEYS,
    LIMIT_DETAILS,
    LIMIT_SET,
    LIMITS,
    PARKED,
    SLOT_RELEASED,
    alimit_details,
)
from holdfast.records.table import Record
from holdfast.store.commands import LimitStatus
from holdfast.web.call import Call
from holdfast.web.durations import read_duration
from holdfast.web.lists import ListQuery, cut
from holdfast.web.new_jobs import DurationText
from holdfast.web.paths import encode_name
from holdfast.web.problems import Problem
from holdfast.web.resource import API, Listed, ListOf, Resources, about
from holdfast.web.steps import run

routes = Resources()

Shown = Annotated[int, about("maximum number of keys, of holders, of waiting jobs", ge=1, le=100)]


class LimitQuery(msgspec.Struct, frozen=True):
    limit: Shown = 20


class NewLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a limit allows."""

    slots: Annotated[int, about("how many jobs run at once, or start in each period", ge=1, le=MAX_SLOTS)]
    per: Annotated[DurationText | None, about("length of the period; without it, running jobs are limited")] = None
    ttl: Annotated[
        DurationText | None,
        about("how long it applies; then the declared limit applies again, or none"),
    ] = None


class NamedLimit(NewLimit, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, with a name."""

    limit: Annotated[str, about("name of the limit")]


@routes.get("/limits", reply=ListOf(LIMITS), client="limits")
async def list_limits(call: Call, query: ListQuery) -> Listed:
    """List limits, and how many jobs hold or wait for a slot, of all keys together.

    A limit that jobs have named within the last week but that is not defined is listed, too; it has no effect.
    """
    found = cut(await call.app.alimits(), query, lambda each: each.name)
    return Listed(items=LIMITS.records(found.values), next=found.next)


@routes.get("/limits/{limit}", reply=LIMIT_DETAILS, client=("limits", "limit_keys", "limit_holders", "limit_parked"))
async def show_limit(call: Call, limit: str, query: LimitQuery) -> Record:
    """Show who uses a limit: its keys, the jobs that hold a slot, and those that wait for one.

    Jobs are those of the limit as it is given: `api` shows jobs without a key, `api:acme` those of a key.
    """
    status = await find_limit(call, _name_of(limit))
    return (await alimit_details(call.app, status, limit, query.limit)).record


@routes.get("/limits/{limit}/keys", reply=ListOf(KEYS), client="limit_keys")
async def list_limit_keys(call: Call, limit: str, query: ListQuery) -> Listed:
    """List the keys of a limit that are in use. Jobs without a key come first, as the key null."""
    await find_limit(call, limit)
    found = await run(call, limits.keys_page(limit, cursor=query.cursor, limit=query.limit))
    return Listed(items=KEYS.records(found.keys), next=found.cursor)


@routes.get("/limits/{limit}/holders", reply=ListOf(HOLDERS), client="limit_holders")
async def list_limit_holders(call: Call, limit: str, query: ListQuery) -> Listed:
    """List the jobs that hold a slot of a limit as it is given, with or without a key."""
    await find_limit(call, _name_of(limit))
    found = await run(call, limits.holders_page(call.app, limit, cursor=query.cursor, size=query.limit))
    return Listed(items=HOLDERS.records(found.rows), next=found.cursor)


@routes.get("/limits/{limit}/parked", reply=ListOf(PARKED), client="limit_parked")
async def list_limit_parked(call: Call, limit: str, query: ListQuery) -> Listed:
    """List the jobs that wait for a slot of a limit as it is given, by queue, then as they will start."""
    await find_limit(call, _name_of(limit))
    found = await run(call, limits.parked_page(call.app, limit, cursor=query.cursor, size=query.limit))
    return Listed(items=PARKED.records(found.rows), next=found.cursor)


@routes.post("/limits", reply=LIMIT_SET, role="admin", status=201, client="set_limit")
async def add_limit(call: Call, body: NamedLimit) -> Record:
    """Define a limit. 409 if one of this name is defined."""
    call.audited["limit"] = body.limit
    if any(each.name == body.limit and each.is_defined for each in await call.app.alimits()):
        raise Problem(409, "EXISTS", f"there is a limit of the name {body.limit}")
    call.respond(201, Location=call.url(f"{API}/limits/{encode_name(body.limit)}"))
    return await set_limit(call, limit=body.limit, body=NewLimit(slots=body.slots, per=body.per, ttl=body.ttl))  # type: ignore[no-any-return]


@routes.put("/limits/{limit}", reply=LIMIT_SET, role="admin", client="set_limit")
async def set_limit(call: Call, limit: str, body: NewLimit) -> Record:
    """Define or change a limit. It applies at once, also to stored jobs; running jobs continue.

    It overrides the limit that an app declares, also after workers restart, until it is reset, or until `ttl` has
    passed. A limit that was set before does not return then.
    """
    changed = await call.app.aset_limit(limit, body.slots, per=read_duration(body.per), ttl=read_duration(body.ttl))
    return LIMIT_SET.record(await find_limit(call, limit), changed=changed)


@routes.post("/limits/{limit}:reset", reply=LIMIT_SET, role="admin", client="reset_limit")
async def reset_limit(call: Call, limit: str) -> Record:
    """Return to the limit that the app declares. 409 if no app declares it."""
    await find_limit(call, limit)
    changed = await call.app.areset_limit(limit)
    return LIMIT_SET.record(await find_limit(call, limit), changed=changed)


@routes.delete("/limits/{limit}", role="admin", client="remove_limit")
async def remove_limit(call: Call, limit: str) -> None:
    """Remove a limit; jobs that wait for it can start.

    A limit that an app declares is defined again when a worker of the app starts.
    """
    await find_limit(call, limit)
    await call.app.aremove_limit(limit)


@routes.delete("/limits/{limit}/holders/{id}", reply=SLOT_RELEASED, client="release_slot")
async def release_slot(call: Call, limit: str, id: str) -> Record:
    """Take a slot from a running job, which continues without it; the next waiting job gets the slot.

    409 if the job holds no slot of this limit, or if the limit counts starts in a period: a start cannot be taken back.
    """
    await call.app.arelease_slot(limit, id)
    return {"limit": limit, "id": id, "released": True}


async def find_limit(call: Call, name: str) -> LimitStatus:
    """Return a limit; raise NotFound, with similar names, if there is none of this name."""
    return find("limit", {each.name: each for each in await call.app.alimits()}, name)


def _name_of(limit: str) -> str:
    """Return the name of a limit that may be given with a key."""
    return check_limit(limit).partition(":")[0]
