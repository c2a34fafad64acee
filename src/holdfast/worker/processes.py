"""Other processes of the machine, as /proc shows them: descendants, start time, memory and CPU; and killing them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.server import launch
from holdfast.worker import linux

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_RSS_AND_SWAP = re.compile(rb"^(?:VmRSS|VmSwap):\s+(\d+) kB", re.MULTILINE)
_PSS_AND_SWAP = re.compile(rb"^(?:Pss|SwapPss):\s+(\d+) kB", re.MULTILINE)


# The process tree


def tree(pid: int, *, servers: bool = True) -> Iterator[int]:
    """Yield a process and its descendants; without `servers`, no embedded server and nothing below it."""
    yield pid
    with suppress(OSError):
        for child in children_of(pid):
            if servers or not is_server(child):
                yield from tree(child, servers=servers)


def children_of(pid: int) -> Iterator[int]:
    """Yield the children of all threads of a process.

    Raises:
        OSError: the process has ended, or this one is out of descriptors.
    """
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())


def children(*, but: Collection[int] = ()) -> list[int]:
    """Return the children of this process, except `but` and an embedded server."""
    return [pid for pid in children_of(os.getpid()) if pid not in but and not is_server(pid)]


def all_pids() -> list[int]:
    """Return the ids of all processes of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def is_server(pid: int) -> bool:
    """Return whether a process is an embedded server, or its keeper."""
    return f"{launch.MARK}=".encode() in environment(pid)


def environment(pid: int) -> bytes:
    """Return the environment that a process was started with; b"" if it has ended or belongs to another user."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def command_line(pid: int) -> str:
    """Return the command line of a process; '' if it has ended, or has none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return ""


# One process


class ProcessStat(NamedTuple):
    """A process at one moment; all fields are empty if it has ended."""

    started: float = 0.0  # by the clock of `boot_time`; with the pid, it identifies a process
    cpu_seconds: float = 0.0  # also of children that have ended
    state: str = ""
    name: str = ""


def process_stat(pid: int) -> ProcessStat:
    """Read the start time, CPU time, state and name of a process."""
    with suppress(OSError, ValueError, IndexError):
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            head, _, tail = os.read(file, 4096).rpartition(b")")
        finally:
            os.close(file)
        fields = tail.split()
        name = head.partition(b"(")[2].decode("utf-8", "replace")
        return ProcessStat(
            int(fields[19]) / _TICKS, sum(map(int, fields[11:15])) / _TICKS, fields[0].decode("ascii"), name
        )
    return ProcessStat()


def start_time(pid: int) -> float:
    """Return when a process started, by the clock of `boot_time`; 0 if it has ended."""
    return process_stat(pid).started


# Memory and CPU


class Usage(NamedTuple):
    """Bytes of memory now, and seconds of CPU so far, also of children that have ended."""

    memory: int = 0
    cpu_seconds: float = 0.0

    def plus(self, other: Usage) -> Usage:
        return Usage(self.memory + other.memory, self.cpu_seconds + other.cpu_seconds)


def usage_of_tree(pid: int) -> Usage:
    """Return the usage of a process and its descendants. Memory that they share is counted once."""
    total = Usage()
    for member in tree(pid):
        total = total.plus(usage_of(member))
    return total


def usage_of(pid: int) -> Usage:
    """Return the usage of one process; nothing, if it has ended."""
    with suppress(OSError, ValueError):
        return Usage(_memory(pid), process_stat(pid).cpu_seconds)
    return Usage()


def _memory(pid: int) -> int:
    """Return the private memory of a process, and its part of the memory that it shares with others."""
    with suppress(OSError):
        if found := _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes()):
            return int(found[1]) * 1024
    # Another user's process, or a dead one: all its resident memory.
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def memory_of_tree(pid: int, limit: int) -> int:
    """Return the bytes that a process and its descendants use, swapped out memory included.

    An exact figure (PSS) takes milliseconds for each GiB. So it is only determined if the cheap one, which counts
    shared memory several times, is above `limit`. An embedded server that a job has started does not count.
    """
    members = list(tree(pid, servers=False))
    upper_bounds = [_sum(_RSS_AND_SWAP, member, "status") for member in members]
    if sum(upper_bounds) <= limit:
        return sum(upper_bounds)
    return sum(
        _sum(_PSS_AND_SWAP, member, "smaps_rollup") or upper_bound
        for member, upper_bound in zip(members, upper_bounds, strict=True)
    )


def _sum(pattern: re.Pattern[bytes], pid: int, file: str) -> int:
    """Return the sum of the matching lines, in bytes; 0 if the process has ended, or belongs to another user."""
    with suppress(OSError):
        return sum(map(int, pattern.findall(Path(f"/proc/{pid}/{file}").read_bytes()))) * 1024
    return 0


# Killing and reaping


def kill(pid: int) -> None:
    """Kill a process, unless it has ended or belongs to another user, as one started by `sudo` does."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """Kill a process group, if it still exists."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill_children(*, but: Collection[int] = ()) -> list[int]:
    """Kill all children except `but`, with their process groups. Return those that were found.

    A process that adopts orphans repeats this until there are none: the children of the killed become its own.
    """
    found = children(but=but)
    for pid in found:
        kill_group(pid)
        kill(pid)
    for pid in found:
        reap(pid)
    return found


def reap_children(*, but: Collection[int] = ()) -> None:
    """Reap the children that are dead, except `but`."""
    for pid in children(but=but):
        reap(pid)


def reap(pid: int) -> bool:
    """Reap a child if it is dead, without waiting. Return whether it was dead."""
    try:
        return linux.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
