"""What processes use, as Linux counts it: memory, and time on processors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """Bytes of memory now, and seconds on processors so far, also of children that have ended."""

    memory: int = 0
    cpu_seconds: float = 0.0

    def plus(self, other: Usage) -> Usage:
        return Usage(self.memory + other.memory, self.cpu_seconds + other.cpu_seconds)


def usage_of_tree(pid: int) -> Usage:
    """What a process and its descendants use. Memory that they share is counted once."""
    total = Usage()
    for member in tree(pid):
        total = total.plus(usage_of(member))
    return total


def usage_of(pid: int) -> Usage:
    """What one process uses; nothing, if it is gone."""
    with suppress(OSError, ValueError):
        return Usage(_memory(Path(f"/proc/{pid}")), _cpu_seconds(Path(f"/proc/{pid}")))
    return Usage()


def born(pid: int) -> float:
    """When a process began, by the clock of `boot_time`; 0 if it is gone."""
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]) / _TICKS
    return 0.0


def tree(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # it has ended
                for child in (thread / "children").read_text().split():
                    yield from tree(int(child))


def _memory(process: Path) -> int:
    """The process's part of the memory that it shares with others, and all that is its own."""
    with suppress(OSError):
        if found := _PSS.search((process / "smaps_rollup").read_bytes()):
            return int(found[1]) * 1024
    return int((process / "statm").read_text().split()[1]) * _PAGE  # of another user, or dead: all that is resident


def _cpu_seconds(process: Path) -> float:
    fields = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS
