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
        return Usage(_memory(Path(f"/proc/{pid}")), origin(pid).cpu_seconds)
    return Usage()


class Origin(NamedTuple):
    """When a process began, by the clock of `boot_time`, and its seconds on processors since then; 0 if it is gone."""

    born: float = 0.0
    cpu_seconds: float = 0.0


def origin(pid: int) -> Origin:
    """Look at a process once: when it began, and what it has used."""
    with suppress(OSError, ValueError, IndexError):
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = os.read(file, 4096).rpartition(b")")[2].split()
        finally:
            os.close(file)
        return Origin(int(fields[19]) / _TICKS, sum(map(int, fields[11:15])) / _TICKS)
    return Origin()


def born(pid: int) -> float:
    """When a process began, by the clock of `boot_time`; 0 if it is gone."""
    return origin(pid).born


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
