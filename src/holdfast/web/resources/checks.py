"""Checks: the doctor, the consistency of the store, its memory, and what upkeep has found on its own.

A check of all keys may take minutes. A request does a part of it and answers with a cursor, which holds what was found
so far: the next request continues there, in any web process, and whoever stops asking has stopped the check.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec

from holdfast.client.checks import UnfinishedCheck, check_further
from holdfast.doctor import Finding
from holdfast.errors import Invalid
from holdfast.records.checks import CHECK, CHECK_HISTORY, MEMORY_MEASUREMENT
from holdfast.records.doctor import FINDINGS, afind_worst_first
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.memo import shared
from holdfast.web.resource import Listed, ListOf, Resources, about
from holdfast.web.steps import run

routes = Resources()

FINDINGS_TTL = 30.0  # seconds
Seconds = Annotated[float, about("how long to check before this request is answered", gt=0, le=10)]
Cursor = Annotated[str | None, about("`next` of the last answer; without it, a check begins")]


class CheckPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a check."""

    repair: Annotated[bool, about("repair what is found, for which the role admin is needed; else only report it")] = (
        False
    )
    cursor: Cursor = None
    seconds: Seconds = 2.0


class MemoryQuery(msgspec.Struct, frozen=True):
    """Which part of a measurement."""

    cursor: Cursor = None
    seconds: Seconds = 2.0


@routes.get("/doctor", reply=ListOf(FINDINGS), role="operator", scope="none")
async def list_findings(call: Call) -> Listed:
    """Check what the server's version and settings guarantee, and what to change; the worst findings come first."""
    return Listed(items=FINDINGS.records(await afind_worst_first(call.app)))


async def read_findings(call: Call) -> list[Finding]:
    """Return what was found in the last half minute: it changes rarely, and takes many requests to find out."""
    return await shared(call, "findings", FINDINGS_TTL, lambda: afind_worst_first(call.app), lasts=True)


@routes.post("/check", reply=CHECK, client="check")
async def check_store(call: Call, body: CheckPart) -> Record:
    """Check that all keys in the store fit together, and repair them: a part of a check.

    Send the request again with `next` as `cursor` until `next` is null; then the answer is the report. It works beside
    running workers, in steps of a few milliseconds. To end a check, send no more requests.
    """
    if body.repair:
        call.check_role("admin")
    unfinished = _read(body.cursor, UnfinishedCheck(repair=body.repair))
    check = await run(call, check_further(unfinished, seconds=body.seconds))
    return CHECK.record(check.report(), next=_cursor(check))


@routes.get("/memory", reply=MEMORY_MEASUREMENT, role="operator", client="memory")
async def measure_memory(call: Call, query: MemoryQuery) -> Record:
    """Measure how much memory each kind of key takes: a part of a measurement.

    Send the request again with `next` as `cursor` until `next` is null. Of keys that each job has, some are measured.
    """
    unfinished = _read(query.cursor, UnfinishedCheck(only_memory=True))
    check = await run(call, check_further(unfinished, seconds=query.seconds))
    return MEMORY_MEASUREMENT.record(check.report(), next=_cursor(check))


@routes.get("/check/history", reply=CHECK_HISTORY, client="check_history")
async def show_check_history(call: Call) -> Record:
    """Show what upkeep has found and repaired on its own."""
    return CHECK_HISTORY.record(await call.app.acheck_history())


def _cursor(check: UnfinishedCheck) -> str | None:
    return None if check.is_over else base64.urlsafe_b64encode(msgspec.msgpack.encode(check)).decode()


def _read(cursor: str | None, new: UnfinishedCheck) -> UnfinishedCheck:
    """Return the check of a cursor, or a new one. The cursor must be that of such a check."""
    if cursor is None:
        return new
    try:
        data = base64.b64decode(cursor, altchars=b"-_", validate=True)
        check = msgspec.msgpack.decode(data, type=UnfinishedCheck)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Invalid("the cursor is not that of an earlier answer") from None
    if (check.repair, check.only_memory) != (new.repair, new.only_memory):
        raise Invalid("the cursor is that of another check; `repair` must be the same in all requests")
    return check
