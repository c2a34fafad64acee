"""Settings that can be changed while everything runs, of all queues and of one. Which there are, the store knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.errors import Invalid
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import Setting
from holdfast.text import suggestion
from holdfast.units import Duration, milliseconds


class Changes(NamedTuple):
    """What is to be set, and which settings are to have their defaults again."""

    set: dict[str, int]
    reset: list[str]


def read_changes(given: Mapping[str, Duration | int | None], rows: Sequence[Setting]) -> Changes:
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


def _number(row: Setting, value: Any) -> int:
    if row.unit == "ms":
        return milliseconds(value, what=row.name, least=row.least, most=row.most)
    if type(value) is int and row.least <= value <= row.most:
        return value
    raise Invalid(f"{row.name} is {value!r}; it must be a whole number from {row.least} to {row.most}")


def config(_: Stores, queue: str | None = None) -> Steps[list[Setting]]:
    """Return all settings that can be changed while everything runs, as they hold for a queue, or for all."""
    settings: list[Setting] = yield commands.config(queue)
    return settings


def configure(
    _: Stores, changes: Mapping[str, Duration | int | None], *, queue: str | None = None
) -> Steps[list[Setting]]:
    """Change settings, of all queues or of one; None stands for the default. They hold from the next call on.

    jobs.configure({"lease": "1m", "keep_failed": "90d"}, queue="video")

    Raises:
        Invalid: there is no such setting, or the value is out of its bounds. Nothing was changed.
    """
    wanted = read_changes(changes, (yield commands.config(queue)))
    settings: list[Setting] = yield commands.configure(queue, set=wanted.set, reset=wanted.reset)
    return settings
