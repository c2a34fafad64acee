"""Items: bytes in a queue, without tasks and workers; put, claimed with a token, renewed and ended.

An item that is claimed for a client who has gone away can be claimed again when its lease ends.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.constants import MAX_BATCH
from holdfast.errors import Invalid
from holdfast.items.items import Items
from holdfast.items.token import Token as ItemToken
from holdfast.items.token import read_token
from holdfast.records.items import CLAIMED_ITEM, ENDED_ITEM, RENEWED_ITEM, STORED_ITEM
from holdfast.records.table import Record
from holdfast.store import new_token
from holdfast.units import milliseconds
from holdfast.web.call import Call
from holdfast.web.durations import read_duration
from holdfast.web.new_jobs import DurationText, given_options, option_fields
from holdfast.web.paths import encode_name
from holdfast.web.resource import API, Listed, ListOf, Resources, about
from holdfast.web.resources.job_actions import check_existing, check_jobs

routes = Resources()

MAX_WAIT = 30  # seconds

Token = Annotated[str, about("token of the item, as `claim` returned it")]

_LEFT_OUT = ("on_exists", "debounce")  # they replace jobs, perhaps of other queues
_STRICT: dict[str, Any] = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True}


class Bytes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes: those of a text in UTF-8, or in base64."""

    text: Annotated[str | None, about("the bytes, if they are text in UTF-8")] = None
    base64: Annotated[bytes | None, about("the bytes in base64, instead of `text`")] = None

    def read(self) -> bytes | None:
        if self.text is not None and self.base64 is not None:
            raise Invalid("`text` and `base64` cannot be combined: each is the whole of the bytes")
        return self.base64 if self.text is None else self.text.encode()


class ItemPayload(Bytes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several items."""

    id: Annotated[str | None, about("id of the item; else a new one")] = None


NewItem: Any = msgspec.defstruct("NewItem", option_fields(not_for="item", without=_LEFT_OUT), bases=(Bytes,), **_STRICT)
NewItems: Any = msgspec.defstruct(
    "NewItems",
    [
        ("items", Annotated[list[ItemPayload], about("the items, in order", min_length=1, max_length=MAX_BATCH)]),
        *option_fields(not_for="item", without=[*_LEFT_OUT, "id"]),
    ],
    **_STRICT,
)


class ClaimItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to claim."""

    wait: Annotated[DurationText, about(f"how long to wait for an item, up to {MAX_WAIT}s")] = 0
    lease: Annotated[DurationText | None, about("length of the lease; else the setting of the queue")] = None


class HeldItem(Bytes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claimed item; and bytes that are saved for the next attempt, or that are its result."""

    token: Token


class FailedItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claimed item, and why it failed."""

    token: Token
    reason: Annotated[str, about("why it failed")]
    final: Annotated[bool, about("do not retry it")] = False
    delay: Annotated[DurationText | None, about("time before it can be claimed again, instead of its backoff")] = None


class ReleasedItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claimed item, and when it may be claimed again."""

    token: Token
    delay: Annotated[DurationText, about("time before it can be claimed again")] = 0
    reason: Annotated[str, about("reason, stored with the attempt")] = "released"
    unstarted: Annotated[bool, about("no work was done, so even an at-most-once item can be claimed again")] = False


@routes.post("/queues/{queue}/items", reply=STORED_ITEM, status=(201, 200), client="items")
async def put_item(call: Call, queue: str, body: NewItem) -> Record:
    """Store an item: its payload is `text`, or the bytes in `base64`. The answer is 200 if one with this id existed."""
    options: Any = {"id": new_token()} | given_options(body)
    job = await call.app.items(queue).aput(body.read() or b"", **options)
    await check_existing(call, [job])
    call.audited["job"] = job.id
    call.respond(201 if job.created else 200, Location=call.url(f"{API}/jobs/{encode_name(job.id)}"))
    return STORED_ITEM.record(job)


@routes.post("/queues/{queue}/items:batch", reply=ListOf(STORED_ITEM), client="items")
async def put_items(call: Call, queue: str, body: NewItems) -> Listed:
    """Store up to 1,000 items with the same options, all or none."""
    options: Any = given_options(body)
    many = [(new_token() if each.id is None else each.id, each.read() or b"") for each in body.items]
    found = await call.app.items(queue).aput_many(many, **options)
    await check_existing(call, found)
    call.audited["jobs"] = " ".join(job.id for job in found)
    return Listed(items=STORED_ITEM.records(found))


@routes.post("/queues/{queue}/items:claim", reply=CLAIMED_ITEM, status=(200, 204), client="items", repeatable=False)
async def claim_item(call: Call, queue: str, body: ClaimItem) -> Record | None:
    """Claim the next item. Its token renews and ends it, in any program. The answer is 204 if there is none."""
    call.check_data()
    wait = read_duration(body.wait)
    if milliseconds(wait or 0, what="wait") > MAX_WAIT * 1000:
        raise Invalid(f"wait is {body.wait!r}; it must be at most {MAX_WAIT}s: ask again")
    item = await call.app.items(queue).aclaim(wait=wait, lease=read_duration(body.lease))
    if not item:
        return None
    call.audited["job"] = item.id
    return CLAIMED_ITEM.record(item, token=await item.adetach())


@routes.post("/items:renew", reply=RENEWED_ITEM, scope="none", client="items")
async def renew_item(call: Call, body: HeldItem) -> Record:
    """Renew the lease of a claimed item, and save bytes for the next attempt if they are given.

    409 if the lease was lost: stop, as somebody else may have the item. If it was cancelled, stop, and release it.
    """
    items, token = await _held(call, body.token)
    return {"id": token.id, "cancelled": await items.arenew(body.token, body.read())}


@routes.post("/items:complete", reply=ENDED_ITEM, scope="none", client="items")
async def complete_item(call: Call, body: HeldItem) -> Record:
    """Complete a claimed item, with a result if one is given. Exactly one caller succeeds; 409 for all others."""
    items, token = await _held(call, body.token)
    await items.acomplete(body.token, body.read() or b"")
    return {"id": token.id, "ended": "completed"}


@routes.post("/items:fail", reply=ENDED_ITEM, scope="none", client="items")
async def fail_item(call: Call, body: FailedItem) -> Record:
    """Fail a claimed item; it can be claimed again while it has retries."""
    items, token = await _held(call, body.token)
    await items.afail(body.token, body.reason, final=body.final, delay=read_duration(body.delay))
    return {"id": token.id, "ended": "failed"}


@routes.post("/items:release", reply=ENDED_ITEM, scope="none", client="items")
async def release_item(call: Call, body: ReleasedItem) -> Record:
    """Requeue a claimed item without charging a retry; a cancelled one ends."""
    items, token = await _held(call, body.token)
    delay = read_duration(body.delay) or 0
    await items.arelease(body.token, delay=delay, reason=body.reason, unstarted=body.unstarted)
    return {"id": token.id, "ended": "released"}


async def _held(call: Call, token: str) -> tuple[Items, ItemToken]:
    """Return the items of a token's queue, and what is in the token; it is not signed, so the item's queue counts."""
    found = read_token(token)
    call.check_queue(found.queue)
    await check_jobs(call, [found.id], new=[found.id])
    call.audited["job"] = found.id
    return call.app.items(found.queue), found
