"""The page of the consistency check: it runs in parts, each of which is a form, so that it works without scripts.

With scripts, the form of the next part is sent by itself (static/check.js) until the check is over or stopped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.records.table import Record
from holdfast.web import api
from holdfast.web.call import Call
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.checks import CheckPart, check_store, show_check_history

pages = Pages()

SECONDS = 1.0  # of a part


@pages.get("/check", role="operator")
async def check_page(call: Call) -> Page:
    """The findings of upkeep, and the button that checks all keys now."""
    return await _page(call)


@pages.post("/check", role="operator")
async def check_further_page(call: Call) -> Page:
    """Do a part of a check, and show how far it is. The resource is that of the API; nothing else can start it."""
    form = await api.read_form_of(call)
    given = {name: form[name] for name in ("repair", "cursor") if form.get(name)}
    part: CheckPart = msgspec.convert({**given, "seconds": SECONDS}, CheckPart, strict=False)
    found = await check_store(call, body=part)
    return await _page(call, found=found, repair=part.repair)


async def _page(call: Call, *, found: Record | None = None, repair: bool = False) -> Page:
    history: Any = await show_check_history(call)
    repairable = sum(each["count"] for each in found["findings"] if each["repair"]) if found and not repair else 0
    return Page(
        "check.html", title="Consistency check", section="Check", history=history, found=found, repair=repair,
        repairable=repairable, memory=sorted(found["memory"], key=lambda each: -each["bytes"]) if found else [],
    )  # fmt: skip
