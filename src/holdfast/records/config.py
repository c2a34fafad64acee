"""Runtime settings of the namespace and of queues."""

from __future__ import annotations

from holdfast.records.table import Field, Record, Table, column, field
from holdfast.store.commands import Setting
from holdfast.units import humanize


def _number(name: str, help: str) -> Field:
    """Declare a value that is shown as users write it. In JSON, a duration has seconds, as where it is set."""

    def read(setting: Setting) -> float:
        value: int = getattr(setting, name)
        return value / 1000 if setting.unit == "ms" else value

    return column(name, float, help, read, show=lambda record, _: written(record, name), right=True, whole=True)


def written(setting: Record, name: str) -> str:
    """Return a value of a setting as users write it."""
    value = setting[name]
    return humanize(round(value * 1000)) if setting["unit"] == "s" else str(value)


SETTINGS = Table(
    "setting",
    column("name", str, "name of the setting", whole=True),
    _number("value", "its value; seconds if its unit is s"),
    _number("default", "its default"),
    _number("min", "its minimum"),
    _number("max", "its maximum"),
    field("unit", str, "s, or empty for a number", lambda setting: setting.unit.removeprefix("m")),
    field("per_queue", bool, "whether a queue may have its own value"),
    column("source", str, "where the value comes from: default, global or queue", whole=True),
    column("explanation", str, "what it controls", title="MEANING", wraps=True),
)
