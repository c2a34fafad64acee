"""Linux calls for the current process: signals, sessions, orphans, descriptors, clocks, systemd."""

from __future__ import annotations

import ctypes
import io
import os
import resource
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from holdfast.errors import HoldfastError

MIN_FILES = 64  # a worker of one executor needs about twenty, and jobs a few each

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


# Python's own functions, also if the app replaces them, as gevent does: its versions run an event loop that reaps a
# zygote's children, and block a job where ours do not. `os.fork` is the app's: it prepares the child for that loop.
Socket, poll, sleep = socket.socket, select.poll, time.sleep
wait4, waitpid = os.wait4, os.waitpid

# As `os.setsid` and `os._exit`; their address in the C library is looked up before a process is forked, not in it.
begin_session: Callable[[], int] = _libc.setsid
exit_now: Callable[[int], NoReturn] = _libc._exit

# As `signal.signal`, without the enum that it makes of the previous handler: each job's process calls it.
set_signal: Callable[[int, Any], object] = vars(sys.modules["_signal"])["signal"]
DEFAULT, IGNORED = int(signal.SIG_DFL), int(signal.SIG_IGN)


# Parents and children


def fork_quietly() -> int:
    """Fork without the warning of Python 3.12 about other threads: the caller has examined them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have Linux send this process a signal when its parent dies; exit if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def set_process_name(name: str) -> None:
    """Set the name that `ps`, `top` and `pgrep` show, from the main thread. Linux truncates it to 15 bytes.

    In a job's process this takes 2 µs; writing /proc/self/comm takes 11, and 60 right after the fork.
    """
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def reset_signals() -> None:
    """Unblock all signals, and stop ignoring SIGCHLD: the parent may have left them so."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


# Descriptors and files


def open_standard_files() -> None:
    """Open descriptors 0 to 2 if the parent has closed them, or other files would get these numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(number, True)


def require_files() -> None:
    """Raise the limit of open files to what a worker needs.

    Raises:
        HoldfastError: the hard limit is lower; the worker would fail again and again, and never run a job.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= MIN_FILES:
        return
    if hard != resource.RLIM_INFINITY and hard < MIN_FILES:
        raise HoldfastError(
            f"a worker needs at least {MIN_FILES} open files, and this process may open {hard}: raise the limit"
            " (`ulimit -n 1024`, or LimitNOFILE=1024 in the systemd unit)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (MIN_FILES, hard))


def flush_each_line() -> None:
    """Write each printed line at once, so that it is not lost with the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def punch_hole(path: Path, offset: int, length: int) -> None:
    """Free a part of a file on disk; its size is unchanged. File systems that cannot do so keep it."""
    keep_size, punch_hole = 1, 2
    with suppress(OSError, AttributeError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            numbers = ctypes.c_longlong(offset), ctypes.c_longlong(length)
            _libc.fallocate(descriptor, keep_size | punch_hole, *numbers)
        finally:
            os.close(descriptor)


# Clock, user, systemd


def boot_time() -> float:
    """Return the seconds since the machine started, including those it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def user_name() -> str:
    """Return the name of the user that this process runs as; its number, if it has no name."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


READY = "READY=1"  # the app is imported, and the server answers
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Notify systemd of the worker's state, if it runs as a service of `Type=notify`."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.sendto(state.encode(), f"\0{path[1:]}" if path.startswith("@") else path)
