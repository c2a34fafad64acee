"""Measure what else the machine did: processor time that was neither idle nor ours, and steal time."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from bench.children import descendants

TICK = os.sysconf("SC_CLK_TCK")
MUCH = 0.1  # of the machine: a figure that is taken meanwhile is flagged


@dataclass(frozen=True)
class Noise:
    """Shares of the whole machine during some seconds."""

    seconds: float
    steal: float
    other: float


class Watch:
    """Looks at the machine from now on."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy, self._stolen = _machine()
        self._ours = _ours()

    def read(self) -> Noise:
        """Say what was seen since. To be called when the children of the measure have ended."""
        seconds = max(0.001, time.monotonic() - self._began)
        busy, stolen = _machine()
        other = busy - self._busy - (_ours() - self._ours)
        whole = seconds * (os.cpu_count() or 1)
        return Noise(seconds, (stolen - self._stolen) / whole, max(0.0, other) / whole)


def _machine() -> tuple[float, float]:
    """Seconds of all processors that were used, and stolen by the host."""
    first = Path("/proc/stat").read_text().partition("\n")[0].split()
    user, nice, system, _idle, _waiting, irq, softirq, steal = (int(part) / TICK for part in first[1:9])
    return user + nice + system + irq + softirq, steal


def _ours() -> float:
    """Seconds of this process, of its children that have ended, and of those that live."""
    ended = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return ended + sum(map(processor_seconds, descendants()))


def processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / TICK  # of its own, and of its children that have ended
