"""Hide what a user may not see: data of jobs from those without the right to it, and named fields from everybody.

A test walks all tables of the API with text in every field: a field that is added is either hidden here, or listed
there as one that every viewer may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.records.table import Nested, Table
from holdfast.web.security.users import User

# Fields with data of jobs, which only users with the right to it may see: in records, and in objects inside of them.
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
        "notes",
        "note",
        "traceback",
        "reason",
        "why",
        "stack",
        "log",
    }
)
# The same, by the name of the table, where other tables have harmless fields of this name.
DATA_OF = frozenset(
    {
        "CalledFunction.value",
        "ClaimedItem.data",
        "HistoryEntry.text",
        "Log.text",
        "Note.text",
        "ScheduleDetails.options",
    }
)
# Fields of tables that share a name with data of jobs.
HARMLESS = frozenset({"Forecast.reason", "QueuePlan.notes"})
HIDDEN = "[redacted]"
MAX_DEPTH = 100


def redacted(reply: Any, table: Table | None, user: User, names: frozenset[str]) -> Any:
    """Return a record, a page of records of a table, or a struct, without what the user may not see.

    The original is not changed. `names` are in lower case.
    """
    if user.may_see_data and not names:
        return reply
    hiding = _Hiding(frozenset() if user.may_see_data else DATA, names)
    if table is None:
        return hiding.struct(reply) if isinstance(reply, msgspec.Struct) else reply
    if isinstance(reply, msgspec.Struct):
        return msgspec.structs.replace(reply, items=[hiding.record(each, table) for each in reply.items])  # type: ignore[attr-defined]
    return hiding.record(reply, table) if isinstance(reply, dict) else reply


def redacted_json(data: bytes, names: frozenset[str]) -> bytes | None:
    """Return stored JSON without the values of these names; None if it is not JSON, so nobody knows what is in it."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return bytes(_Hiding(frozenset(), names).value(msgspec.Raw(data)))


class _Hiding:
    """What is hidden: `data` are names of fields with data of jobs, `names` those that are hidden in all data."""

    def __init__(self, data: frozenset[str], names: frozenset[str]) -> None:
        self.data, self.names = data, names

    def record(self, record: dict[str, Any], table: Table) -> dict[str, Any]:
        types = {each.name: each.type for each in table.fields}
        shown = {name: self._field(table, name, types.get(name), value) for name, value in record.items()}
        if self.data and "text" in shown and _tells_error(record):  # of an explanation, whose sentence has the error
            shown["text"] = HIDDEN
        return shown

    def _field(self, table: Table, name: str, declared: Any, value: Any) -> Any:
        field = f"{table.name}.{name}"
        if self.data and field not in HARMLESS and (name in self.data or field in DATA_OF):
            return blank(value, declared)
        inner = inner_table(declared)
        return self._nested(value, inner) if inner else self.value(value)

    def _nested(self, value: Any, table: Table) -> Any:
        """Return records of a table: one, or several in a list or by name."""
        if isinstance(value, list):
            return [self._nested(each, table) for each in value]
        if not isinstance(value, dict):
            return value
        if value.keys() <= {each.name for each in table.fields}:
            return self.record(value, table)
        return {name: self._nested(each, table) for name, each in value.items()}

    def struct(self, value: msgspec.Struct) -> msgspec.Struct:
        """Return a struct of the same type. It may have null where its type says otherwise."""
        shown = {name: self._member(name, getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **shown)

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a JSON value in which the values of hidden names, in any object in it, are replaced."""
        if depth > MAX_DEPTH:
            return HIDDEN
        if isinstance(value, msgspec.Struct):
            return self.struct(value)
        if isinstance(value, Mapping):
            return {name: self._member(name, each, depth) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each, depth + 1) for each in value]
        return self._stored(value, depth) if self.names and isinstance(value, str | msgspec.Raw) else value

    def _member(self, name: Any, value: Any, depth: int = 0) -> Any:
        if name in self.data:
            return blank(value)
        return HIDDEN if str(name).lower() in self.names else self.value(value, depth + 1)

    def _stored(self, value: str | msgspec.Raw, depth: int) -> Any:
        """Return JSON as it is stored, also that of text of JSON. It is encoded again only if something is hidden."""
        text = value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")
        if text.lstrip()[:1] not in ("{", "[", '"'):
            return value
        try:
            decoded = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return value
        shown = self.value(decoded, depth + 1)
        if shown == decoded:
            return value
        encoded = msgspec.json.encode(shown)
        return encoded.decode() if isinstance(value, str) else msgspec.Raw(encoded)


def inner_table(declared: Any) -> Table | None:
    """Return the table of the records in a field, if there are any."""
    while isinstance(declared, Nested):
        declared = declared.inner
    return declared if isinstance(declared, Table) else None


def blank(value: Any, declared: Any = None) -> Any:
    """Return what stands for a hidden value: of the same kind, if the field must have one."""
    if isinstance(value, str):
        return HIDDEN if value else ""
    if isinstance(value, Mapping) and not isinstance(declared, Nested | Table):
        return {}
    return [] if isinstance(value, list | tuple) else None


def _tells_error(record: Mapping[str, Any]) -> bool:
    """Return whether the facts of an explanation, or of another reason in it, have an error."""
    facts, also = record.get("facts"), record.get("also")
    told = isinstance(facts, Mapping) and "error" in facts
    return told or (isinstance(also, list) and any(isinstance(each, Mapping) and _tells_error(each) for each in also))
