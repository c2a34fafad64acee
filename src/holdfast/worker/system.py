"""What the worker asks of Linux that Python has no word for."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent dies; end it if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def boot_time() -> float:
    """Seconds since the machine started, also while it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def children() -> list[int]:
    """The process ids of this process's children."""
    own = Path(f"/proc/{os.getpid()}/task")
    return [int(child) for thread in own.iterdir() for child in (thread / "children").read_text().split()]


def kill_group(leader: int) -> None:
    """Kill a process group, if it is still there."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def reap(pid: int) -> bool:
    """Take note of a dead child, without waiting for it. Returns whether it was dead."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def kill(pid: int) -> None:
    """Kill a process, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
