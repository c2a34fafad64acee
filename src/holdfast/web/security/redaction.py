"""Hide what a user may not see: data of jobs from those without the right to it, and named fields from everybody."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.records.table import Nested, Table
from holdfast.web.security.users import User

# Fields with data of jobs, which only users with the right to it may see.
DATA = frozenset(
    {
        "arguments",
        "args",
        "kwargs",
        "payload",
        "result",
        "checkpoint",
        "progress",
        "fields",
        "failure",
        "message",
        "error",
        "traceback",
    }
)
HIDDEN = "[redacted]"
MAX_DEPTH = 100


def redacted(reply: Any, table: Table, user: User, names: frozenset[str]) -> Any:
    """Return a record, or a page of records, without what the user may not see. The original is not changed."""
    if hasattr(reply, "items") and not isinstance(reply, dict):
        items = [_record(each, table, user, names) for each in reply.items]
        return msgspec.structs.replace(reply, items=items)
    return _record(reply, table, user, names) if isinstance(reply, dict) else reply


def _record(record: dict[str, Any], table: Table, user: User, names: frozenset[str]) -> dict[str, Any]:
    if user.may_see_data and not names:
        return record
    shown = dict(record)
    for each in table.fields:
        value = shown.get(each.name)
        if value is None:
            continue
        inner = inner_table(each.type)
        if each.name in DATA and not user.may_see_data:
            shown[each.name] = None
        elif inner and isinstance(value, dict):
            shown[each.name] = _record(value, inner, user, names)
        elif inner and isinstance(value, list):
            shown[each.name] = [_record(one, inner, user, names) for one in value]
        elif names:
            shown[each.name] = hide(value, names)
    return shown


def inner_table(declared: Any) -> Table | None:
    """Return the table of the records in a field, if there are any."""
    while isinstance(declared, Nested):
        declared = declared.inner
    return declared if isinstance(declared, Table) else None


def hide(value: Any, names: frozenset[str], depth: int = 0) -> Any:
    """Return a JSON value in which the values of these names, in any object in it, are replaced."""
    if depth > MAX_DEPTH:
        return HIDDEN
    if isinstance(value, dict):
        return {
            name: HIDDEN if str(name).lower() in names else hide(each, names, depth + 1) for name, each in value.items()
        }
    return [hide(each, names, depth + 1) for each in value] if isinstance(value, list) else value
