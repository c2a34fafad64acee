"""Run a function in a fork of the test's process, which can be killed."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from holdfast.worker import linux, processes

MAX_READ = 1 << 16
SIZE = 4  # bytes before a reply

Die = Callable[[], NoReturn]


class Died(Exception):
    """The process ended without a reply: by a signal, or with an exit code."""

    def __init__(self, status: int) -> None:
        self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        self.exit_code = None if self.signal else os.WEXITSTATUS(status)
        super().__init__(f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}")


def call_in_fork(function: Callable[[Die], bytes], seconds: float) -> bytes | None:
    """Call a function in a process of its own and return its reply; None if it has killed the process with `die`.

    What the process has started is killed when it ends; if it ends by itself, without a reply, only its process group.

    Raises:
        Died: it ended before the function returned.
        TimeoutError: it did not end in time, and was killed.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or the child would write it again
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = linux.fork_quietly()
    if pid == 0:
        _serve(function, writing, parent)
    os.close(writing)
    try:
        with suppress(OSError):  # both processes set the group, so that it exists in both orders of events
            os.setpgid(pid, pid)
        reply = _receive(reading, pid, time.monotonic() + seconds)
    finally:
        os.close(reading)
        status = _end(pid)
    if reply is None:
        raise Died(status)
    return reply or None


def _serve(function: Callable[[Die], bytes], writing: int, parent: int) -> NoReturn:
    """Call the function in the child, and leave without the exit handlers, which belong to the parent."""

    def die() -> NoReturn:
        _kill_descendants(os.getpid())
        os.write(writing, bytes(SIZE))
        os.kill(os.getpid(), signal.SIGKILL)
        linux.exit_now(1)  # never reached

    code, own = 1, os.getpid()
    try:
        os.setpgid(0, 0)
        linux.die_with_parent(parent)
        reply = function(die)
        if os.getpid() != own:  # a fork made by the function returned from it; ignore its reply
            linux.exit_now(0)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _kill_descendants(own)
        with open(writing, "wb") as pipe:
            pipe.write(len(reply).to_bytes(SIZE) + reply)
        code = 0
    except BaseException:
        with suppress(BaseException):
            sys.excepthook(*sys.exc_info())
    finally:
        linux.exit_now(code)


def _receive(reading: int, pid: int, deadline: float) -> bytes | None:
    """Return the reply; None if the process has ended without one. Its own children may hold the pipe open."""
    received = bytearray()
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(process, select.POLLIN)
    try:
        while not _is_whole(received):
            ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
            if not ready:
                raise TimeoutError
            if reading not in ready:
                return None
            if chunk := os.read(reading, MAX_READ):
                received += chunk
            else:
                poll.unregister(reading)
    finally:
        os.close(process)
    return bytes(received[SIZE : SIZE + int.from_bytes(received[:SIZE])])  # forks of the function may have written too


def _is_whole(received: bytearray) -> bool:
    return len(received) >= SIZE + int.from_bytes(received[:SIZE]) and len(received) >= SIZE


def _end(pid: int) -> int:
    """Kill a process, its descendants and its group, and return the status with which it ended."""
    _kill_descendants(pid)
    processes.kill_group(pid)
    processes.kill(pid)
    return linux.waitpid(pid, 0)[1]


def _kill_descendants(pid: int) -> None:
    """Kill what a process has started, also in sessions of their own. The dead have no descendants, so it must live."""
    _, *descendants = processes.tree(pid, servers=False)
    for each in descendants:
        processes.kill(each)
