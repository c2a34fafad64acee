"""Consistency checks: find what does not fit together in the store, and repair it, beside running workers.

A check visits every key of the namespace in steps of a few milliseconds, and rests between them as long as each took.
It can be ended at any time. Each key and entry is compared within one step with everything it must agree with, so work
that goes on meanwhile is never reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import CheckHistory, CheckStep, Finding, MemoryUse
from holdfast.store.driver import sleep

Progress = Callable[[int], object]  # called with the number of keys that were checked since its last call

MAX_PASSES = 3  # a repair may lead to findings at keys that were already passed
MAX_PAUSE = 0.05  # seconds between two steps


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found: nothing, in a healthy store."""

    findings: list[Finding]
    keys: int  # that were checked
    entries: int  # of these keys
    seconds: float
    memory: list[MemoryUse]  # of the keys, by kind, the largest first

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was found, or everything was repaired."""
        return all(finding.left == 0 for finding in self.findings)


def check(_: Stores, *, repair: bool = False, progress: Progress | None = None) -> Steps[CheckReport]:
    """Check all keys of the namespace, and repair what is found if `repair` is true.

    for finding in jobs.check().findings:
        print(finding.code, finding.count, finding.meaning)

    The record of a job decides: indexes, timers, locks and counts are made to agree with it. A record that cannot be
    read is reported and not changed. A pass may count what lasts twice, if the server visits a key twice.
    """
    began = time.monotonic()
    walk = last = yield from _walk(repair=repair, progress=progress)
    for _pass in range(1, MAX_PASSES):
        if not repair or not any(finding.repair for finding in last.findings.values()):
            break
        last = yield from _walk(repair=True, again=True, progress=None)
        walk.findings = _after(walk.findings, last.findings)
    return _report(walk, time.monotonic() - began)


def memory(_: Stores, *, progress: Progress | None = None) -> Steps[list[MemoryUse]]:
    """Measure the memory of all keys of the namespace, by kind, the largest first.

    Of keys that each job has, some are measured, and `MemoryUse.estimate` covers all.
    """
    walk = yield from _walk(only_memory=True, progress=progress)
    return _by_size(walk)


def check_history(_: Stores) -> Steps[CheckHistory]:
    """Return what upkeep has found and repaired so far.

    Workers check a few keys a second, by the setting `check_rate`, and repair what does not fit together.
    """
    history: CheckHistory = yield commands.check_history()
    return history


class _Walk:
    """The sum of the steps of one pass."""

    def __init__(self) -> None:
        self.keys = self.entries = 0
        self.findings: dict[str, Finding] = {}
        self.memory: dict[str, MemoryUse] = {}

    def add(self, step: CheckStep) -> None:
        self.keys += step.keys
        self.entries += step.entries
        for finding in step.findings:
            known = self.findings.get(finding.code)
            self.findings[finding.code] = known.plus(finding) if known else finding
        for use in step.memory:
            known_use = self.memory.get(use.name)
            self.memory[use.name] = known_use.plus(use) if known_use else use


def _walk(
    *, repair: bool = False, again: bool = False, only_memory: bool = False, progress: Progress | None
) -> Steps[_Walk]:
    walk, position = _Walk(), b""
    while True:
        began = time.monotonic()
        step: CheckStep = yield commands.check_step(position, repair=repair, again=again, memory=only_memory)
        walk.add(step)
        if progress:
            progress(step.keys)
        position = step.position
        if not position:
            return walk
        yield sleep(min(time.monotonic() - began, MAX_PAUSE))


def _after(first: dict[str, Finding], second: dict[str, Finding]) -> dict[str, Finding]:
    """Join two passes: what the first left, and could be repaired, counts as the second found it."""
    joined = {}
    for code in {**first, **second}:
        before, now = first.get(code), second.get(code)
        if before and now:
            joined[code] = now.after(before)
        elif before:  # what it left is gone: the repair of something else has settled it
            joined[code] = msgspec.structs.replace(before, repaired=before.count)
        elif now:
            joined[code] = now
    return joined


def _report(walk: _Walk, seconds: float) -> CheckReport:
    findings = sorted(walk.findings.values(), key=lambda finding: (-finding.left, -finding.count, finding.code))
    return CheckReport(findings=findings, keys=walk.keys, entries=walk.entries, seconds=seconds, memory=_by_size(walk))


def _by_size(walk: _Walk) -> list[MemoryUse]:
    return sorted(walk.memory.values(), key=lambda use: -use.estimate)
