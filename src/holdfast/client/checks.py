"""Consistency checks: find what does not fit together in the store, and repair it, beside running workers.

A check visits every key of the namespace in steps of a few milliseconds, and rests between them as long as each took.
It can be ended at any time. Each key and entry is compared within one step with everything it must agree with, so work
that goes on meanwhile is never reported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Self

import msgspec

from holdfast.store import Steps, Stores, commands, sleep
from holdfast.store.commands import CheckHistory, CheckStep, Finding, MemoryUse

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


class UnfinishedCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A check between two steps: where it is, and what it has found. It can be stored, and continued elsewhere."""

    repair: bool = False
    only_memory: bool = False
    position: bytes = b""  # in the current pass
    passes: int = 0  # that are over
    is_over: bool = False
    keys: int = 0  # of the first pass, as the three below
    entries: int = 0
    memory: dict[str, MemoryUse] = {}
    findings: dict[str, Finding] = {}  # of the current pass
    before: dict[str, Finding] = {}  # of the passes that are over
    seconds: float = 0.0

    def after(self, step: CheckStep, seconds: float) -> Self:
        """Return the check after another step, which took this long."""
        is_first = not self.passes
        check = msgspec.structs.replace(
            self,
            position=step.position,
            keys=self.keys + step.keys * is_first,
            entries=self.entries + step.entries * is_first,
            memory=_add_memory(self.memory, step.memory) if is_first else self.memory,
            findings=_add_findings(self.findings, step.findings),
            seconds=self.seconds + seconds,
        )
        return check if step.position else check._after_pass()

    def _after_pass(self) -> Self:
        found = _join(self.before, self.findings) if self.passes else self.findings
        is_over = (
            not self.repair
            or not any(finding.repair for finding in self.findings.values())
            or self.passes + 1 >= MAX_PASSES
        )
        return msgspec.structs.replace(self, passes=self.passes + 1, findings={}, before=found, is_over=is_over)

    def report(self) -> CheckReport:
        """Return what was found so far."""
        found = self.before if self.passes else self.findings
        return CheckReport(
            findings=sorted(found.values(), key=lambda finding: (-finding.left, -finding.count, finding.code)),
            keys=self.keys,
            entries=self.entries,
            seconds=self.seconds,
            memory=sorted(self.memory.values(), key=lambda use: -use.estimate),
        )


def check(_: Stores, *, repair: bool = False, progress: Progress | None = None) -> Steps[CheckReport]:
    """Check all keys of the namespace, and repair what is found if `repair` is true.

    for finding in jobs.check().findings:
        print(finding.code, finding.count, finding.meaning)

    The record of a job decides: indexes, timers, locks and counts are made to agree with it. A record that cannot be
    read is reported and not changed. A pass may count what lasts twice, if the server visits a key twice.
    """
    return (yield from check_further(UnfinishedCheck(repair=repair), progress=progress)).report()


def memory(_: Stores, *, progress: Progress | None = None) -> Steps[list[MemoryUse]]:
    """Measure the memory of all keys of the namespace, by kind, the largest first.

    Of keys that each job has, some are measured, and `MemoryUse.estimate` covers all.
    """
    return (yield from check_further(UnfinishedCheck(only_memory=True), progress=progress)).report().memory


def check_history(_: Stores) -> Steps[CheckHistory]:
    """Return what upkeep has found and repaired so far.

    Workers check a few keys a second, by the setting `check_rate`, and repair what does not fit together.
    """
    history: CheckHistory = yield commands.check_history()
    return history


def check_further(
    check: UnfinishedCheck, *, seconds: float = math.inf, progress: Progress | None = None
) -> Steps[UnfinishedCheck]:
    """Continue a check until it is over, or until this time has passed; at least by one step."""
    began = last = time.monotonic()
    while not check.is_over:
        asked = time.monotonic()
        step: CheckStep = yield commands.check_step(
            check.position, repair=check.repair, again=check.passes > 0, memory=check.only_memory
        )
        now = time.monotonic()
        if progress and not check.passes:
            progress(step.keys)
        check, last = check.after(step, now - last), now
        if now - began >= seconds:
            break
        if step.position:
            yield sleep(min(now - asked, MAX_PAUSE))
    return check


def _add_findings(known: Mapping[str, Finding], found: list[Finding]) -> dict[str, Finding]:
    sums = dict(known)
    for finding in found:
        sums[finding.code] = sums[finding.code].plus(finding) if finding.code in sums else finding
    return sums


def _add_memory(known: Mapping[str, MemoryUse], found: list[MemoryUse]) -> dict[str, MemoryUse]:
    sums = dict(known)
    for use in found:
        sums[use.name] = sums[use.name].plus(use) if use.name in sums else use
    return sums


def _join(first: Mapping[str, Finding], second: Mapping[str, Finding]) -> dict[str, Finding]:
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
