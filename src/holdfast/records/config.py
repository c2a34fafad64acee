"""Runtime settings of the namespace and of queues."""

from __future__ import annotations

from holdfast.records.table import Field, Output, Record, Table, column, field
from holdfast.units import humanize


def _number(name: str, help: str) -> Field:
    """Declare a value that is shown as users write it."""

    def show(record: Record, _: Output) -> str:
        return humanize(record[name]) if record["unit"] == "ms" else str(record[name])

    return column(name, int, help, show=show, right=True, whole=True)


SETTINGS = Table(
    "setting",
    column("name", str, "name of the setting", whole=True),
    _number("value", "its value; milliseconds if its unit is ms"),
    _number("default", "its default"),
    _number("min", "its minimum"),
    _number("max", "its maximum"),
    field("unit", str, "ms, or empty for a number"),
    field("per_queue", bool, "whether a queue may have its own value"),
    column("source", str, "where the value comes from: default, global or queue", whole=True),
    column("explanation", str, "what it controls", title="MEANING", wraps=True),
)
