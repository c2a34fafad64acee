"""Threads that the import of an app has started: which module started each, and whether the app can be forked.

A fork copies one thread, and the locks that others held stay locked in the copy for ever. Libraries that know this end
their threads before a fork, by handlers of their own, and start them again when they need them: OpenBLAS, and so numpy,
scipy and torch. So a child is forked that exits at once; the threads that are left after that decide.
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

SURVIVORS = frozenset({"jemalloc_bg_thd"})  # by name: their libraries start them again in a child
MAX_LISTED = 5  # threads in a message
MAX_NAME = 60  # characters of a thread's name in a message

_TASKS = "/proc/self/task"
_PROBE_WITHIN = 10_000  # milliseconds; a child that has not exited by then hangs
_LOOKS = 50  # at threads that may be about to end, a hundredth of a second apart
_IMPORTLIB = "<frozen importlib._bootstrap>"


class Thread(NamedTuple):
    """A thread that a fork would not copy."""

    name: str
    module: str  # whose import started it
    is_python: bool


class ImportedThreads:
    """Which module's import has started which thread."""

    def __init__(self, app: str) -> None:
        self.started: dict[int, str] = {}  # thread id -> module
        self._importing = app
        self._importer = threading.get_ident()
        self._threads = _count()
        self._known = _ids()

    def look(self) -> None:
        """Blame the module that is being imported for the threads that are new, if their number has changed."""
        if (count := _count()) != self._threads:
            self._threads = count
            self.blame()

    def blame(self) -> None:
        new = _ids() - self._known
        self._known |= new
        self.started.update(dict.fromkeys(new, self._importing))

    def watch(self, load: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
        """Wrap `__import__`, to look before and after each import; not of threads that import at the same time."""

        def watched(
            name: str, globals: Mapping[str, Any] | None = None, locals: Any = None, fromlist: Any = (), level: int = 0
        ) -> ModuleType:
            if threading.get_ident() != self._importer:
                return load(name, globals, locals, fromlist, level)
            self.look()
            outer, self._importing = self._importing, _absolute(name, globals, level)
            try:
                return load(name, globals, locals, fromlist, level)
            finally:
                self.look()
                self._importing = outer

        # Warnings and tracebacks leave out the frames of the import system: so ours too.
        watched.__code__ = watched.__code__.replace(co_filename=_IMPORTLIB)
        return watched


@contextmanager
def watch_imports(app: str) -> Iterator[ImportedThreads]:
    """Note which imports start threads, in modules that `app` imports, or else in itself."""
    noted = ImportedThreads(app)
    before = builtins.__import__
    builtins.__import__ = watched = noted.watch(before)
    try:
        yield noted
    finally:
        if builtins.__import__ is watched:  # or the app has wrapped it too
            builtins.__import__ = before
        noted.blame()  # also for one that began when another ended


def _absolute(name: str, globals: Mapping[str, Any] | None, level: int) -> str:
    """The whole name of a module, which may be relative to that which imports it."""
    if not level or not globals:
        return name
    package = str(globals.get("__package__") or "").rsplit(".", level - 1)[0]
    return f"{package}.{name}" if name else package


def unforkable(noted: ImportedThreads) -> list[Thread]:
    """Return the threads because of which this process cannot be forked. A child is forked to find out, if need be."""
    if not _others():
        return []
    found = _described(_others(), noted)
    has_python = len(sys._current_frames()) > 1  # such threads never end at a fork
    if has_python or not _fork_a_child():
        return found
    for _ in range(_LOOKS):
        found = [thread for thread in _described(_others(), noted) if thread.name not in SURVIVORS]
        if not found:
            break
        linux.sleep(0.01)  # a thread that was ended is listed for a moment more
    return found


def _fork_a_child() -> bool:
    """Have libraries do what they do at a fork. Returns whether the child exited, and did not hang."""
    pid = linux.fork_quietly()
    if pid == 0:
        os._exit(0)
    descriptor = os.pidfd_open(pid)
    try:
        waiting = linux.poll()
        waiting.register(descriptor, select.POLLIN)
        has_exited = bool(waiting.poll(_PROBE_WITHIN))
    finally:
        os.close(descriptor)
    processes.kill(pid)
    with suppress(ChildProcessError):  # the app has reaped it
        linux.waitpid(pid, 0)
    return has_exited


def _ids() -> set[int]:
    return set(map(int, os.listdir(_TASKS)))


def _others() -> list[int]:
    """The ids of all threads but the first."""
    return sorted(_ids() - {os.getpid()})


def _count() -> int:
    """A number that changes with that of the threads, for less than it takes to list them."""
    return os.stat(_TASKS).st_nlink


def _described(ids: Iterable[int], noted: ImportedThreads) -> list[Thread]:
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = []
    for number in ids:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            name = names.get(number) or Path(f"{_TASKS}/{number}/comm").read_text().strip()
            found.append(Thread(name, noted.started.get(number, "?"), number in names))
    return found


def listed(threads: Iterable[Thread]) -> str:
    """The threads with the modules that started them, as a sentence lists them."""
    counts = Counter(threads)
    words = [
        f"{thread.name[:MAX_NAME]!r}{f' ({count} times)' if count > 1 else ''} of {thread.module}"
        for thread, count in counts.most_common(MAX_LISTED)
    ]
    if len(counts) > MAX_LISTED:
        words.append(f"{len(counts) - MAX_LISTED} more")
    return ", ".join(words)


def advice(threads: Iterable[Thread]) -> str:
    """What to move into the task."""
    python = sorted({thread.module for thread in threads if thread.is_python})[:MAX_LISTED]
    others = sorted({thread.module for thread in threads if not thread.is_python})[:MAX_LISTED]
    words = []
    if python:
        words.append(f"the code of {', '.join(python)} that starts threads")
    if others:
        words.append(f"the import of {', '.join(others)}, or what it computes while it is imported")
    return "; and ".join(words)
