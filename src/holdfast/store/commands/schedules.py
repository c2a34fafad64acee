"""Schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.store.commands.command import Command, Fields, omit_none, read_record
from holdfast.store.commands.limits import Declared, read_declared
from holdfast.store.tokens import new_token


def schedule(name: str, batch: Fields, payload: bytes, **timing: Any) -> Command[bool]:
    """Make a schedule; `timing` has the other arguments of `lua/schedules.lua`. Return whether it changed."""
    return Command("schedule", omit_none(name=name, batch=batch, **timing), lambda reply: reply == 1, (payload,))


def declare_schedule(name: str, batch: Fields, payload: bytes, revision: int, **timing: Any) -> Command[Declared]:
    """Declare the schedule of an app, which `schedule` overrides."""
    args = omit_none(name=name, batch=batch, revision=revision, **timing)
    return Command("declare_schedule", args, read_declared, (payload,))


def reset_schedule(name: str) -> Command[bool]:
    return Command("reset_schedule", {"name": name}, lambda reply: reply == 1)


def refill(name: str, expected: int, times: Sequence[int]) -> Command[bool]:
    return Command("refill", {"name": name, "expected": expected, "times": list(times)}, lambda reply: reply == 1)


def unschedule(name: str) -> Command[bool]:
    return Command("unschedule", {"name": name}, lambda reply: reply == 1)


def pause_schedule(name: str) -> Command[bool]:
    return Command("pause_schedule", {"name": name}, lambda reply: reply == 1)


def resume_schedule(name: str) -> Command[bool]:
    return Command("resume_schedule", {"name": name}, lambda reply: reply == 1)


def trigger(name: str) -> Command[str]:
    return Command("trigger", {"name": name, "token": new_token()}, bytes.decode)


def schedules(names: Sequence[str] | None = None, *, after: str | None = None) -> Command[list[Fields]]:
    """Return the schedules of these names, or one page of all: those whose names sort after `after`."""
    return Command("schedules", omit_none(names=names, after=after), _read_schedules)


def _read_schedules(reply: list[list[Any]]) -> list[Fields]:
    return [read_record(part) for part in reply]
