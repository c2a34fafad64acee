"""Whether an app may be forked: which threads its import has started, and which module started each.

A fork copies one thread, and the locks that the others hold stay locked in the child forever. Some libraries know this:
their fork handlers end their threads before a fork, and start them again when needed. OpenBLAS does, and so do numpy,
scipy and torch. So a trial child is forked that exits at once; if threads remain after that, the app is not forked.
"""

from __future__ import annotations

import builtins
import os
import select
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from holdfast.worker import linux, processes

HARMLESS = frozenset({"jemalloc_bg_thd"})  # thread names: their libraries start them again in a child
MAX_LISTED = 5  # threads in a message
MAX_NAME = 60  # characters of a thread's name in a message

_TASKS = "/proc/self/task"
_EXIT_TIMEOUT = 10_000  # milliseconds; a trial child that has not exited by then hangs
_CHECKS = 50  # for threads that are about to end, a hundredth of a second apart
_IMPORTLIB = "<frozen importlib._bootstrap>"


class Thread(NamedTuple):
    """A thread that a fork would not copy."""

    name: str
    module: str  # whose import started it
    is_python: bool


class ThreadOrigins:
    """Records which module's import started which thread."""

    def __init__(self, app: str) -> None:
        self.started: dict[int, str] = {}  # thread id -> module
        self._importing = app
        self._importer = threading.get_ident()
        self._threads = _thread_count()
        self._known = _thread_ids()

    def check(self) -> None:
        """Attribute new threads to the module that is being imported, if the number of threads has changed."""
        if (count := _thread_count()) != self._threads:
            self._threads = count
            self.attribute()

    def attribute(self) -> None:
        new = _thread_ids() - self._known
        self._known |= new
        self.started.update(dict.fromkeys(new, self._importing))

    def watch(self, load: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
        """Wrap `__import__` to check before and after each import of this thread."""

        def watched(
            name: str, globals: Mapping[str, Any] | None = None, locals: Any = None, fromlist: Any = (), level: int = 0
        ) -> ModuleType:
            if threading.get_ident() != self._importer:
                return load(name, globals, locals, fromlist, level)
            self.check()
            outer, self._importing = self._importing, _absolute(name, globals, level)
            try:
                return load(name, globals, locals, fromlist, level)
            finally:
                self.check()
                self._importing = outer

        # Warnings and tracebacks omit the frames of the import system, and so this one.
        watched.__code__ = watched.__code__.replace(co_filename=_IMPORTLIB)
        return watched


@contextmanager
def watch_imports(app: str) -> Iterator[ThreadOrigins]:
    """Record which imports start threads: those of modules that `app` imports, or its own."""
    origins = ThreadOrigins(app)
    before = builtins.__import__
    builtins.__import__ = watched = origins.watch(before)
    try:
        yield origins
    finally:
        if builtins.__import__ is watched:  # otherwise the app has wrapped it too
            builtins.__import__ = before
        origins.attribute()  # also a thread that started when another ended


def _absolute(name: str, globals: Mapping[str, Any] | None, level: int) -> str:
    """Return the absolute name of a module that may be imported by a relative one."""
    if not level or not globals:
        return name
    package = str(globals.get("__package__") or "").rsplit(".", level - 1)[0]
    return f"{package}.{name}" if name else package


def unsafe_threads(origins: ThreadOrigins) -> list[Thread]:
    """Return the threads that make it unsafe to fork this process. If in doubt, fork a trial child."""
    if not _other_thread_ids():
        return []
    found = _describe_threads(_other_thread_ids(), origins)
    has_python = len(sys._current_frames()) > 1  # Python threads never end at a fork
    if has_python or not _fork_trial_child():
        return found
    for _ in range(_CHECKS):
        found = [thread for thread in _describe_threads(_other_thread_ids(), origins) if thread.name not in HARMLESS]
        if not found:
            break
        linux.sleep(0.01)  # a thread that has ended is listed a moment longer
    return found


def _fork_trial_child() -> bool:
    """Let libraries run their fork handlers. Return whether the child exited, and did not hang."""
    pid = linux.fork_quietly()
    if pid == 0:
        os._exit(0)
    descriptor = os.pidfd_open(pid)
    try:
        waiting = linux.poll()
        waiting.register(descriptor, select.POLLIN)
        has_exited = bool(waiting.poll(_EXIT_TIMEOUT))
    finally:
        os.close(descriptor)
    processes.kill(pid)
    with suppress(ChildProcessError):  # the app has reaped it
        linux.waitpid(pid, 0)
    return has_exited


def _thread_ids() -> set[int]:
    return set(map(int, os.listdir(_TASKS)))


def _other_thread_ids() -> list[int]:
    """Return the ids of all threads except the first."""
    return sorted(_thread_ids() - {os.getpid()})


def _thread_count() -> int:
    """Return a number that changes with the number of threads; cheaper than to list them."""
    return os.stat(_TASKS).st_nlink


def _describe_threads(ids: Iterable[int], origins: ThreadOrigins) -> list[Thread]:
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = []
    for number in ids:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            name = names.get(number) or Path(f"{_TASKS}/{number}/comm").read_text().strip()
            found.append(Thread(name, origins.started.get(number, "?"), number in names))
    return found


def list_threads(threads: Iterable[Thread]) -> str:
    """List threads with the modules that started them, for a message."""
    counts = Counter(threads)
    words = [
        f"{thread.name[:MAX_NAME]!r}{f' ({count} times)' if count > 1 else ''} of {thread.module}"
        for thread, count in counts.most_common(MAX_LISTED)
    ]
    if len(counts) > MAX_LISTED:
        words.append(f"{len(counts) - MAX_LISTED} more")
    return ", ".join(words)


def what_to_move(threads: Iterable[Thread]) -> str:
    """Name the code to move into the task, for a message."""
    python = sorted({thread.module for thread in threads if thread.is_python})[:MAX_LISTED]
    others = sorted({thread.module for thread in threads if not thread.is_python})[:MAX_LISTED]
    words = []
    if python:
        words.append(f"the code of {', '.join(python)} that starts threads")
    if others:
        words.append(f"the import of {', '.join(others)}, or what it computes while it is imported")
    return "; and ".join(words)
