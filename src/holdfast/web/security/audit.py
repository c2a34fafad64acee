"""The audit log: a line of JSON for every request that changed something, or may have, or that lacked rights.

    {"who": "ada", "by": "session", "role": "operator", "client": "10.0.0.7", "action": "pause_queue",
     "on": {"queue": "mail"}, "status": 200, "count": 1}

It is the message of a record of the logger `holdfast.web.audit`, at INFO, or at WARNING if the request was refused. All
of it is ASCII, so that nobody can forge a line. The store's events name the same user.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.web.call import Call
from holdfast.web.paths import decode_name
from holdfast.web.routing import Match
from holdfast.web.security.guard import SAFE
from holdfast.web.security.users import NOBODY

log = logging.getLogger("holdfast.web.audit")

REFUSED = (401, 403, 421, 429)
MAX_TEXT, MAX_VALUE = 300, 1000  # characters of a text, and of anything else as JSON
COUNTS = ("count", "jobs", "total", "matched", "sent")  # fields of replies that say how many were changed


def audit(call: Call, method: str, match: Match | None, status: int) -> None:
    """Log a request, unless it only read or was refused for another reason than rights.

    One that failed in the server may have changed something. Of those that only read, the ones are logged for which a
    known user has no rights.
    """
    is_wrong = status in REFUSED or status >= 500
    if not (is_wrong or 200 <= status < 400) or (method in SAFE and (status != 403 or call.user is NOBODY)):
        return
    log.log(logging.WARNING if is_wrong else logging.INFO, "%s", audit_line(call, method, match, status))


def audit_line(call: Call, method: str, match: Match | None, status: int) -> str:
    user, client = call.user, call.request.client
    facts = {
        "who": user.name,
        "by": user.by or None,
        "role": user.role,
        "client": client.host if client else None,
        "action": match.route.name if match else f"{method} {call.request.scope['path']}",
        "on": _names(match),
        "query": call.request.scope["query_string"].decode("latin-1") or None,
        "status": status,
        **call.audited,
    }
    return json.dumps({name: _short(value) for name, value in facts.items() if value not in (None, {})}, default=str)


def count_of(reply: Any) -> int | None:
    """Return how many things an action has changed, as far as its reply says so; refusals have a `code`."""
    if isinstance(reply, Mapping):
        numbers = (reply.get(name) for name in COUNTS)
        return next((each for each in numbers if type(each) is int), int(reply.get("changed", True) is not False))
    items = getattr(reply, "items", None)
    return sum(not each.get("code") for each in items) if isinstance(items, list) else 1


def _names(match: Match | None) -> dict[str, str]:
    return {name: _name(segment) for name, segment in match.segments.items()} if match else {}


def _name(segment: str) -> str:
    try:
        return decode_name(segment)[:MAX_TEXT]
    except HoldfastError:
        return segment[:MAX_TEXT]


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    text = json.dumps(value, default=str)
    return value if len(text) <= MAX_VALUE else text[:MAX_VALUE]
