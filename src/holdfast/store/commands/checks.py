"""Checks of all keys of a namespace, a bounded step each. `lua/check.lua` has the codes of findings."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.store.commands.command import Command, omit_none
from holdfast.units import utc

MAX_EXAMPLES = 5


class Finding(msgspec.Struct, frozen=True):
    """Something in the store that does not fit together: how often, and up to five examples."""

    code: str
    meaning: str
    repair: str  # what a repair does; '': nothing can be done
    count: int
    repaired: int
    examples: list[str]

    @property
    def left(self) -> int:
        """How many were not repaired."""
        return self.count - self.repaired

    def plus(self, other: Finding) -> Finding:
        """Add what a later step found."""
        return msgspec.structs.replace(
            self,
            count=self.count + other.count,
            repaired=self.repaired + other.repaired,
            examples=[*self.examples, *other.examples][:MAX_EXAMPLES],
        )

    def after(self, before: Finding) -> Finding:
        """Add what an earlier pass repaired."""
        return msgspec.structs.replace(
            self,
            count=self.count + before.repaired,
            repaired=self.repaired + before.repaired,
            examples=[*before.examples, *(each for each in self.examples if each not in before.examples)][
                :MAX_EXAMPLES
            ],
        )


class MemoryUse(msgspec.Struct, frozen=True):
    """Keys of one kind, and the bytes of those that were measured."""

    name: str
    keys: int
    measured: int
    bytes: int

    @property
    def estimate(self) -> int:
        """The bytes of all keys, by the mean of those that were measured."""
        return round(self.bytes * self.keys / self.measured) if self.measured else 0

    def plus(self, other: MemoryUse) -> MemoryUse:
        """Add what a later step measured."""
        return MemoryUse(self.name, self.keys + other.keys, self.measured + other.measured, self.bytes + other.bytes)


class CheckStep(NamedTuple):
    """One step of a check, and the position of the next; b'' at the end."""

    position: bytes
    keys: int
    entries: int
    findings: list[Finding]
    memory: list[MemoryUse]


def check_step(
    position: bytes = b"", *, repair: bool = False, again: bool = False, units: int | None = None, memory: bool = False
) -> Command[CheckStep]:
    """Check the keys from a position on; with `memory`, only measure them. `again`: a pass was repaired before."""
    args = omit_none(units=units, memory=memory or None, again=again or None)
    return Command("repair" if repair else "check", args, _read_step, (position,))


def _read_step(reply: list[Any]) -> CheckStep:
    position, keys, entries, findings, memory = reply
    return CheckStep(
        position,
        keys,
        entries,
        [_read_finding(row) for row in findings],
        [MemoryUse(name.decode(), *numbers) for name, *numbers in memory],
    )


def _read_finding(row: list[Any]) -> Finding:
    code, meaning, repair, count, repaired, examples = row
    return Finding(_text(code), _text(meaning), _text(repair), count, repaired, [_text(each) for each in examples])


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


class PastFinding(msgspec.Struct, frozen=True):
    """What upkeep has found with one code so far."""

    code: str
    meaning: str
    count: int
    repaired: int
    last_at: datetime
    example: str


class CheckHistory(msgspec.Struct, frozen=True):
    """How often upkeep has checked all keys, when it did so last, and what it has found."""

    passes: int
    began_at: datetime | None  # the last complete pass; None: there was none
    finished_at: datetime | None
    findings: list[PastFinding]

    @property
    def unrepaired(self) -> list[PastFinding]:
        """What was found since the last complete pass began, and could not all be repaired."""
        return [
            each
            for each in self.findings
            if each.repaired < each.count and (self.began_at is None or each.last_at >= self.began_at)
        ]


def check_history() -> Command[CheckHistory]:
    return Command("check_history", {}, read_check_history)


def read_check_history(reply: list[Any]) -> CheckHistory:
    passes, began, finished, *rows = reply
    return CheckHistory(
        passes,
        utc(began) if finished else None,
        utc(finished) if finished else None,
        [_read_past(row) for row in rows],
    )


def _read_past(row: list[Any]) -> PastFinding:
    code, meaning, count, repaired, time, example = row
    return PastFinding(_text(code), _text(meaning), count, repaired, utc(time), _text(example))
