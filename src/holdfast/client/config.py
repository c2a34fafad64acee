"""Settings in the store, of all queues or of one, which take effect without a restart. The store defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.errors import Invalid
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import Setting
from holdfast.text import suggestion
from holdfast.units import Duration, milliseconds, with_unit

MAX_DIGITS = 15  # of a number


class Changes(NamedTuple):
    """The settings to set, and those to reset to their defaults."""

    set: dict[str, int]
    reset: list[str]


def read_changes(given: Mapping[str, Duration | int | None], settings: Sequence[Setting]) -> Changes:
    """Check changes, and convert durations to milliseconds.

    Raises:
        Invalid: a setting does not exist, or a value is out of bounds.
    """
    if not isinstance(given, Mapping):
        raise Invalid(f'expected settings as a dict, like {{"lease": "1m"}}, got {given!r}')
    known = {setting.name: setting for setting in settings}
    changes = Changes({}, [])
    for name, value in given.items():
        if name not in known:
            raise Invalid(f"unknown setting {name!r}{suggestion(name, known)}")
        if value is None:
            changes.reset.append(name)
        else:
            changes.set[name] = _number(known[name], value)
    return changes


def _number(setting: Setting, value: Any) -> int:
    if setting.unit == "ms":
        return milliseconds(value, what=setting.name, minimum=setting.min, maximum=setting.max)
    if type(value) is int and setting.min <= value <= setting.max:
        return value
    raise Invalid(f"{setting.name} is {value!r}; it must be a whole number from {setting.min} to {setting.max}")


def read_value(setting: Setting, text: str) -> float | int:
    """Read a value that is given as text: a number, or a duration such as 30s.

    Raises:
        Invalid: it is malformed or out of bounds.
    """
    if setting.unit == "ms":
        return milliseconds(with_unit(text), what=setting.name, minimum=setting.min, maximum=setting.max) / 1000
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    if not is_number or not setting.min <= int(text) <= setting.max:
        raise Invalid(f"{setting.name}: expected a number from {setting.min} to {setting.max}, got {text!r}")
    return int(text)


def config(_: Stores, queue: str | None = None) -> Steps[list[Setting]]:
    """Return all settings with their values, of one queue or of all."""
    settings: list[Setting] = yield commands.config(queue)
    return settings


def configure(
    _: Stores, changes: Mapping[str, Duration | int | None], *, queue: str | None = None
) -> Steps[list[Setting]]:
    """Change settings of all queues or of one; None resets one to its default. They take effect at once.

    jobs.configure({"lease": "1m", "keep_failed": "90d"}, queue="video")

    Raises:
        Invalid: a setting does not exist, or a value is out of bounds; nothing was changed.
    """
    wanted = read_changes(changes, (yield commands.config(queue)))
    settings: list[Setting] = yield commands.configure(queue, set=wanted.set, reset=wanted.reset)
    return settings
