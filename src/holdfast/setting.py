"""Settings that can be changed while everything runs, of all queues and of one. Which there are, the store knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.commands import SettingRow
from holdfast.durations import Duration, humanize, milliseconds
from holdfast.errors import Invalid
from holdfast.phrases import suggestion


class Setting(msgspec.Struct, frozen=True):
    """A setting as it holds. If its `unit` is "ms", values are milliseconds here, and durations when they are set.

    `source` says where the value comes from: "default", "global" or "queue".
    """

    name: str
    value: int
    default: int
    least: int
    most: int
    unit: str
    per_queue: bool
    source: str
    explanation: str

    def __repr__(self) -> str:
        return f"<Setting {self.name} {self.text} from {self.source}>"

    @property
    def text(self) -> str:
        """The value as one would write it: `1m`, or `3`."""
        return humanize(self.value) if self.unit == "ms" else str(self.value)


class Changes(NamedTuple):
    """What is to be set, and which settings are to have their defaults again."""

    set: dict[str, int]
    reset: list[str]


def read_settings(rows: Sequence[SettingRow]) -> list[Setting]:
    return [Setting(*row) for row in rows]


def read_changes(given: Mapping[str, Duration | int | None], rows: Sequence[SettingRow]) -> Changes:
    """Return changes as the store takes them: durations in milliseconds.

    Raises:
        Invalid: there is no such setting, or the value is out of its bounds.
    """
    if not isinstance(given, Mapping):
        raise Invalid(f'settings are {given!r}; they must be a table of names and values, as {{"lease": "1m"}}')
    known = {row.name: row for row in rows}
    changes = Changes({}, [])
    for name, value in given.items():
        if name not in known:
            raise Invalid(f"there is no setting {name!r}{suggestion(name, known)}")
        if value is None:
            changes.reset.append(name)
        else:
            changes.set[name] = _number(known[name], value)
    return changes


def _number(row: SettingRow, value: Any) -> int:
    if row.unit == "ms":
        return milliseconds(value, what=row.name, least=row.least, most=row.most)
    if type(value) is int and row.least <= value <= row.most:
        return value
    raise Invalid(f"{row.name} is {value!r}; it must be a whole number from {row.least} to {row.most}")
