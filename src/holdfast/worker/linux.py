"""What the worker asks of Linux that Python has no word for.

What processes use, as Linux counts it: memory, and time on processors.

Tells systemd how a worker is, if it wants to know (`Type=notify`): that it is ready, and that it stops.
"""

from __future__ import annotations

import ctypes
import io
import os
import re
import resource
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from holdfast.errors import HoldfastError
from holdfast.server import server

MIN_FILES = 64  # a worker of one executor needs some twenty, and jobs a few each

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
DEFAULT, IGNORED = int(signal.SIG_DFL), int(signal.SIG_IGN)
# As `signal.signal`, without the enums that it makes of what was there before: each job's process does this.
set_signal: Callable[[int, Any], object] = vars(sys.modules["_signal"])["signal"]


# Python's own, also if the app replaces them, as gevent does: its versions run an event loop that reaps a zygote's
# children, and block a job where ours do not. `os.fork` is the app's: it makes the child ready for that event loop.
Socket, poll, sleep = socket.socket, select.poll, time.sleep
wait4, waitpid = os.wait4, os.waitpid


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have this process get a signal when its parent dies; end it if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


# As `os.setsid` and `os._exit`: the place of these in the C library is looked up before a process is forked, not in it.
begin_session: Callable[[], int] = _libc.setsid
leave: Callable[[int], NoReturn] = _libc._exit


def fork_quietly() -> int:
    """Fork a process whose threads, if there are any, were looked at. Python 3.12 and newer warns of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def open_standard_files() -> None:
    """Whatever started us may have closed them: then other files would get their numbers, and what is printed."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(number, True)


def require_files() -> None:
    """See to it that a worker can open the files that it cannot do without.

    Raises:
        HoldfastError: it may not; it would fail again and again, and never run a job.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= MIN_FILES:
        return
    if hard != resource.RLIM_INFINITY and hard < MIN_FILES:
        raise HoldfastError(
            f"a worker needs at least {MIN_FILES} open files, and this process may open {hard}: raise the limit"
            " (`ulimit -n 1024`, or LimitNOFILE=1024 in the unit of systemd)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (MIN_FILES, hard))


def forget_signals() -> None:
    """Whatever started us may have left signals blocked, and SIGCHLD ignored: then nobody hears how a child ended."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def user_name() -> str:
    """Who this process is to the system; a number, where it has no name for it."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def boot_time() -> float:
    """Seconds since the machine started, also while it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write_lines_at_once() -> None:
    """What jobs print is there when they end, however their process does."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def children(*, but: Collection[int] = ()) -> list[int]:
    """The process ids of this process's children, but for some, and for an embedded server that one of us started."""
    found: list[int] = []
    for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended
            found += map(int, (thread / "children").read_text().split())
    return [pid for pid in found if pid not in but and not is_server(pid)]


def is_server(pid: int) -> bool:
    """Whether a process is an embedded server, or its keeper."""
    try:
        return f"{server.MARK}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended
        return False


def kill_children(*, but: Collection[int] = ()) -> list[int]:
    """Kill all children but some, with their process groups. Returns those that were there.

    Whoever adopts orphans repeats this until none is there: the children of the killed become its own.
    """
    found = children(but=but)
    for pid in found:
        kill_group(pid)
        kill(pid)
    for pid in found:
        reap(pid)
    return found


def reap_children(*, but: Collection[int] = ()) -> None:
    """Take note of those children that are dead, but for some."""
    for pid in children(but=but):
        reap(pid)


def kill_group(leader: int) -> None:
    """Kill a process group, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def reap(pid: int) -> bool:
    """Take note of a dead child, without waiting for it. Returns whether it was dead."""
    try:
        return waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def kill(pid: int) -> None:
    """Kill a process, if it is still there, and not another user's, as what `sudo` starts."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def punch(path: Path, offset: int, length: int) -> None:
    """Make a hole in a file: its size stays, and its place on the disk is free. Where that cannot be, it stays."""
    keep_size, punch_hole = 1, 2
    with suppress(OSError, AttributeError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            numbers = ctypes.c_longlong(offset), ctypes.c_longlong(length)
            _libc.fallocate(descriptor, keep_size | punch_hole, *numbers)
        finally:
            os.close(descriptor)


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


READY = "READY=1"  # the app is imported, the store is there
STOPPING = "STOPPING=1"


def notify(words: str) -> None:
    """Say a word to systemd. Elsewhere there is nobody to hear it."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.sendto(words.encode(), f"\0{path[1:]}" if path.startswith("@") else path)
