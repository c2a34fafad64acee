"""Settings that can be changed while everything runs, of all queues and of one. Which there are, the store knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.commands import SettingRow
from holdfast.durations import Duration, milliseconds
from holdfast.errors import Invalid


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


class Changes(NamedTuple):
    """What is to be set, and which settings are to have their defaults again."""

    set: dict[str, int]
    reset: list[str]


def read_settings(rows: Sequence[SettingRow]) -> list[Setting]:
    return [Setting(*row) for row in rows]


def read_changes(given: Mapping[str, Duration | int | None], rows: Sequence[SettingRow]) -> Changes:
    """Return changes as the store takes them: durations in milliseconds."""
    units = {row.name: row.unit for row in rows}
    changes = Changes({}, [])
    for name, value in given.items():
        if value is None:
            changes.reset.append(name)
        else:
            changes.set[name] = (
                _number(name, value, units[name]) if name in units else 0
            )  # the store says which there are
    return changes


def _number(name: str, value: Any, unit: str) -> int:
    if unit == "ms":
        return milliseconds(value, what=name)
    if type(value) is int:
        return value
    raise Invalid(f"{name} is {value!r}; it must be a whole number")
