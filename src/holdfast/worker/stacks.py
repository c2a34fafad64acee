"""Reads the stacks of all threads of a Python process from outside, without stopping it.

    stacks.enable()            in an executor, before its zygote forks: a job's process inherits it at no cost
    stacks.stack_of(pid)       in any process of the worker

On SIGUSR2 the process writes the stacks of its threads to a file in memory that it shares with its executor. The
handler is written in C, so it works while a job holds the GIL. If an app handles SIGUSR2 itself, there are no stacks.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SIGNAL = signal.SIGUSR2
ANSWER_TIMEOUT = 2.0  # seconds; a process that is stopped or waits for a disk does not
MAX_ANSWER = 64 * 1024  # bytes

_NAME = "holdfast-stacks"
_LINK = f"/memfd:{_NAME} (deleted)"
_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
_OURS = (f'  File "{_PACKAGE}', '  File "<frozen runpy>"')
_BIT = 1 << (SIGNAL - 1)


def enable(descriptor: int | None = None) -> int | None:
    """Enable stacks of this process and its forks. Return the descriptor to pass to a new interpreter."""
    if signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return None
    if descriptor is None:
        descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    faulthandler.register(SIGNAL, file=descriptor, all_threads=True, chain=False)
    return descriptor


def stack_of(pid: int) -> str:
    """Return the stacks of all threads of a process, as `faulthandler` writes them; '' if it does not answer.

    Blocks for some milliseconds.
    """
    try:
        with _answers(pid) as file:
            if file is None or not _is_caught(pid):
                return ""
            os.kill(pid, SIGNAL)
            _wait_for_answer(pid)
            return _without_runner(os.pread(file, MAX_ANSWER, 0).decode("utf-8", "replace"))
    except (OSError, ValueError):  # it has ended, or belongs to another user
        return ""


def _without_runner(text: str) -> str:
    """Omit the outermost calls of each thread that are Holdfast's own: all jobs have the same."""
    threads = []
    for thread in text.split("\n\n"):
        lines = thread.rstrip().splitlines()
        while len(lines) > 2 and lines[-1].startswith(_OURS):  # the first line names the thread
            lines.pop()
        threads.append("\n".join(lines))
    return "\n\n".join(threads) + "\n" if text else ""


def coroutine_stack(task: asyncio.Task[Any]) -> str:
    """Return where a task of an event loop waits, from the outermost coroutine to the innermost."""
    frames: list[traceback.FrameSummary] = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:  # it waits for a future, not for a coroutine
            break
        frames += traceback.extract_stack(frame, limit=1)
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return _from_task_on(frames)


def thread_stack(ident: int) -> str:
    """Return the stack of a thread of this process, from the outermost call to the innermost."""
    frame = sys._current_frames().get(ident)
    return _from_task_on(list(traceback.extract_stack(frame))) if frame else ""


def _from_task_on(frames: list[traceback.FrameSummary]) -> str:
    """Omit the outermost calls, up to Holdfast's own call of the task."""
    ours = [frame.filename.startswith(_PACKAGE) for frame in frames]
    begin = ours.index(True) if True in ours else 0
    while begin < len(frames) - 1 and ours[begin]:
        begin += 1
    return "".join(traceback.format_list(frames[begin:]))


@contextmanager
def _answers(pid: int) -> Iterator[int | None]:
    """Open the file that a process writes its stacks to, emptied, and locked until the block ends.

    None if the process has closed it: its descriptor may be another file by now, so no signal may be sent.
    """
    path = next((path for path in Path(f"/proc/{pid}/fd").iterdir() if _link(path) == _LINK), None)
    if path is None:
        yield None
        return
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file, 0)
        yield file
    finally:
        os.close(file)


def _link(path: Path) -> str:
    with suppress(OSError):
        return os.readlink(path)
    return ""


def _is_caught(pid: int) -> bool:
    """Return whether the process handles the signal: without a handler it would die, as a job that became a program."""
    return bool(_signals(Path(f"/proc/{pid}/status"), "SigCgt:") & _BIT)


def _wait_for_answer(pid: int) -> None:
    """Wait until the signal is neither pending nor blocked: the handler has run."""
    deadline = time.monotonic() + ANSWER_TIMEOUT
    while time.monotonic() < deadline:
        states = list(Path(f"/proc/{pid}/task").glob("*/status"))
        if not any(_signals(path, "ShdPnd:", "SigBlk:") & _BIT for path in states):
            return
        time.sleep(0.002)


def _signals(status: Path, *lines: str) -> int:
    """Return all signals in these lines of a status file, as bits."""
    found = 0
    with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
        for line in status.read_text().splitlines():
            if line.startswith(lines):
                found |= int(line.split()[1], 16)
    return found
