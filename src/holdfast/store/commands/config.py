"""Runtime settings of all queues or of one queue. The store knows which settings exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.store.commands.command import Command, omit_none
from holdfast.units import humanize


class Setting(msgspec.Struct, frozen=True):
    """A runtime setting and its current value. Values with the `unit` "ms" are milliseconds here, and set as durations.

    `source` is where the value comes from: "default", "global" or "queue".
    """

    name: str
    value: int
    default: int
    min: int
    max: int
    unit: str
    per_queue: bool
    source: str
    explanation: str

    def __repr__(self) -> str:
        return f"<Setting {self.name} {self.text} from {self.source}>"

    @property
    def text(self) -> str:
        """The value as users write it: `1m`, or `3`."""
        return humanize(self.value) if self.unit == "ms" else str(self.value)


def config(queue: str | None = None) -> Command[list[Setting]]:
    return Command("config", omit_none(queue=queue), _read_settings)


def configure(
    queue: str | None = None, *, set: dict[str, int] | None = None, reset: Sequence[str] = ()
) -> Command[list[Setting]]:
    args = omit_none(queue=queue, set=set or None, reset=list(reset) or None)
    return Command("configure", args, _read_settings)


def _read_settings(reply: list[list[Any]]) -> list[Setting]:
    return [
        Setting(name.decode(), value, default, low, high, unit.decode(), own == 1, source.decode(), text.decode())
        for name, value, default, low, high, unit, own, source, text in reply
    ]
